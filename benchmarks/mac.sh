#!/usr/bin/env bash
# All that only a Mac with Apple silicon can show, in one go; nobody has run it yet.
#
#     make venv && source .venv/bin/activate && bash benchmarks/mac.sh [folder for the report]
#
# Downloads Gemma-3-4b-it in bf16 (8 GB) and in 4 bit (2.6 GB); needs 24 GB of memory, or
# BF16=0 on 16 GB. Takes about an hour. Each part writes a log; a part that fails is named at the
# end and does not stop the others.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
OUT="$(mkdir -p "${1:-outputs/mac}" && cd "${1:-outputs/mac}" && pwd)"
BF16="${BF16:-1}"
failed=()

part() {  # name, command...
    local name="$1"; shift
    echo "== $name: $*"
    if ! /usr/bin/time -l "$@" >"$OUT/$name.log" 2>&1; then failed+=("$name"); fi
    tail -n 3 "$OUT/$name.log"
}
newest() { ls -dt "$OUT/$1"/*_*/ | head -n 1; }

{ sw_vers; sysctl -n machdep.cpu.brand_string hw.memsize; python -m pip freeze; } >"$OUT/machine.txt"
if [ "$(uname -sm)" != "Darwin arm64" ]; then
    echo "error: this is not a Mac with Apple silicon" >&2
    exit 2
fi

# The contracts on Metal, compiled: the same tests that CI runs on Linux's CPU build.
part parity python -m pytest tests/test_parity.py tests/test_mlx_engine.py tests/test_mlx_policy.py -rA
part formats python -m pytest tests/test_convert.py -rA
part runs python -m pytest tests/test_mlx_runs.py -rA

# The embedded model learns as on the other backend, and how long a step takes.
part tiny python train.py backend=mlx output_dir="$OUT/tiny"
part tiny_on_mps python train.py backend.accelerator=mps trainer.steps=10 output_dir="$OUT/mps"
part benchmark python benchmarks/mlx.py --json "$OUT/benchmark.json"

# Gemma 3 4B: does it load, play, learn and stay within the memory that its table says?
models=(mlx-community/gemma-3-4b-it-4bit)
[ "$BF16" = 1 ] && models+=(mlx-community/gemma-3-4b-it-bf16)
for model in "${models[@]}"; do
    short="${model##*-}"
    for n in 2 4 8; do
        part "gemma_${short}_$n" python train.py model=gemma4b-mlx model.path="$model" \
            num_generations=$n trainer.steps=3 trainer.report=false trainer.validate_every=3 \
            words=custom words.answers=wordle_rl/data/original/answers.txt words.val=4 words.test=4 \
            output_dir="$OUT/gemma_${short}_$n"
    done
    run="$(newest "gemma_${short}_2")"
    part "resume_$short" python train.py resume="$run" trainer.steps=4
    part "eval_$short" python eval.py run="$run" limit=4 compare=false output_dir="$OUT/eval"
    part "generate_$short" python -m mlx_lm generate --model "$model" \
        --adapter-path "${run}model" --prompt "Name a five-letter word." --max-tokens 32
    part "fuse_$short" python -m wordle_rl.convert "${run}model" "$OUT/fused_$short" --fuse
    part "peft_$short" python -m wordle_rl.convert "${run}model" "$OUT/peft_$short" \
        --base google/gemma-3-4b-it
done
grep -h "memory of MLX" "$OUT"/*.log

if [ ${#failed[@]} -gt 0 ]; then echo "failed: ${failed[*]}; see $OUT"; exit 1; fi
echo "all parts passed; report in $OUT"
