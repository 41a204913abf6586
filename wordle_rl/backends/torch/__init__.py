"""backend=lightning: PyTorch on CPU, CUDA and Apple's MPS.

backend.py trains a run in a plain loop, on one or several processes (processes.py).
policy.py holds the trained weights, the copy that computes and the reference. optimizers.py takes
the steps. engine.py plays with cached keys and values (cache.py) and draws tokens. fast/ holds
faster ways for a CPU. load.py loads models and merges adapters, causal_lm.py splits models into
trunk and head, devices.py chooses device, precision and threads.
"""
