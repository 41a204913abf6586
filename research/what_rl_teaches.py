"""What training taught, in tables; docs/FINDINGS.md shows some, make_pictures.py draws two.

    python research/what_rl_teaches.py outputs/<seed 0> outputs/<seed 1> outputs/<seed 2>

Plays the test secrets with the model that all runs began with, with the best checkpoint of each
run, and with two scripted players. Each turn is a row of one table, turns.csv.gz, and all that is
printed is computed from it. Shares are in per cent. Intervals are 95 % over secrets, so they do not
say what another seed of training would do.

It costs 1 ms for each guess that is judged: those of the first JUDGED games on a secret.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wordle_rl import Game, load_player
from wordle_rl.evaluation.habits import is_plural
from wordle_rl.evaluation.intervals import Z95, standard_error, win_interval
from wordle_rl.evaluation.results import pass_at_k
from wordle_rl.game.knowledge import Knowledge

START, TRAINED, TEACHER, SOLVER = "start", "trained", "random fitting word", "greedy entropy"
WITHIN = (6, 4, 3)  # wins with so many guesses or fewer are counted
JUDGED = 4  # games of a player on each secret whose every guess is judged
SIZES = {2: "1-2", 4: "3-4", 6: "5-6", 10**6: "7 or more"}  # largest size -> label, of a family
TRAITS = ("plural", "repeated", "answer")  # of a word
GAME = ["player", "run", "how", "secret", "game"]


def words_and_traits(knowledge: Knowledge) -> np.ndarray:
    """TRAITS of each allowed word, 0 or 1, [allowed, 3]."""
    words, answers = knowledge.words.allowed, knowledge.words.answer_index
    return np.array([(is_plural(w), len(set(w)) < len(w), w in answers) for w in words], float)


def families(words: Sequence[str]) -> dict[str, list[str]]:
    """Pattern, such as _aste -> the words that have these four letters in place."""
    groups: dict[str, list[str]] = {}
    for word in words:
        for pattern in patterns(word):
            groups.setdefault(pattern, []).append(word)
    return groups


def patterns(word: str) -> list[str]:
    return [f"{word[:place]}_{word[place + 1 :]}" for place in range(len(word))]


def rows(games: Sequence[Game], knowledge: Knowledge, **player: Any) -> Iterator[dict[str, Any]]:
    """One row per turn; NaN or None where a value was not computed or does not exist."""
    traits, index = words_and_traits(knowledge), knowledge.words.guess_index
    numbers: dict[str, int] = {}
    for game in games:
        number = numbers[game.secret] = numbers.get(game.secret, -1) + 1
        states = [*(turn.state for turn in game.turns[1:]), game.state]
        for turn, next_state in zip(game.turns, states, strict=True):
            guess, state, accepted = turn.guess, turn.state, turn.kind == "accepted"
            row = {
                **player, "secret": game.secret, "game": number, "won": game.won,
                "length": game.state.turn, "turn": state.turn + 1, "guess": guess,
                "accepted": accepted, "legal": guess in index, "opens": not state.clues,
                "left": int(knowledge.candidates(next_state).sum()),
            }  # fmt: skip
            if accepted and state.clues:
                row["fits"] = knowledge.is_consistent(guess, state)
            judged, last = number < JUDGED, turn is game.turns[-1] and not game.won
            if judged or last:
                mask = knowledge.consistent_allowed(state)
                row["fitting"] = int(mask.sum())  # allowed words that fit before the guess
                places = {i for c in state.clues for i, mark in enumerate(c.marks) if mark == "✓"}
                row["one_missing"] = len(places) == 4
                if judged and row["fitting"] == 1:
                    row["named"] = guess == knowledge.words.allowed[int(mask.argmax())]
            if judged and accepted:
                row["bits"] = knowledge.entropy(guess, knowledge.candidates(state))
                row["best"] = knowledge.best_entropy(state)
            if judged and row["legal"]:
                row |= dict(zip(TRAITS, traits[index[guess]], strict=True))
                if mask.any():
                    chance = traits[mask].mean(axis=0)
                    row |= {f"fitting {name}": x for name, x in zip(TRAITS, chance, strict=True)}
            yield row


def play_all(folders: Sequence[Path], args: argparse.Namespace) -> tuple[pd.DataFrame, Knowledge]:
    """Everybody's turns. A player's `how` is greedy or its temperature."""
    options = [f"seed={args.seed}", *([f"limit={args.limit}"] if args.limit else [])]
    frames = []

    def add(name: str, number: int, how: str, settings: Sequence[str], **kind: str) -> Knowledge:
        player = load_player(**kind, settings=[*options, *settings])
        samples = 1 if how == "greedy" else args.samples
        secrets = [s for s in player.secrets for _ in range(samples)]
        print(f"{name} {number}, {how}: {len(secrets)} games", flush=True)
        games = player.play(secrets)
        facts = rows(games, player.knowledge, player=name, run=number, how=how)
        frames.append(pd.DataFrame(facts))
        return player.knowledge

    models = [(START, 0, folders[0], "start")]
    models += [(TRAINED, run, folder, "best") for run, folder in enumerate(folders)]
    for name, run, folder, checkpoint in models:
        source = {"run": str(folder)}
        add(name, run, "greedy", [f"checkpoint={checkpoint}"], **source)
        for heat in args.temperatures:
            temperature = [f"sampling.temperature={heat}"]
            add(name, run, f"{heat:g}", [f"checkpoint={checkpoint}", *temperature], **source)
    first = f"{args.temperatures[0]:g}"
    add(TEACHER, 0, first, [], player="random_consistent_allowed")
    knowledge = add(SOLVER, 0, "greedy", [], player="entropy_allowed")
    return pd.concat(frames, ignore_index=True), knowledge


def percent(share: float, interval: tuple[float, float] | None = None) -> str:
    ends = f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})" if interval else ""
    return "-" if pd.isna(share) else f"{100 * share:.1f} %{ends}"


def show(title: str, table: pd.DataFrame) -> None:
    """Print a table in Markdown. Its index becomes the first columns."""
    table = table.reset_index().fillna("-")
    lines = [table.columns, ["---"] * table.shape[1], *table.astype(str).to_numpy()]
    print(f"\n## {title}\n\n" + "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines))


def results(games: pd.DataFrame) -> pd.DataFrame:
    lost_as = 1 + games[~games.won].length.max() if (~games.won).any() else 0
    guesses = games.length.where(games.won, lost_as)
    groups = games.assign(guesses=guesses).groupby(["player", "how", "run"], sort=False)
    wins = groups.apply(lambda g: percent(g.won.mean(), win_interval(list(g.won), list(g.secret))))
    return pd.DataFrame(
        {"games": groups.size(), "wins": wins, "mean guesses": groups.guesses.mean()}
    ).round(2)


def chances(games: pd.DataFrame, how: str, within: int) -> dict[int, pd.DataFrame]:
    """k -> pass@k of each player and run (columns) on each secret (rows)."""
    subset = games[(games.how == how) | (games.player == TEACHER)]
    wins = (subset.won & (subset.length <= within)).groupby(
        [subset.secret, subset.player, subset.run]
    )
    table, number = wins.sum().unstack(["player", "run"]), int(wins.size().iloc[0])
    ks = [*(2**i for i in range(number.bit_length()) if 2**i < number), number]
    return {k: table.map(lambda count, k=k: pass_at_k(int(count), number, k)) for k in ks}


def passes(tables: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    lines = {}
    for k, table in tables.items():
        players = table.T.groupby(level="player").mean().T  # over runs
        games = max(tables) * table.columns.get_level_values("player").value_counts()
        line = {
            name: percent(
                players[name].mean(),
                win_interval(list(players[name]), list(table.index), len(table) * games[name]),
            )
            for name in (START, TRAINED, TEACHER)
        }
        gain = players[TRAINED] - players[START]
        half = Z95 * (standard_error(list(gain), list(gain.index)) or 0.0)
        ends = f"{100 * (gain.mean() - half):+.1f} to {100 * (gain.mean() + half):+.1f}"
        lines[k] = {**line, "trained minus start": f"{100 * gain.mean():+.1f} ({ends})"}
    return pd.DataFrame(lines).T.rename_axis("k")


def never_won(table: pd.DataFrame) -> pd.DataFrame:
    """table: pass@k for all games of a secret."""
    missed = table[START][0] == 0
    columns = {
        f"{name} {run}": [int((column == 0).sum()), int(((column > 0) & missed).sum()),
                          int(((column == 0) & ~missed).sum())]
        for (name, run), column in table.items() if name != TEACHER
    }  # fmt: skip
    names = ["never won", "of the start's, it won", "never won, but the start did"]
    return pd.DataFrame(columns, index=names).T.rename_axis("player")


def gains(start: pd.DataFrame, trained: pd.DataFrame) -> pd.DataFrame:
    """Half of the start's games sort the secrets, and its other half is compared.

    So bad luck in the first half does not look like learning.
    """
    half = (start.game.max() + 1) // 2
    first = start[start.game < half].groupby("secret").won.sum()
    other = start[start.game >= half].groupby("secret").won.mean()
    after = trained.groupby(["secret", "run"]).won.mean().groupby("secret").mean()
    ends = sorted({int(share * half) for share in (0, 0.25, 0.5, 0.75)} | {half - 1, half})
    edges = [-1, *ends]
    labels = [str(b) if b == a + 1 else f"{a + 1}-{b}" for a, b in itertools.pairwise(edges)]
    group = pd.cut(first, edges, labels=labels).rename(f"start won, of {half}")
    groups = pd.DataFrame({"other": other, "after": after}).groupby(group, observed=True)
    return pd.DataFrame({
        "secrets": groups.size(), "start, its other games": groups.other.mean().map(percent),
        "trained": groups.after.mean().map(percent),
    })  # fmt: skip


def by_turn(turns: pd.DataFrame) -> pd.DataFrame:
    """Skill of judged games; answers left and wins of all games, finished ones included."""
    groups = turns[turns.game < JUDGED].groupby(["player", "turn"])
    candidates = turns.pivot_table(index=GAME, columns="turn", values="left", aggfunc="last")
    candidates = candidates.ffill(axis=1).groupby("player").mean().stack()
    games = turns.groupby(GAME).first()
    wins = {
        t: (games.won & (games.length <= t)).groupby("player").mean() for t in turns.turn.unique()
    }
    return pd.DataFrame({
        "bits": groups.bits.sum(min_count=1) / groups.best.sum(),
        "fit all clues": groups.fits.mean(),
        "left": candidates,
        "won by then": pd.DataFrame(wins).rename_axis(columns="turn").stack(),
    }).loc[list(dict.fromkeys(turns.player))]  # fmt: skip


def words(turns: pd.DataFrame) -> pd.DataFrame:
    """Kinds of words among legal guesses, and among the words that fitted."""
    guesses = turns[turns.legal & (turns.game < JUDGED)]
    groups = guesses.groupby(
        ["player", guesses.opens.map({True: "openers", False: "later"})], sort=False
    )
    table = pd.DataFrame({"guesses": groups.size()})
    for name in TRAITS:
        share, chance = groups[name].mean(), groups[f"fitting {name}"].mean()
        table[f"{name} (of fitting)"] = share.map(percent) + chance.map(" ({:.1%})".format)
    return table


def openers(turns: pd.DataFrame, knowledge: Knowledge) -> pd.DataFrame:
    guesses = turns[turns.legal & turns.opens & (turns.player != SOLVER)].copy()
    index = guesses.guess.map(knowledge.words.guess_index)
    guesses["opener_bits"] = knowledge.opener_bits[index]
    guesses["rank"] = knowledge.opener_ranks[index]
    lines = {}
    for key, group in guesses.groupby(["player", "how", "run"], sort=False):
        word, count = next(iter(group.guess.value_counts(sort=True).items()))
        one = group[group.guess == word].iloc[0]
        lines[key] = {
            "most common": f"{word} {percent(count / len(group))}", "its bits": one.opener_bits,
            "its rank": int(one["rank"]), "mean bits": group.opener_bits.mean(),
            "different": group.guess.nunique(),
        }  # fmt: skip
    table = pd.DataFrame(lines).T.rename_axis(["player", "how", "run"])
    return table.map(lambda cell: f"{cell:.2f}" if isinstance(cell, float) else cell)


def hard_secrets(games: pd.DataFrame, drawn: pd.DataFrame, knowledge: Knowledge) -> pd.DataFrame:
    """The secrets that all greedy runs lose, and how often each player wins them."""
    greedy = games[(games.player == TRAINED) & (games.how == "greedy")]
    lost = (~greedy.won).groupby(greedy.secret).all()
    rates = (~greedy.won).groupby(greedy.run).mean()
    losses = ", ".join(str(round(rate * len(lost))) for rate in rates)
    print(
        f"\nGreedy games lost by each run: {losses}. By all: {lost.sum()}, and "
        f"{rates.prod() * len(lost):.2f} if it did not depend on the secret."
    )
    groups, answers = families(knowledge.words.allowed), knowledge.words.answer_index
    wins = drawn.groupby(["secret", "player"]).won.mean().unstack()
    solver = games[games.player == SOLVER].set_index("secret")
    lines = {}
    for secret in lost.index[lost]:
        pattern = max(patterns(secret), key=lambda one: len(groups[one]))
        count = f"{len(groups[pattern])} ({sum(word in answers for word in groups[pattern])})"
        shares = {f"{name} wins": percent(wins[name][secret]) for name in (START, TRAINED, TEACHER)}
        result = str(solver.length[secret]) if solver.won[secret] else "lost"
        lines[secret.upper()] = {"like it": f"{pattern.upper()}, {count}", **shares, SOLVER: result}
    return pd.DataFrame(lines).T.rename_axis("secret")


def traits_of(secrets: Sequence[str], knowledge: Knowledge) -> dict[str, dict[str, str]]:
    """Kind of trait -> secret -> its trait: the size of its largest family, and its letters."""
    groups = families(knowledge.words.allowed)
    sizes = {
        secret: max(len(groups[pattern]) for pattern in patterns(secret)) for secret in secrets
    }
    return {
        "largest family": {
            secret: next(label for limit, label in SIZES.items() if size <= limit)
            for secret, size in sizes.items()
        },
        "letters": {s: "one twice" if len(set(s)) < len(s) else "all different" for s in secrets},
    }


def loss_rates(drawn: pd.DataFrame, trait: Mapping[str, str]) -> pd.DataFrame:
    """Columns secrets, and for each player lost, low and high in 0..1."""
    groups = drawn.assign(lost=(~drawn.won).astype(float)).groupby(
        [drawn.secret.map(trait), "player"]
    )
    rates = groups.apply(
        lambda g: pd.Series([g.lost.mean(), *win_interval(list(g.lost), list(g.secret))])
    )
    rates.columns = ["lost", "low", "high"]
    return rates.assign(secrets=groups.secret.nunique()).rename_axis(["trait", "player"])


def endings(turns: pd.DataFrame) -> pd.DataFrame:
    """How lost games ended, as shares of them."""
    games = turns[~turns.won & (turns.player != SOLVER)].groupby(GAME, sort=False)
    table = games[["fitting", "one_missing"]].last()
    table["known"] = table.fitting == 1
    table["ignored"] = (games.fits.min() == 0).astype(float)
    table["wasted"] = 1.0 - games.accepted.min()
    groups = table.astype(float).groupby(["player", "how"])
    shares = groups[["known", "one_missing", "ignored", "wasted"]].mean().map(percent)
    shares.columns = [
        "one fitting word left",
        "four letters in place",
        "ignored a clue",
        "wasted a turn",
    ]
    return shares.assign(lost=groups.size(), fitting=groups.fitting.median())


def check_same_start(folders: Sequence[Path]) -> None:
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in folders]
    for key in ("model", "revision", "init_from", "digests", "prompt", "form"):
        if any(manifest.get(key) != manifests[0].get(key) for manifest in manifests):
            raise SystemExit(f"error: the runs must have the same {key}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run folders with one start")
    parser.add_argument("--output", type=Path, help="default learnt in the first run's folder")
    parser.add_argument(
        "--samples", type=int, default=16, help="drawn games on each secret, 2 or more"
    )
    parser.add_argument(
        "--temperatures", type=float, nargs="+", default=(0.7, 1.0),
        help="of the drawn guesses; all tables but pass@k show the first",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, help="most secrets to play (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of all draws")
    args = parser.parse_args()
    check_same_start(args.runs)
    turns, knowledge = play_all(args.runs, args)
    out = args.output or args.runs[0] / "learnt"
    out.mkdir(parents=True, exist_ok=True)
    turns.to_csv(out / "turns.csv.gz", index=False)
    describe(turns, knowledge)
    print(f"\n{out}")


def describe(turns: pd.DataFrame, knowledge: Knowledge) -> None:
    """Print all tables."""
    first = next(how for how in turns.how.unique() if how != "greedy")
    drawn_turns = turns[turns.how == first]
    games = turns.groupby(GAME, sort=False)[["won", "length"]].first().reset_index()
    drawn = games[games.how == first]
    show("Results", results(games))
    heats = [how for how in games.how.unique() if how != "greedy"]
    curves = {(how, within): chances(games, how, within) for how in heats for within in WITHIN}
    for (how, within), tables in curves.items():
        title = f"pass@k at temperature {how}, in at most {within} guesses"
        show(title, passes(tables))
        show("Secrets never won, " + title, never_won(tables[max(tables)]))
    start, trained = (drawn[drawn.player == name] for name in (START, TRAINED))
    show("Secrets by the start's first half of games", gains(start, trained))
    skill = by_turn(turns[(turns.how == first) | (turns.player == SOLVER)])
    shares = skill.drop(columns="left").map(percent)
    show("By turn, drawn guesses", shares.assign(left=skill.left.map("{:.1f}".format)))
    one_left = drawn_turns.dropna(subset="named").groupby("player").named
    show("Turns with one fitting word left", pd.DataFrame({
        "turns": one_left.size(), "it was guessed": one_left.mean().map(percent)}))  # fmt: skip
    show("Kinds of words", words(drawn_turns))
    show("Openers", openers(turns, knowledge))
    show("Secrets that all greedy runs lose", hard_secrets(games, drawn, knowledge))
    traits = traits_of(list(games.secret.unique()), knowledge)
    rates = {name: loss_rates(drawn, trait) for name, trait in traits.items()}
    for name, table in rates.items():
        texts = [percent(row.lost, (row.low, row.high)) for row in table.itertuples()]
        show(f"Games lost, by {name}", table[["secrets"]].astype(int).assign(lost=texts))
    show("How lost games ended", endings(turns[turns.how.isin(["greedy", first])]))


if __name__ == "__main__":
    main()
