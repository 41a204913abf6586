"""backend=mlx: Apple silicon, and the CPU on Linux.

backend.py chooses the precision and trains a run in a short loop. policy.py scores a model and
computes gradients, optimizers.py takes the steps. engine.py plays with cached keys and values
(cache.py) and draws tokens. load.py loads models through mlx-lm, config.py corrects config.json for
mlx-lm, causal_lm.py splits a model into trunk and head. save.py writes and reads models and
adapters, merge.py merges an adapter into its model.
"""
