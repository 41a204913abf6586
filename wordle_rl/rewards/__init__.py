"""Rewards, one file each: a small callable on a finished turn, with a declared range."""
