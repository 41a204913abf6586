"""Rewards, one file each: a small callable on a finished turn, with a declared range.

To add one, write a frozen keyword-only dataclass with `range` and `__call__` (see
wordle_rl.rewards.scoring), name it with a weight in a YAML file of conf/reward, and test it.
"""
