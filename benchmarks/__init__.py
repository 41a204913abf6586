"""Timed comparisons; each file here that has no underscore is a command."""
