"""Studies of settings: python train.py -m sweep=<study> runs each trial in a process of its own.

space, settings and plan say what a trial runs. child_run follows one run and knows nothing of
Optuna. The other modules work with Optuna's studies.
"""
