"""What the laboratory asks of a model, in plain Python and numpy. Each backend implements it.

policy.py is the protocol of a model that plays, scores and learns; engine.py is its rollout part,
with its tokenizer. batch.py holds what a model is trained on and splits it into minibatches and
micro-batches. settings.py, sampling.py and optim.py are the settings of model=, backend=, vllm=,
sampling= and optim. computing.py chooses precision and threads by timing. lineage.py records what a
model was trained on.
"""
