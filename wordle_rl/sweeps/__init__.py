"""Studies over settings: python train.py -m sweep=<study>, one child process per trial.

storage, sampling and worker know Optuna; child and keeper know run folders and nothing of Optuna;
space, settings and plan know neither.
"""
