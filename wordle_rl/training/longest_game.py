"""How many games an experiment plays at once, and the tokens of the longest ones.

Plans need both before a tokenizer is loaded, so texts are counted in characters. Answers, which are
most of a game where the model thinks, have the length that sampling.max_tokens allows.
"""

from __future__ import annotations

from wordle_rl.game.players.base import guess_text
from wordle_rl.game.rules import Clue, PlayedTurn, State, TurnKind
from wordle_rl.policy.memory_plan import GameSize, game_size
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.prompts.tool_calls import TOOL
from wordle_rl.rollouts.given import GivenDialogues
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.run_reports import choose_report_limit

# Tokenizers of real models make longer tokens of plain English, and shorter ones of clues.
_CHARACTERS_PER_TOKEN = 3
_TEMPLATE = 8  # tokens that a chat template writes around a message
_CALL = '<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>'
# Guesses whose clues fill the prompts of prompt=state.
_GUESSES = (("slate", 83), ("crony", 27), ("humid", 9), ("plumb", 36), ("vague", 54), ("wharf", 1))


def count_training_games(setup: Experiment) -> int:
    """The most games that the model of a process plays side by side in training."""
    recipe = setup.recipe
    if recipe.teacher is not None or recipe.dialogues is not None:
        return 0
    rollout = recipe.rollout
    games = rollout.groups // setup.backend.processes * rollout.num_generations
    if not isinstance(rollout.games_at_once, int):
        return games
    return min(games, rollout.games_at_once // rollout.num_generations * rollout.num_generations)


def count_held_out_games(setup: Experiment, parameters: int) -> int:
    """The most games that a process plays side by side in validation and reports.

    parameters: of the model.
    """
    trainer = setup.trainer
    counts = [len(setup.validation) * trainer.validation_samples]
    if trainer.report:
        limit = choose_report_limit(trainer.report_limit, parameters)
        counts.append(len(setup.test[:limit]))
    if trainer.watch_every:
        counts.append(len(setup.test))
    return min(setup.model.games_at_once, -(-max(counts) // setup.backend.processes))


def measure_held_out_game(setup: Experiment) -> GameSize:
    """Tokens of the longest game of validation and reports."""
    return _measure(setup, setup.recipe.sampling.max_tokens, given=0, turns=None, answers=1)


def measure_training_game(setup: Experiment) -> GameSize:
    """Tokens of the longest game that is learned, and played in training."""
    recipe = setup.recipe
    if recipe.dialogues is not None:
        return _measure_dialogues(recipe.dialogues, setup.model.max_context)
    histories = [history for history in (recipe.history, recipe.states) if history]
    given = max((history.most for history in histories), default=0)
    rollout, answer = recipe.rollout, recipe.sampling.max_tokens
    if recipe.teacher is not None and recipe.teacher.reasoning is None:
        answer = min(answer, _count_answer(rollout.form))
    return _measure(
        setup, answer,
        given=given,
        turns=None if rollout.finishes else 1,
        answers=rollout.answers(recipe.rules, 0),
    )  # fmt: skip


def _measure(
    setup: Experiment, answer: int, *, given: int, turns: int | None, answers: int
) -> GameSize:
    """Tokens of the longest game.

    answer: tokens of each. given: most guesses that a game begins with. turns: that are played
    after them, None for all. answers: the most that one sequence trains.
    """
    recipe, rules = setup.recipe, setup.recipe.rules
    style, form = recipe.style, recipe.rollout.form
    fresh = form == "fresh"
    opening = _count_tokens(style.system + style.opening(State()), messages=2)
    if form == "tool":
        opening += _count_tokens(str(TOOL), messages=1)
    replies = [_count_reply(style, number, fresh) for number in range(1, rules.max_turns)]
    if "retry" in (rules.invalid, rules.unparsable):
        replies += [max([0, *replies])] * rules.max_retries
    if fresh:
        replies = [opening + reply for reply in replies]
        if turns == 1:
            opening, replies = max([opening, *replies[:given]]), []
    else:
        opening += sum(replies[:given]) + given * _count_answer(form)
        replies = replies[given:] if turns is None else []
    return game_size(
        opening=opening,
        feeds=replies,
        answer=answer,
        trained_answers=min(answers, len(replies) + 1),
        fresh=fresh,
        max_context=setup.model.max_context,
    )


def _measure_dialogues(dialogues: GivenDialogues, max_context: int) -> GameSize:
    """Tokens of the longest dialogue of a file."""
    whole = 1
    for place in range(len(dialogues)):
        dialogue = dialogues[place]
        messages = (1 + 2 * len(dialogue.exchanges)) * _TEMPLATE
        whole = max(whole, -(-dialogue.bytes // _CHARACTERS_PER_TOKEN) + messages)
    whole = min(whole, max_context)
    return GameSize(opening=1, feed=1, whole=whole, trained=whole)


def _count_answer(form: str) -> int:
    """Tokens of an answer that makes a guess and says nothing else."""
    return _count_tokens(_CALL if form == "tool" else guess_text("crane"), messages=1)


def _count_reply(style: PromptStyle, turn: int, fresh: bool) -> int:
    """Tokens between two answers: what the game says after this many guesses."""
    clues = tuple(Clue(guess, code) for guess, code in _GUESSES[:turn])
    before, after = State(clues[:-1], turn - 1), State(clues, turn)
    if fresh:
        return _count_tokens(style.opening(after), messages=0)
    played = PlayedTurn(
        state=before, text="", guess=clues[-1].guess, reason=None, kind=TurnKind.ACCEPTED,
        feedback=clues[-1].feedback,
    )  # fmt: skip
    return _count_tokens(style.feedback(played, after), messages=2)


def _count_tokens(text: str, *, messages: int) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN) + messages * _TEMPLATE
