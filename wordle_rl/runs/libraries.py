"""Optional libraries, and what to do when one of them is not installed."""

from __future__ import annotations

_ALL = "pip install -c constraints.txt -e ."
_MLX = f"{_ALL[:-1]}'.[mlx]'"
_DATA = f"{_ALL[:-1]}'.[data]'"
_TORCH = "backend=lightning", _ALL, "choose backend=mlx"
_MODEL = "a model", _ALL, "evaluate a scripted player (python eval.py player=...)"
_POSTGRES = "storage=postgresql://...", "pip install -e '.[postgres]'", "leave storage alone"
_WITHOUT: dict[str, tuple[str, str, str]] = {  # who needs it, how to install it, the alternative
    "torch": _TORCH,
    "lightning": _TORCH,
    "transformers": _MODEL,
    "tokenizers": _MODEL,
    "safetensors": _MODEL,
    "peft": ("a model with LoRA", _ALL, "choose one without it, such as model=tiny"),
    "mlx": ("backend=mlx", _MLX, "choose backend=lightning"),
    "mlx_lm": ("backend=mlx", _MLX, "choose backend=lightning"),
    "bitsandbytes": (
        "model.quantize=4bit",
        "pip install -c constraints.txt -e '.[quantize]'",
        "leave it at null",
    ),
    "gguf": (
        "make smollm2",
        f"{_ALL[:-1]}'.[gguf]'",
        "name a folder with the model (model.path=/path/to/it)",
    ),
    "tensorboard": ("logger=tensorboard", _ALL, "choose logger=none"),
    "wandb": ("logger=wandb", "pip install wandb", "choose logger=tensorboard"),
    "matplotlib": ("a picture", _ALL, "read the numbers in metrics.jsonl and results.csv"),
    "optuna": ("a study (-m sweep=...)", _ALL, "start single runs without -m"),
    "datasets": ("data=<file>", _DATA, "leave data= out"),
    "pyarrow": ("a Parquet file", _DATA, "choose --format jsonl"),
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
