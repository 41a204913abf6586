"""backend=lightning: PyTorch on CPU, CUDA and Apple's MPS.

backend.py trains a run under Lightning's Trainer, on one or several processes (processes.py).
policy.py scores and updates a TrainedModel (trained_model.py): token_outputs.py computes
log-probabilities, loss.py the loss, optimizers.py the steps, value_head.py values. engine.py plays:
it keeps keys and values (cache.py), samples tokens (sampling.py), and on CPU uses faster code for
short sequences (attention.py) and Qwen2 (fast_qwen2.py). load.py loads models, causal_lm.py splits
them into trunk and head, weights.py checks saved weights, timing.py chooses precision and threads.
"""
