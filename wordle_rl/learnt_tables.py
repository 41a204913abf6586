"""The tables of docs/LEARNT.md in Markdown, from the numbers of wordle_rl.evaluation.learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wordle_rl.evaluation.game_table import GameTable
from wordle_rl.evaluation.learnt import SOLVER, START, TEACHER, TRAINED

_PLAYERS = (START, TRAINED, TEACHER)

Numbers = Mapping[str, Any]  # from wordle_rl.evaluation.learnt.measure


def write_tables(numbers: Numbers) -> str:
    """All tables, each below its title."""
    runs = f"{numbers['runs']} runs" if numbers["runs"] > 1 else "1 run"
    begin = (
        f"{numbers['secrets']} secrets, {runs}, {numbers['samples']} drawn games of each player "
        f"and run on each secret. Drawn at temperature {numbers['temperature']} unless a table "
        "says otherwise. Trained: the mean over runs. Intervals: 95 % over secrets."
    )
    parts = [begin, "## Results", _results(numbers)]
    for temperature, by_guesses in numbers["passes"].items():
        for within, passes in by_guesses.items():
            title = f"## pass@k at temperature {temperature}, in at most {within} guesses"
            parts += [title, _passes(passes), _never_won(passes)]
    parts += ["## Secrets by the start's first half of games", _gains(numbers["gains"])]
    parts += ["## By turn", _turns(numbers["turns"])]
    parts += ["## Kinds of words", _words(numbers["words"])]
    parts += ["## Openers", _openers(numbers["openers"])]
    parts += ["## Losses", *_losses(numbers["losses"])]
    return "\n\n".join(parts)


def _results(numbers: Numbers) -> str:
    rows = []
    for name, results in numbers["results"].items():
        for number, of in enumerate(results):
            label = f"{name} {number}" if len(results) > 1 else name
            games = "drawn" if name == TEACHER else "greedy"
            mean = f"{of['mean_guesses_with_losses']:.2f}"
            rows.append([label, f"{of['games']:,} {games}", _interval(of, "win_rate"), mean])
    return _table(["player", "games", "wins", "mean guesses"], rows)


def _passes(passes: Mapping[str, Any]) -> str:
    rows = []
    for k in passes[START]:
        gain = passes["difference"][k]
        ends = f"{100 * gain['low']:+.1f} to {100 * gain['high']:+.1f}"
        shares = [_interval(passes[name][k], "pass") for name in _PLAYERS]
        rows.append([k, *shares, f"{100 * gain['difference']:+.1f} ({ends})"])
    return _table(["k", *_PLAYERS, "trained minus start"], rows)


def _never_won(passes: Mapping[str, Any]) -> str:
    of = passes["never won"]
    trained, alone, lost = (
        ", ".join(map(str, of[key])) for key in (TRAINED, "by the start alone", "by the run alone")
    )
    return (
        f"Secrets never won: start {of[START]}, runs {trained}. Of the start's, the runs won "
        f"{alone}. The runs never won {lost} that the start won."
    )


def _gains(groups: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [of["wins"], str(of["secrets"]), _share(of["before"]), _share(of["after"])] for of in groups
    ]
    return _table(["start won", "secrets", "start, its other games", "trained"], rows)


def _turns(turns: Mapping[str, Any]) -> str:
    rows = []
    for name in (*_PLAYERS, SOLVER):
        for turn, of in turns[name].items():
            shares = [_share(of.get(key)) for key in ("bits_ratio", "consistency")]
            rows.append([name, turn, *shares, f"{of['left']:.1f}", _share(of["won"])])
    head = ["player", "turn", "bits, of the most", "fit all clues", "answers left", "won by then"]
    return _table(head, rows)


def _words(words: Mapping[str, Any]) -> str:
    rows = []
    for name, kinds in words.items():
        for kind, choice in kinds.items():
            if choice is not None:
                cells = [
                    f"{_share(choice['made'][key])} ({_share(choice['fitting'][key])})"
                    for key in ("plurals", "repeats", "answers")
                ]
                rows.append([name, kind, f"{choice['guesses']:,}", *cells])
    head = ["player", "guesses", "number", "plurals (of fitting words)"]
    return _table([*head, "a letter twice (of fitting)", "answers (of fitting)"], rows)


def _openers(openers: Mapping[str, Any]) -> str:
    rows = []
    for how in ("greedy", "drawn"):
        for name, players in openers[how].items():
            for number, of in enumerate(players):
                if not of:
                    continue
                label = f"{name} {number}" if len(players) > 1 else name
                cells = [f"{of['word']} {_share(of['share'])}", f"{of['bits']:.2f}", of["rank"]]
                mean = [f"{of['mean_bits']:.2f}", f"{of['different']:,}"]
                rows.append([label, how, *cells, *mean])
    head = ["player", "games", "most common opener", "its bits", "its rank"]
    best = f"The best opener has {openers['best_bits']:.2f} bits, of {openers['allowed_words']:,}."
    return _table([*head, "mean bits", "different openers"], rows) + f"\n\n{best}"


def _losses(losses: Mapping[str, Any]) -> list[str]:
    counts = ", ".join(str(len(secrets)) for secrets in losses["greedy"])
    chance = losses["by all, expected by chance"]
    lost = (
        f"Greedy games lost by each run: {counts}. Lost by all: {len(losses['by all'])}, and "
        f"{chance:.2f} if losses were independent of the secret."
    )
    rates = [_rates(losses[kind], what) for kind, what in _TRAITS.items()]
    ends = [_endings(losses["endings"]), _finishing(losses["finishing"])]
    return [lost, _secrets(losses["secrets"]), *rates, *ends]


_TRAITS = {"by family": "largest family", "by letters": "letters of the secret"}


def _secrets(secrets: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            of["secret"].upper(),
            f"{of['pattern'].upper()}, {of['members']} ({of['answers']})",
            *(_share(of["wins"][name]) for name in _PLAYERS),
            "lost" if of["solver"] is None else str(of["solver"]),
        ]
        for of in secrets
    ]
    head = ["secret", "largest family, words (answers)", *(f"{name} wins" for name in _PLAYERS)]
    return _table([*head, f"guesses of {SOLVER}"], rows)


def _rates(rates: Mapping[str, Any], what: str) -> str:
    rows = [
        [label, str(of["secrets"]), *(_interval(rates[name][label], "lost") for name in _PLAYERS)]
        for label, of in rates[START].items()
    ]
    return _table([what, "secrets", *(f"{name}, games lost" for name in _PLAYERS)], rows)


def _endings(endings: Mapping[str, Any]) -> str:
    keys = ("known", "one missing", "ignored", "wasted")
    rows = [
        [name, f"{of['lost']:,}", *(_share(of[key]) for key in keys), f"{of['left']:.0f}"]
        for name, of in endings.items()
        if of["lost"]
    ]
    head = [
        "player",
        "games lost",
        "one fitting word left",
        "four letters in place",
        "ignored a clue",
        "wasted a turn",
    ]
    return _table([*head, "fitting words before the last guess, median"], rows)


def _finishing(finishing: Mapping[str, Any]) -> str:
    rows = [[name, f"{of['turns']:,}", _share(of["named"])] for name, of in finishing.items()]
    return _table(["player", "turns with one fitting word left", "it was guessed"], rows)


def _interval(of: Mapping[str, float], key: str) -> str:
    prefix = "" if key in ("pass", "lost") else f"{key}_"
    low, high = 100 * of[f"{prefix}low"], 100 * of[f"{prefix}high"]
    return f"{100 * of[key]:.1f} % ({low:.1f} to {high:.1f})"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return GameTable(columns=list(head), rows=[list(row) for row in rows]).markdown
