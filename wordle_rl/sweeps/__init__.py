"""Studies of settings: python train.py -m sweep=<study> runs each trial in a process of its own.

run is the whole sequence. plan and space say what a trial runs, power what a study can find before
it starts, ledger keeps the trials in Optuna's database, trial runs one of them, results writes
what it leaves, verdicts judges a study, and readme writes its page.
"""
