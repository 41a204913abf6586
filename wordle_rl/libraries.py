"""Libraries that only some choices need: what to do when one of them is not installed."""

from __future__ import annotations

_ALL = "pip install -c constraints.txt -e ."
_TORCH = "backend=lightning", _ALL, "choose backend=mlx"
_WITHOUT: dict[str, tuple[str, str, str]] = {  # what needs it, how to install it, how to do without
    **dict.fromkeys(("torch", "lightning", "transformers", "tokenizers", "safetensors"), _TORCH),
    "peft": ("a model with LoRA", _ALL, "choose a model without it, such as model=tiny"),
    "tensorboard": ("logger=tensorboard", _ALL, "choose logger=csv or logger=none"),
    "wandb": ("logger=wandb", "pip install wandb", "choose logger=tensorboard"),
    "matplotlib": ("a picture", _ALL, "read the numbers in metrics.jsonl and results.csv"),
    "optuna": ("a study (-m sweep=...)", _ALL, "start single runs without -m"),
    **dict.fromkeys(
        ("psycopg", "psycopg2"),
        ("storage=postgresql://...", "pip install -e '.[postgres]'", "leave storage alone"),
    ),
    "mlx": ("backend=mlx", f"{_ALL[:-1]}'.[mlx]'", "choose backend=lightning"),
    "mlx_lm": ("backend=mlx", f"{_ALL[:-1]}'.[mlx]'", "choose backend=lightning"),
}


def missing(error: ImportError) -> str | None:
    """What to do about an import that failed, in one line; None when no such library is missing."""
    return advice((error.name or "").partition(".")[0])


def advice(library: str) -> str | None:
    """The same for a library that is not there."""
    if library not in _WITHOUT:
        return None
    what, install, instead = _WITHOUT[library]
    return f"{what} needs {library}, which is not installed: {install}, or {instead}"
