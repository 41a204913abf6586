"""Every kind of rollout in every form trains what was sampled, in groups that share their state."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.engine_spy import Spy
from tests.helpers.talks import turns_of
from tests.helpers.tiny import (
    QWEN_TOOLS,
    WORDS,
    AlwaysGuesses,
    full_logprobs,
    guessing_tokenizer,
    many_stops,
    plain_copy,
    policy_of,
    qwen,
    qwen_like_tokenizer,
    recipe_of,
    same,
    step_of,
)
from tests.helpers.updates import batch_of_games
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Mistakes, RandomConsistent
from wordle_rl.game.rules import Game, PlayedTurn, Rules
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts import kinds
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.history import History
from wordle_rl.rollouts.play import Start
from wordle_rl.rollouts.settings import Recipe, RolloutSettings
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.rollouts.teacher import TeacherSettings
from wordle_rl.runs.processes import ALONE
from wordle_rl.training import step as training_step
from wordle_rl.training.step import StepResult, play_groups, train_step

SIZE: dict[str, Any] = {"groups": 3, "num_generations": 4}
KINDS: dict[str, Any] = {
    "game": {"kind": "game"},
    "turn": {"kind": "turn"},
    "best_of": {"kind": "best_of"},
    "best_of, first": {"kind": "best_of", "advance": "first"},
    "best_of, likeliest": {"kind": "best_of", "advance": "likeliest"},
}
FORMS = ("conversation", "fresh", "tool")
CASES = [
    *(("game", form) for form in FORMS),
    ("turn", "conversation"),
    ("best_of", "fresh"),
    ("best_of", "tool"),
    ("best_of", "conversation"),
    ("best_of, first", "conversation"),
    ("best_of, likeliest", "conversation"),
]
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))


class AlwaysCalls(AlwaysGuesses):
    """The same where a guess is a tool call; one that was written is read as it is."""

    def decode(self, ids: list[int]) -> str:
        if (text := HFTokenizer.decode(self, ids)).startswith("<tool_call>"):
            return text
        word = super().decode(ids)[len("<guess>") : -len("</guess>")]
        return f'<tool_call>\n{{"name": "guess", "arguments": {{"word": "{word}"}}}}\n</tool_call>'


class Consistent:
    """A history of words that fit, for any secret of the three."""

    name = "consistent"
    answer = staticmethod(RandomConsistent(KNOWLEDGE).answer)


HISTORY = History(least=0, most=1, player=Consistent(), stand_in=Consistent())


def policy_for(form: str, **settings: Any) -> Policy:
    kind = AlwaysCalls if form == "tool" else AlwaysGuesses
    inner = qwen_like_tokenizer(QWEN_TOOLS) if form == "tool" else qwen_like_tokenizer()
    tokenizer = kind(inner, extra_stop_ids=many_stops(340))
    return policy_of(qwen(340), tokenizer, temperature=0.8, max_context=900, **settings)


def lab_for(kind: str, form: str, algorithm: Any = None, **fields: Any) -> Recipe:
    defaults: dict[str, Any] = {
        "form": form,
        "history": HISTORY,
        "rules": Rules(max_turns=3),
        "sampling": Sampling(temperature=0.8, max_tokens=8),
        "seed": 4,
        **SIZE,
    }
    return recipe_of(algorithm or Grpo(beta=0.0), odd_reward, **(defaults | KINDS[kind] | fields))


def odd_reward(turn: PlayedTurn) -> float:
    return float(turn.tokens % 2) + 0.1 * turn.state.turn + 0.01 * turn.tokens


@dataclass
class Step:
    plain: Any
    spy: Spy
    batch: Batch
    result: StepResult


def a_step(kind: str, form: str, **recipe: Any) -> Step:
    policy = policy_for(form, lr=0.0)
    plain = plain_copy(policy.machine.model)
    spy, batches = Spy(policy.engine()), []
    policy_update = policy.update

    def update(batch: Batch, algorithm: Any) -> dict[str, float]:
        batches.append(batch)
        return policy_update(batch, algorithm)

    policy.engine = lambda: spy
    policy.update = update
    # With KL in the loss no group is left out.
    policy.keep_reference()
    result = train_step(step_of(policy, lab_for(kind, form, Grpo(), **recipe), 0))
    return Step(plain, spy, batches[0], result)


def logprob_of(rollout: Rollout, plain: Any) -> float:
    """The log-probability of a rollout's one answer, by the model as transformers runs it."""
    [turn] = turns_of(rollout.talks)
    logprobs = full_logprobs(plain, [*turn.prompt_ids, *turn.ids], temperature=0.8)
    return float(logprobs[len(turn.prompt_ids) :].sum())


@pytest.fixture(scope="module")
def steps() -> dict[tuple[str, str], Step]:
    return {(kind, form): a_step(kind, form) for kind, form in CASES}


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_each_sampled_answer_is_trained_once_after_its_own_context(kind, form, steps):
    """Exactly the drawn ids, first and stop token included, as they were seen while decoding."""
    # rows 1, 2, 5, 6, 7 and 8
    step, batch = steps[kind, form], steps[kind, form].batch
    drawn = Counter(((*prompt, *answer), len(answer)) for prompt, answer in step.spy.asked)
    trained = Counter()
    for row, end in enumerate(batch.lengths.tolist()):
        ids, marks = batch.ids[row, :end], batch.trained[row, :end]
        edges = np.flatnonzero(np.diff(np.append(marks, False).astype(int)) == -1)
        begins = np.flatnonzero(np.diff(np.append(False, marks).astype(int)) == 1)
        assert not batch.trained[row, end:].any()
        for begin, last in zip(begins, edges, strict=True):
            trained[tuple(ids[: last + 1].tolist()), int(last + 1 - begin)] += 1
        expected = full_logprobs(step.plain, ids.tolist(), temperature=0.8)
        assert np.abs(expected - batch.sampler_logprobs[row, :end])[marks].max() < 1e-4
    assert trained == drawn


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_a_group_is_four_rollouts_of_one_secret_from_one_state(kind, form, steps):  # row 11
    groups = defaultdict(list)
    for rollout in steps[kind, form].result.rollouts:
        groups[rollout.group].append(rollout)
    assert len(groups) == 3 if "best_of" not in kind else len(groups) > 3
    for group, members in groups.items():
        assert len(members) == 4
        assert len({(r.game.secret, r.game.turns[0].state) for r in members}) == 1
        assert len({tuple(turns_of(r.talks)[0].prompt_ids) for r in members}) == 1
        secrets = [m[0].game.secret for g, m in groups.items() if g % 3 == group % 3]
        assert set(secrets) == {members[0].game.secret}
        if kind == "turn":
            assert {len(r.game.turns) for r in members} == {1}
    starts = {r.game.turns[0].state.turn for m in groups.values() for r in m}
    assert starts >= {0, 1}, "some must begin after an earlier guess"


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_an_answer_that_hit_its_limit_is_no_guess(kind, form, steps):  # row 18
    count, stops = 0, policy_for(form).tokenizer.stop_ids
    for rollout in steps[kind, form].result.rollouts:
        for turn, tokens in zip(rollout.game.turns, turns_of(rollout.talks), strict=True):
            if tokens.ids[-1] not in stops:
                count += 1
                assert turn.guess is None and turn.reason == "truncated"
            else:
                assert turn.guess in WORDS.allowed
    assert count > 0


@pytest.mark.parametrize(("kind", "form"), CASES[4:])
def test_a_game_goes_on_with_the_best_guess_the_first_drawn_or_the_likeliest(kind, form, steps):
    result, plain = steps[kind, form].result, steps[kind, form].plain
    games: dict[int, Game] = {}
    turns: dict[int, list[list[int]]] = defaultdict(list)
    for i, rollout in enumerate(result.rollouts):
        assert rollout.within is not None
        games[id(rollout.within)] = rollout.within
        if i % 4 == 0:
            turns[id(rollout.within)].append([i, i + 1, i + 2, i + 3])
    assert len(games) == 3
    for key, game in games.items():
        assert len(turns[key]) == len(game.turns)
        for members, turn in zip(turns[key], game.turns, strict=True):
            [choice] = [i for i in members if result.rollouts[i].taken]
            worth = {
                "best_of": lambda i: result.rewards[i].total,
                "best_of, first": lambda i: -i,
                "best_of, likeliest": lambda i: logprob_of(result.rollouts[i], plain),
            }[kind]
            assert choice == max(members, key=worth)
            assert result.rollouts[choice].game.turns == [turn]
        assert game.status != "playing"
    groups = [members for game_turns in turns.values() for members in game_turns]
    totals = [[result.rewards[i].total for i in members] for members in groups]
    assert any(row[0] < max(row) for row in totals), "the first must not always be the best"
    logprobs = [[logprob_of(result.rollouts[i], plain) for i in members] for members in groups]
    assert any(row[0] < max(row) for row in logprobs)
    pairs = zip(logprobs, totals, strict=True)
    assert any(np.argmax(row) != np.argmax(total) for row, total in pairs)


@pytest.mark.parametrize(("kind", "form"), CASES[:4])
def test_a_teachers_guesses_are_learnt_in_every_form_and_its_mistakes_are_not(kind, form):
    lesson = TeacherSettings(
        player=RandomConsistent(KNOWLEDGE),
        mistakes=Mistakes(KNOWLEDGE),
        slips=0.3,
        distribution=True,
    )
    policy = policy_for(form)
    chat = Chat(policy.tokenizer)
    recipe = lab_for(kind, form, Sft(), teacher=lesson, groups=12, num_generations=1)
    rollouts = play_groups(step_of(policy, recipe, 0), range(12))
    batch = batch_of_games(rollouts, recipe, chat)
    assert batch.distributions is not None
    actual = []
    for row, targets in enumerate(batch.distributions):
        marks = batch.trained[row]
        assert set(targets.places.tolist()) == set(np.flatnonzero(marks).tolist())
        actual.append(batch.ids[row][marks].tolist())
    game_form = build_form(form, chat, recipe.style)
    expected = [
        [
            i
            for turn, t in zip(turns_of(r.talks), r.game.turns, strict=True)
            if turn.trained
            for i in game_form.chat.answer(game_form.write(str(t.guess)))
        ]
        for r in rollouts
    ]
    assert sorted(i for ids in actual for i in ids) == sorted(i for ids in expected for i in ids)
    assert any(not turn.trained for r in rollouts for turn in turns_of(r.talks))
    assert policy.update(batch, Sft())["update/skipped"] == 0.0


def test_a_share_of_the_groups_is_the_models_own_and_the_others_the_players():
    def talks(**settings: Any) -> list[Any]:
        lesson = TeacherSettings(
            player=RandomConsistent(KNOWLEDGE),
            mistakes=Mistakes(KNOWLEDGE),
            slips=0.4,
            distribution=True,
            **settings,
        )
        recipe = lab_for("game", "conversation", Sft(), teacher=lesson, groups=10)
        rollouts = play_groups(step_of(policy_for("conversation"), recipe, 0), range(10))
        return [(r.group, [(t.ids, t.trained) for t in r.talks]) for r in rollouts]

    player, model = talks(), talks(guessable=WORDS.allowed)
    blend = talks(guessable=WORDS.allowed, own_share=0.3)
    from_model = {a[0] for a, b in zip(blend, model, strict=True) if a == b}
    assert len(from_model) == 3
    assert blend == [b if b[0] in from_model else a for a, b in zip(player, model, strict=True)]


# -- portions -------------------------------------------------------------------------------------


def test_rollouts_in_portions_are_the_same_games_and_the_same_update(backend):
    kind = {"torch": "best_of", "mlx": "game"}[backend.name]

    def learn(portion: int | None) -> tuple[list[Any], dict[str, torch.Tensor], list[int]]:
        """Every token of every rollout, the weights after a step, and the rows of each engine."""
        policy = backend.policy_of(
            qwen(340), guessing_tokenizer(), temperature=0.8, max_context=900
        )
        engines, make_engine = list[Spy](), policy.engine

        def engine() -> Spy:
            engines.append(Spy(make_engine()))
            return engines[-1]

        policy.engine = engine
        size = {"groups": 5, "num_generations": 3, "games_at_once": portion}
        result = train_step(step_of(policy, lab_for(kind, "conversation", **size), 2))
        assert result.metrics["grad_norm"] > 0
        rows = [
            (r.group, r.game.secret, r.taken, [(t.ids, t.answers) for t in r.talks])
            for r in result.rollouts
        ]
        return rows, backend.weights_of(policy), [engine.most for engine in engines]

    expected, weights, peaks = learn(None)
    assert peaks == [15]
    for games_at_once, sizes in ((3, [3] * 5), (7, [6, 6, 3])):
        rows, new_weights, counts = learn(games_at_once)
        assert (counts, rows) == (sizes, expected)
        assert same(new_weights, weights)  # bit for bit


def test_games_are_halved_when_memory_runs_out(capsys, monkeypatch):
    """And the rollouts are the same, because draws depend on game and turn alone."""

    def play_small(step: Any, starts: Sequence[Start]) -> list[Any]:
        if len(starts) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return [start.group for start in starts]

    def break_down(step: Any, starts: Sequence[Start]) -> list[Any]:
        raise RuntimeError("shapes do not match")

    def pass_through(step: Any, rollouts: list[Any]) -> list[Any]:
        return rollouts

    policy: Any = SimpleNamespace(processes=ALONE)
    recipe = lab_for("game", "conversation", groups=7, num_generations=3)
    step = step_of(policy, recipe, chat=Chat(HFTokenizer(qwen_like_tokenizer())))
    monkeypatch.setattr(training_step, "reward_rollouts", pass_through)
    monkeypatch.setitem(kinds.KINDS, "game", play_small)
    assert play_groups(step, range(7)) == list(range(7))
    assert "rollout.games_at_once=6" in capsys.readouterr().out
    assert play_groups(step, range(7)) == list(range(7)), "again"
    assert not capsys.readouterr().out, "remembered"
    monkeypatch.setitem(kinds.KINDS, "game", break_down)
    with pytest.raises(RuntimeError, match="shapes"):
        play_groups(step, range(7))
    with pytest.raises(ValueError, match=r"rollout.games_at_once must be 4 or more"):
        RolloutSettings(groups=2, num_generations=4, games_at_once=3)
