# wordle-rl in a container; without a command it trains the demo.
#
#     docker build -t wordle-rl .
#     docker run --rm -v wordle-rl-outputs:/wordle-rl/outputs wordle-rl
#     docker run --rm wordle-rl eval.py model=mini limit=50
#
# With an NVIDIA GPU:
#
#     docker build -t wordle-rl:cuda --build-arg BASE=nvidia/cuda:12.8.1-base-ubuntu24.04 \
#         --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
#     docker run --rm --gpus all wordle-rl:cuda train.py model=qwen1.5b
#
# BASE needs apt and a Python of 3.11 to 3.13, which Ubuntu 24.04 and Debian 12 have.

ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}
# Wheels of torch for this hardware: the CPU's are 200 MB, those for CUDA several GB.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# The version of Python and of its parts is the base image's.
# hadolint ignore=DL3008
RUN if ! python3 -c 'import ensurepip, venv' 2> /dev/null; then \
        apt-get update \
        && apt-get install -y --no-install-recommends python3 python3-venv \
        && rm -rf /var/lib/apt/lists/*; \
    fi \
    && useradd --uid 10001 --create-home player \
    && install -d -o player /wordle-rl
USER 10001
WORKDIR /wordle-rl
ENV PATH=/wordle-rl/.venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# What is installed changes less often than the code.
COPY --chown=10001 pyproject.toml constraints.txt README.md LICENSE ./
RUN python3 -m venv .venv \
    && pip install -c constraints.txt --index-url "${TORCH_INDEX}" "$(grep '^torch==' constraints.txt)"
COPY --chown=10001 . .
RUN pip install -c constraints.txt -e . && mkdir -p outputs
VOLUME /wordle-rl/outputs
ENTRYPOINT ["python"]
CMD ["train.py"]
