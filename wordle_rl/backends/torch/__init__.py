"""backend=lightning: PyTorch on CPU, CUDA and Apple's MPS.

backend.py builds the policy and trains a run, on one or several processes (processes.py), and
trainer.py goes through its steps by Lightning. machine.py holds the trained weights, the copy that
computes and the reference. optimizers.py takes the steps. engine.py has the cache of keys and
values and draws tokens. fast/ holds faster ways for a CPU. load.py loads models and merges
adapters, causal_lm.py splits models into trunk and head, devices.py chooses device, precision and
threads.
"""
