"""Plays on vLLM servers: rollout.engine=vllm. It knows HTTP and no tensors.

server.py asks one server and checks its answers. pool.py deals requests to several servers, and
repeats what failed. engine.py keeps the tokens of each row. policy.py gives a policy that engine,
brings each new adapter to the servers through a folder, and compares servers with the trainer.
"""
