"""Wordle for verl 0.9.1: the agent loop, the rows it reads, and our settings as verl's keys."""
