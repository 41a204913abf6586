#!/usr/bin/env bash
# Trains with verl 0.9.1 on the files of `python examples/verl/write_files.py output=<folder>`:
#     bash examples/verl/train.sh <folder> [verl's settings, which win]
# NNODES and GPUS (of each node) say how many there are. On several nodes, start Ray first.
set -euo pipefail
loop="$(cd "$(dirname "$0")" && pwd)"
here="$(cd "$1" && pwd)"
shift
mapfile -t keys <"$here/keys.txt"
args=(
    data.train_files="'$here/train.parquet'"
    data.val_files="'$here/val.parquet'"
    data.shuffle=true
    data.return_raw_chat=true
    data.filter_overlong_prompts=false
    data.truncation=error
    # The agent loop plays whole games, and gives the reward itself.
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.agent.default_agent_loop=wordle
    actor_rollout_ref.rollout.agent.agent_loop_config_path="'$here/agent_loop.yaml'"
    actor_rollout_ref.rollout.calculate_log_probs=true
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.load_format=safetensors # under LoRA vLLM needs the base at its start
    actor_rollout_ref.rollout.val_kwargs.n=1
    actor_rollout_ref.rollout.val_kwargs.temperature=0
    actor_rollout_ref.rollout.val_kwargs.do_sample=false
    reward.num_workers=1
    # On every node, Ray's workers find verl_loop.py beside this script.
    +ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH="'${PYTHONPATH:+$PYTHONPATH:}$loop'"
    # How it learns: FSDP, AdamW, one clip on each side.
    actor_rollout_ref.model.enable_gradient_checkpointing=true
    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.use_dynamic_bsz=true
    actor_rollout_ref.actor.clip_ratio_c=1e9
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    algorithm.kl_penalty=kl
    # The run.
    trainer.nnodes="${NNODES:-1}"
    trainer.n_gpus_per_node="${GPUS:-1}"
    trainer.project_name=wordle-rl
    trainer.logger=[console]
    trainer.total_epochs=1000000 # total_training_steps ends it
    trainer.val_before_train=true
    trainer.max_actor_ckpt_to_keep=2
    trainer.default_local_dir="'$here/checkpoints'"
)
exec "${PYTHON:-python}" -m verl.trainer.main_ppo "${args[@]}" "${keys[@]}" "$@"
