"""Wordle for other libraries. Each file needs the library that it adapts to; nothing imports it."""
