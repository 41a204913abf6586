#!/usr/bin/env bash
# Runs everything that needs a Mac with Apple silicon. Nobody has run it yet.
#
#     make venv && source .venv/bin/activate && bash benchmarks/mac.sh [new folder for the report]
#
# The Mac needs 16 GB of memory or more. conf/model/gemma4b-mlx.yaml says which settings of
# Gemma-3-4b-it fit into how much. The script downloads the 4 bit model (2.6 GB) and, with 24 GB or
# more, the bf16 model (8 GB). It installs mlx-lm-lora for the benchmark into the report's folder.
# It takes an hour or more (a guess). Each part writes a log. A part that fails does not stop the
# others, and the last line names it.
set -uo pipefail
if [ "$(uname -sm)" != "Darwin arm64" ]; then
    echo "error: this is not a Mac with Apple silicon" >&2
    exit 2
fi
given="${1:-}"
[ -n "$given" ] && case "$given" in /*) ;; *) given="$PWD/$given" ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! python -c "import mlx_lm, wordle_rl" 2>/dev/null; then
    echo "error: activate the environment first: make venv && source .venv/bin/activate" >&2
    exit 2
fi
OUT="${given:-$PWD/outputs/mac/$(date +%Y-%m-%d_%H-%M-%S)}"
if [ -e "$OUT" ]; then
    echo "error: $OUT exists already: name a new folder" >&2
    exit 2
fi
mkdir -p "$OUT"
failed=()

part() {  # name, command...
    local name="$1"; shift
    echo "== $name: $*"
    if ! /usr/bin/time -l "$@" >"$OUT/$name.log" 2>&1; then failed+=("$name"); fi
    tail -n 3 "$OUT/$name.log"
}
newest() { ls -dt "$OUT/$1"/*_*/ | head -n 1; }

{
    sw_vers; sysctl -n machdep.cpu.brand_string hw.memsize; python -m pip freeze
} >"$OUT/machine.txt"
memory=$(($(sysctl -n hw.memsize) / 1024 / 1024 / 1024))

# The tests that CI runs with the CPU build on Linux, here on Metal and compiled.
part parity python -m pytest tests/backends/test_parity.py tests/backends/test_engine.py \
    tests/backends/test_policy.py tests/backends/test_gradient.py tests/backends/mlx \
    --deselect tests/backends/mlx/test_runs.py -rA
part formats python -m pytest tests/backends/test_convert.py -rA
part runs python -m pytest tests/backends/mlx/test_runs.py -rA

# Does a run work at all? Do the embedded models learn as they do on the other backend, and how long
# does a step take?
part smoke python train.py backend=mlx experiment=smoke output_dir="$OUT/smoke"
part quick python train.py backend=mlx experiment=quick output_dir="$OUT/quick"
part tiny python train.py backend=mlx output_dir="$OUT/tiny"
part tiny_on_mps python train.py backend.accelerator=mps trainer.steps=10 output_dir="$OUT/mps"
part install python -m pip install --no-deps --target "$OUT/mlx-lm-lora" mlx-lm-lora==5.10.2
part benchmark env PYTHONPATH="$OUT/mlx-lm-lora" \
    python benchmarks/mlx.py --json "$OUT/benchmark.json"

# Does Gemma 3 4B load, play, learn and stay within the memory that its config names?
gemma() {  # form, numbers of generations...
    local form="$1" model="mlx-community/gemma-3-4b-it-$1" run n; shift
    for n in "$@"; do
        part "gemma_${form}_$n" python train.py model=gemma4b-mlx model.path="$model" \
            num_generations=$n trainer.steps=3 trainer.report=false trainer.validate_every=3 \
            words=custom words.answers=wordle_rl/words/original/answers.txt \
            words.val=4 words.test=4 output_dir="$OUT/gemma_${form}_$n"
    done
    run="$(newest "gemma_${form}_2")"
    part "resume_$form" python train.py resume="$run" trainer.steps=4
    part "eval_$form" python eval.py run="$run" limit=4 compare=false output_dir="$OUT/eval"
    part "generate_$form" python -m mlx_lm generate --model "$model" \
        --adapter-path "${run}model" --prompt "Name a five-letter word." --max-tokens 32
    part "mlx_$form" python -m wordle_rl export "$run" --format mlx --output "$OUT/mlx_$form"
    part "peft_$form" python -m wordle_rl export "${run}model" --format peft \
        --output "$OUT/peft_$form" --base google/gemma-3-4b-it
}
if [ "$memory" -ge 48 ]; then gemma 4bit 2 4 8; gemma bf16 2 4 8
elif [ "$memory" -ge 24 ]; then gemma 4bit 2 4 8; gemma bf16 2 4
else gemma 4bit 2 4; fi
grep -h "memory of MLX" "$OUT"/*.log

if [ ${#failed[@]} -gt 0 ]; then echo "failed: ${failed[*]}; see $OUT"; exit 1; fi
echo "all parts passed; report in $OUT"
