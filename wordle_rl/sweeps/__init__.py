"""Studies of settings: python train.py -m sweep=<study> runs each trial in a process of its own.

run is the whole sequence. plan and space say what a trial runs, power what seeds buy, queue which
trial is next, draw asks Optuna where a study has a sampler or a pruner, and trial runs one. results
writes what it leaves, verdicts judges a study, and readme writes its page.
"""
