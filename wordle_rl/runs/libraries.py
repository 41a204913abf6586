"""Optional libraries, and what to do when one of them is not installed."""

from __future__ import annotations

from wordle_rl.runs.paths import EVAL, INSTALLED

_PIP = "pip install" if INSTALLED else "pip install -c constraints.txt -e"
_HERE = "wordle-rl" if INSTALLED else "."
SMOLLM2 = "wordle-rl smollm2" if INSTALLED else "make smollm2"  # fetches that model
_ALL = f"{_PIP} {_HERE}"
MLX = f"{_PIP} '{_HERE}[mlx]'"
_DATA = f"{_PIP} '{_HERE}[data]'"
_TORCH = "backend=lightning", _ALL, "choose backend=mlx"
_MODEL = "a model", _ALL, f"evaluate a scripted player ({EVAL} player=...)"
_PAGE = "the page", f"{_PIP} '{_HERE}[web]'", f"look at games with {EVAL} show=4"
_POSTGRES = "storage=postgresql://...", f"{_PIP} '{_HERE}[postgres]'", "leave storage alone"
_WITHOUT: dict[str, tuple[str, str, str]] = {  # who needs it, how to install it, the alternative
    "torch": _TORCH,
    "lightning": _TORCH,
    "transformers": _MODEL,
    "tokenizers": _MODEL,
    "safetensors": _MODEL,
    "peft": ("a model with LoRA", _ALL, "choose one without it, such as model=tiny"),
    "mlx": ("backend=mlx", MLX, "choose backend=lightning"),
    "mlx_lm": ("backend=mlx", MLX, "choose backend=lightning"),
    "bitsandbytes": (
        "model.quantize=4bit",
        f"{_PIP} '{_HERE}[quantize]'",
        "leave it at null",
    ),
    "gguf": (
        SMOLLM2,
        f"{_PIP} '{_HERE}[gguf]'",
        "name a folder with the model (model.path=/path/to/it)",
    ),
    "tensorboard": ("logger=tensorboard", _ALL, "choose logger=none"),
    "wandb": ("logger=wandb", "pip install wandb", "choose logger=tensorboard"),
    "httpx2": ("rollout.engine=vllm", _ALL, "leave it at own"),
    "matplotlib": ("a picture", _ALL, "read the numbers in metrics.jsonl and results.csv"),
    "jinja2": ("a report", _ALL, "read the numbers in metrics.jsonl and summary.json"),
    "optuna": ("a study (-m sweep=...)", _ALL, "start single runs without -m"),
    "datasets": ("data=<file>", _DATA, "leave data= out"),
    "pyarrow": ("a Parquet file", _DATA, "choose --format jsonl"),
    "starlette": _PAGE,
    "uvicorn": _PAGE,
    "psycopg": _POSTGRES,
    "psycopg2": _POSTGRES,
}


def missing(error: ImportError) -> str | None:
    """One line of advice for a failed import; None when no optional library is missing."""
    cause: BaseException | None = error
    while cause is not None:  # transformers raises an error of its own
        library = (getattr(cause, "name", None) or "").partition(".")[0]
        if isinstance(cause, ImportError) and library in _WITHOUT:
            return advice(library)
        cause = cause.__cause__ or cause.__context__
    return None


def advice(library: str) -> str:
    """One line of advice for a missing library, by its name."""
    what, install, instead = _WITHOUT[library]
    return f"{what} needs {library}, which is not installed: {install}, or {instead}"
