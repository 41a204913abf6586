"""Timed comparisons. Each file without a leading underscore is a command."""

from wordle_rl.cli import shorten_spins

# As the commands do. It must run before torch is imported, so torch scripts import this first.
shorten_spins()
