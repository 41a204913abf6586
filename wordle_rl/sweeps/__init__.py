"""Studies of settings: python train.py -m sweep=<study> runs each trial in a process of its own.

hydra_plugins/wordle_rl_sweeper.py is where Hydra enters. settings, space and plan say what a trial
runs, ledger keeps the trials in Optuna's database, run and trial run them, and results writes
results.csv. verdicts judges a study, power says before it starts what it can find, and page writes
its page.
"""
