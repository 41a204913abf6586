"""Timed comparisons; each file here that has no underscore is a command."""

from wordle_rl.cli import shorten_spins

shorten_spins()  # as the commands do; whoever imports torch imports this first
