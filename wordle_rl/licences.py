"""The licences of the models that conf/model/ names. A model made from one of them inherits it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Licence:
    """A licence as the Hugging Face hub names it, and in words."""

    identifier: str
    words: str


_APACHE = Licence("apache-2.0", "Apache 2.0")
_GEMMA = Licence(
    "gemma",
    "Gemma Terms of Use (ai.google.dev/gemma/terms). They restrict what the model may be used for, "
    "and they bind everyone who gets a model made from it",
)
OURS = Licence("mit", "MIT, as this project")  # of the embedded models
LICENCES = {
    "Qwen/Qwen2.5-0.5B-Instruct": _APACHE,
    "Qwen/Qwen2.5-1.5B-Instruct": _APACHE,
    "Qwen/Qwen2.5-3B-Instruct": Licence("other", "Qwen Research licence, for research only"),
    "Qwen/Qwen3-1.7B": _APACHE,
    "embedded/smollm2_sft": _APACHE,
    "fetched/smollm2": _APACHE,
    "google/gemma-3-1b-it": _GEMMA,
    "google/gemma-3-4b-it": _GEMMA,
    "mlx-community/gemma-3-4b-it-bf16": _GEMMA,
    "openai-community/gpt2": Licence("mit", "MIT licence"),
}


def find_licence(base: str) -> Licence | None:
    """The licence of a base, None if it is not known."""
    return LICENCES.get(base, OURS if base.startswith("embedded/") else None)
