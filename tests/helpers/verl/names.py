"""Names that the processes of a test share. Needs neither torch nor verl."""

from __future__ import annotations

NAME = "wordle_engine"  # of the rollout engine
MODE = "recorded_sync"  # of the trainer
LOG = "WORDLE_RL_VERL_LOG"  # variable with the folder for what was drawn and trained
