"""The example is short, runs by itself, and computes the project's GRPO gradient."""

import ast
import copy
from itertools import groupby
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.configs import composed
from tests.helpers.examples import load_example
from tests.helpers.talks import turns_of
from tests.helpers.tiny import policy_of, weights_of
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game import rules
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import parse
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout, Scores, Talk
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.advantages import step_advantages
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.update import run_updates

FILE = ROOT / "examples" / "grpo_in_100_lines.py"
GROUPS, SIZE = 6, 4
OVERRIDES = (
    "algorithm=grpo",
    "algorithm.beta=0",
    "rollout.credit=game",
    "rollout.discount=1",
    f"rollout.groups={GROUPS}",
    f"rollout.num_generations={SIZE}",
    "model=tiny",
)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example(FILE)


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """The project with the example's algorithm."""
    return build_experiment(resolve(composed(*OVERRIDES)))


@pytest.fixture(scope="module")
def tokenizer(example: ModuleType) -> Any:
    return example.AutoTokenizer.from_pretrained(example.MODEL)


@pytest.fixture(scope="module")
def model(example: ModuleType) -> Any:
    return example.AutoModelForCausalLM.from_pretrained(example.MODEL, dtype=torch.float32)


@pytest.fixture(scope="module")
def played(example: ModuleType, model: Any, tokenizer: Any) -> list[Any]:
    """Groups of games that the example played, with a group of equal rewards at the end."""
    torch.manual_seed(0)
    secrets = [
        secret for secret in example.ANSWERS[:: 2300 // GROUPS][:GROUPS] for _ in range(SIZE)
    ]
    games = example.play(model, tokenizer, secrets)
    for game in games[-SIZE:]:
        game.reward = 1.3
    return games


def talk_of(game: Any) -> Talk:
    """An example's game: what the model read before each answer, and the answer."""
    talk, turn = Talk(), 0
    for sampled, part in groupby(zip(game.ids, game.sampled, strict=True), lambda token: token[1]):
        ids = [token for token, _ in part]
        if sampled:
            talk.answer(ids, turn)
        elif game.sampled[len(talk.ids) + len(ids) :].count(True):  # else it is padding
            turn += bool(talk.answers)
            talk.hear(ids, turn)
    return talk


def replay(experiment: Experiment, game: Any) -> rules.Game:
    """An example's game as the project's rules and parser see it."""
    recipe, texts = experiment.recipe, HFTokenizer(game.tokenizer)
    twin = rules.Game(game.secret, recipe.words.allowed_set, recipe.rules)
    for turn in turns_of([talk_of(game)]):
        text = texts.decode(turn.ids)
        parsed = parse(text)
        if turn.ids[-1] != game.tokenizer.eos_token_id:
            parsed = parsed.truncated()
        twin.play(parsed.guess, text=text, reason=parsed.reason)
    return twin


def project_gradient(
    experiment: Experiment, model: Any, games: list[Any], old_logprobs: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The gradient of the project's step on an example's games; the weights stay as they are.

    old_logprobs: [B, T-1] log-probabilities before the first update.
    """
    recipe, tokenizer = experiment.recipe, HFTokenizer(games[0].tokenizer)
    policy = policy_of(copy.deepcopy(model), tokenizer, temperature=recipe.sampling.temperature)
    gradient: dict[str, torch.Tensor] = {}

    def keep_gradient() -> None:
        for name, parameter in policy.machine.model.named_parameters():
            assert parameter.grad is not None
            gradient[name] = parameter.grad.clone()

    policy.machine.apply_gradients = [keep_gradient]
    rollouts = []
    for number, game in enumerate(games):
        talk = talk_of(game)
        width = len(talk.ids)
        logprobs = np.append(0.0, old_logprobs[number].numpy())[:width] * game.sampled[:width]
        scores = [Scores(old_logprobs=logprobs.astype(np.float32))]
        parts = ({"reward": 0.0},) * (len(talk.answers) - 1)
        rollouts.append(
            Rollout(
                game=replay(experiment, game),
                group=number // SIZE,
                talks=[talk],
                reward=GameReward(turns=(*parts, {"reward": game.reward})),
                scores=scores,
            )
        )
    advantages = step_advantages(rollouts, recipe)
    form = Form(chat=Chat(tokenizer), style=recipe.style)
    run_updates(Step(policy=policy, form=form, recipe=recipe, number=0), rollouts, advantages)
    return gradient


def test_it_has_at_most_100_lines_of_code():
    source = FILE.read_text(encoding="utf-8")
    texts = [
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    ]
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    code = [line for number, line in lines if line and line[0] != "#" and number not in texts]
    assert 80 < len(code) <= 100


def test_it_needs_neither_the_package_nor_hydra():
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names == {"random", "re", "collections", "pathlib", "torch", "transformers"}


def test_it_runs_and_the_weights_move(example, model, capsys):
    torch.manual_seed(0)
    before = weights_of(model)
    after = weights_of(example.train(steps=2, groups=2, size=4))
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines] == ["step 1: ", "step 2: "]
    shifts = [float((after[name] - before[name]).abs().max()) for name in after]
    assert min(shifts) > 0.0 and max(shifts) < 1e-2


def assert_same_conversation(experiment: Experiment, game: Any) -> rules.Game:
    """The project reads the same guesses from a game and would have told the model the same.

    Returns the game as the project played it.
    """
    chat = Chat(HFTokenizer(game.tokenizer))
    form = Form(chat=chat, style=experiment.recipe.style)
    twin, turns = replay(experiment, game), turns_of([talk_of(game)])
    assert twin.won == game.won and twin.status is not rules.GameStatus.PLAYING
    guesses = [t.guess if t.kind is rules.TurnKind.ACCEPTED else None for t in twin.turns]
    assert guesses == game.guesses
    assert turns[0].prompt_ids == form.opening(rules.State())
    states = [*[turn.state for turn in twin.turns], twin.state]
    for number, turn in enumerate(turns[1:], 1):
        last = turns[number - 1].ids[-1]
        reply = form.reply(twin.turns[number - 1], states[number], last_id=last)
        assert turn.prompt_ids == reply
    return twin


def test_its_games_are_those_of_the_project(experiment, played):
    games = [assert_same_conversation(experiment, game) for game in played]
    assert len({len(game.turns) for game in games}) > 1
    assert {game.won for game in games} == {False, True}


def test_it_refuses_what_the_project_refuses(example, experiment, tokenizer):
    game = example.Game("crane", tokenizer)
    answers = [
        *("<guess>slate</guess>", "<guess>zzzzz</guess>", "<guess>slate", "slate", "s" * 30),
        "<guess>crane</guess>",
    ]
    for answer in answers:
        while game.reply:
            game.next_token(0)
        for token in [*tokenizer.encode(answer), tokenizer.eos_token_id]:
            if not game.reply:  # it was not cut off
                game.next_token(token)
    twin = assert_same_conversation(experiment, game)
    kinds, failure = rules.TurnKind, rules.TurnKind.UNPARSABLE
    expected = [kinds.ACCEPTED, kinds.NOT_A_WORD, failure, failure, failure, kinds.ACCEPTED]
    assert [turn.kind for turn in twin.turns] == expected
    assert twin.turns[4].reason == "truncated" and len(talk_of(game).answers[4]) == 12
    assert game.won and game.reward == pytest.approx(1.0)


def test_its_gradient_is_that_of_the_project(example, experiment, model, played):
    ids = torch.tensor([game.ids for game in played])
    sampled = torch.tensor([game.sampled for game in played])[:, 1:]
    advantages = example.group_advantages(
        torch.tensor([game.reward for game in played]).view(GROUPS, SIZE)
    )
    assert (advantages[-SIZE:] == 0).all() and (advantages != 0).sum() >= SIZE
    old_logprobs = example.token_logprobs(model, ids).detach()
    learner = copy.deepcopy(model)
    torch.manual_seed(0)
    with torch.no_grad():  # as if an earlier update on these games had changed the weights
        for parameter in learner.parameters():
            parameter.mul_(1 + 0.05 * torch.randn_like(parameter))
    logprobs = example.token_logprobs(learner, ids)
    ratio = ((logprobs - old_logprobs).exp() - 1).abs()[sampled]
    assert bool((ratio > example.CLIP).any())
    example.grpo_loss(logprobs, old_logprobs, advantages, sampled).backward()
    gradient = project_gradient(experiment, learner, played, old_logprobs)
    expected = {name: parameter.grad for name, parameter in learner.named_parameters()}
    assert gradient.keys() == expected.keys()
    max_slope = max(float(slope.abs().max()) for slope in expected.values())
    gap = max(float((gradient[name] - expected[name]).abs().max()) for name in expected)
    assert max_slope > 1e-3 and gap <= 1e-5 * max_slope
