"""A laboratory for reinforcement learning of language models on Wordle.

The names below are for programs that bring their own loop; docs/API.md shows each of them at work.
They are loaded when they are first used, so importing this package is quick and imports no library.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wordle_rl.adapters.api import (
        board,
        build_knowledge,
        build_prompt,
        build_rewards,
        score_guess,
    )
    from wordle_rl.adapters.credit import token_advantages
    from wordle_rl.commands.eval_players import load_player
    from wordle_rl.game.rules import Game, Rules, State, marks
    from wordle_rl.prompts.parser import parse
    from wordle_rl.words.lists import load_words
    from wordle_rl.words.splits import split_secrets

__version__ = "0.1.0"

__all__ = [
    "Game",
    "Rules",
    "State",
    "board",
    "build_knowledge",
    "build_prompt",
    "build_rewards",
    "load_player",
    "load_words",
    "marks",
    "parse",
    "score_guess",
    "split_secrets",
    "token_advantages",
]

_HOMES = {  # module -> names that it defines
    "adapters.api": ("board", "build_knowledge", "build_prompt", "build_rewards", "score_guess"),
    "adapters.credit": ("token_advantages",),
    "game.rules": ("Game", "Rules", "State", "marks"),
    "commands.eval_players": ("load_player",),
    "prompts.parser": ("parse",),
    "words.lists": ("load_words",),
    "words.splits": ("split_secrets",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a name of __all__ at its first use (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
