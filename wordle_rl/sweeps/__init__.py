"""Studies of settings: python train.py -m sweep=<study> runs each trial in a process of its own.

run is the whole sequence. plan and space say what a trial runs, power what seeds buy, draw asks
Optuna where a study has a sampler or a pruner, trial runs one, and record keeps them all and says
which is next. verdicts judges a study, and readme writes its page.
"""
