"""Every metric of a run: its name in metrics.jsonl, its name in TensorBoard, and what it means.

metrics.jsonl keeps short names that code reads. TensorBoard and Weights & Biases show other ones,
sorted by what matters: the part before the slash is the group. `make docs` makes a page of this
table. A name in angle brackets matches any text without a slash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

WINS, REWARD, GUESSES, SKILL = "1 wins", "2 reward", "3 guesses", "4 skill"
LEARNING, HABITS, GROUPS, TIME = "5 learning", "6 habits", "7 groups", "8 time"
COUNTS = "9 counts"
REPORT = "report/win_rate"  # for the loggers alone, because summary.json has it

Row = tuple[str, str, str]  # key, title, meaning


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry of the table."""

    key: str  # in metrics.jsonl, such as reward/<part>
    group: str  # in TensorBoard
    title: str  # there, such as training, part <part>
    meaning: str  # a sentence
    kind: str = "scalar"  # or histogram, or text

    @property
    def tag(self) -> str:
        """Its name in TensorBoard."""
        return f"{self.group}/{self.title}"


def _metrics(group: str, rows: Iterable[Row], kind: str = "scalar") -> list[Metric]:
    return [
        Metric(key=key, group=group, title=title, meaning=meaning, kind=kind)
        for key, title, meaning in rows
    ]


_WINS = (
    ("train/win_rate", "training", "Share of the step's training games that were won."),
    ("val/win_rate", "validation", "Share of the validation games that were won."),
    ("val/win_rate_low", "validation, low", "Lower end of the 95 % interval of `validation`."),
    ("val/win_rate_high", "validation, high", "Upper end of the 95 % interval of `validation`."),
    (
        REPORT,
        "test, before and after",
        "Share of greedy test games that were won: by the start, and by the best checkpoint.",
    ),
    (
        "watch/train/win_rate",
        "watched training",
        "Share of greedy games on training secrets that were won.",
    ),
    ("watch/test/win_rate", "watched test", "Share of greedy games on test secrets that were won."),
    (
        "train/answers_win_rate",
        "training, answers alone",
        "As `training`, of the games whose secret is a possible answer.",
    ),
    (
        "val/given_<n>/win_rate",
        "validation after <n> given",
        "As `validation`, of the games that began with n guesses.",
    ),
)
_REWARD = (
    ("reward/mean", "training", "Mean reward of the step's training games."),
    ("val/reward", "validation", "Mean reward of the validation games."),
    (
        "val/reward_standard_error",
        "validation, standard error",
        "Standard error of `validation`, over secrets.",
    ),
    ("reward/std", "training, deviation", "Standard deviation of the rewards of a step's games."),
    (
        "reward/<part>",
        "training, part <part>",
        "Mean share of one component. Credit, forfeit and retry are corrections by the laws of "
        "rewards.",
    ),
    ("val/reward/<part>", "validation, part <part>", "The same of the validation games."),
)
_GUESSES = (
    (
        "val/mean_guesses_with_losses",
        "validation",
        "Mean guesses of a validation game. A lost game counts as one more than the turns.",
    ),
    ("train/guesses_won", "training, won games", "Mean guesses of the step's won games."),
    (
        "watch/<split>/mean_guesses_with_losses",
        "watched <split>",
        "As `validation`, of greedy games on training or test secrets.",
    ),
    (
        "val/given_<n>/mean_guesses_with_losses",
        "validation after <n> given",
        "As `validation`, of the games that began with n guesses.",
    ),
    (
        "train/earlier_guesses",
        "training, given",
        "Mean guesses that were made before a training game began.",
    ),
)
_SKILL = (
    ("consistency", "fits", "Share of guesses that fit all clues."),
    ("consistency_placed", "fits ✓", "Share of guesses that keep all letters in place."),
    (
        "consistency_elsewhere",
        "fits -",
        "Share of guesses that put all letters marked - elsewhere.",
    ),
    ("consistency_absent", "fits x", "Share of guesses without an absent letter."),
    (
        "bits_ratio",
        "bits of the possible",
        "Information of the guesses, as a share of the most possible.",
    ),
    ("bits_gained", "bits", "Mean expected information of a guess, in bits."),
    ("best_bits", "bits of the best", "Mean of the most that any allowed guess had, in bits."),
    (
        "expected_remaining",
        "candidates left",
        "Mean number of possible secrets after a guess, as expected.",
    ),
    ("regret", "regret", "Mean guesses of a game beyond what the best player needs."),
    ("answer_guesses", "answers", "Share of guesses that are possible answers."),
    ("plurals", "plurals", "Share of guesses that end in s like a plural, as no answer does."),
    ("opener_bits", "bits of the opener", "Mean expected information of first guesses, in bits."),
    ("opener_rank", "rank of the opener", "Mean rank of first guesses by information, 1 is best."),
    ("turn_<n>/consistency", "turn <n>, fits", "As `fits`, of the guesses of one turn."),
    (
        "turn_<n>/bits_ratio",
        "turn <n>, bits of the possible",
        "As `bits of the possible`, of the guesses of one turn.",
    ),
    (
        "turn_<n>/expected_remaining",
        "turn <n>, candidates left",
        "As `candidates left`, of the guesses of one turn.",
    ),
)
_LEARNING = (
    ("loss", "loss", "Mean loss of the step's updates. With rewards it does not measure progress."),
    ("grad_norm", "gradient norm", "Mean norm of the gradient before clipping."),
    ("lr", "learning rate", "Learning rate of the step."),
    ("policy/kl", "KL", "Mean KL divergence from the reference, in nats a token."),
    ("policy/entropy", "entropy", "Mean entropy of the next token, in nats."),
    ("policy/surprise", "surprise", "Mean negative log-probability of trained tokens, in nats."),
    ("policy/ratio", "ratio", "Mean ratio of a token's probability to the one before the update."),
    ("policy/ratio_gap", "ratio, largest change", "Largest distance of that ratio from 1."),
    ("policy/clipped", "clipped", "Share of tokens whose ratio was clipped."),
    (
        "policy/sampler_gap",
        "gap to the sampler",
        "Mean difference of log-probabilities between sampling and training, in nats.",
    ),
    (
        "policy/largest_sampler_gap",
        "gap to the sampler, largest",
        "Largest difference of log-probabilities between sampling and training, in nats.",
    ),
    ("policy/importance", "importance", "Mean weight that corrects for the sampler."),
    ("policy/importance_capped", "importance, capped", "Share of tokens whose weight was capped."),
    ("policy/value_loss", "value loss", "Mean loss of the value head (PPO)."),
    ("policy/margin", "margin", "Mean margin of the chosen answers (DPO), in nats."),
    ("policy/preferred", "preferred", "Share of pairs whose chosen answer is preferred (DPO)."),
)
_HABITS = (
    ("train/format", "readable", "Share of training answers with a readable guess."),
    ("train/non_words", "non-words", "Share of training answers that are not in the word list."),
    ("train/repeats", "repeats", "Share of training answers that repeat a guess of their game."),
    ("train/thinks", "thoughts", "Share of training answers with a thought."),
    ("train/thought_characters", "length of thoughts", "Mean characters of a thought."),
    (
        "<split>/distinct_openers",
        "<split>, distinct openers",
        "Number of different first guesses, divided by the games.",
    ),
    (
        "<split>/most_common_guess",
        "<split>, commonest guess",
        "Share of all guesses that are the commonest word. It rises first when play collapses.",
    ),
    (
        "<split>/most_common_later_guess",
        "<split>, commonest later guess",
        "The same of the turns after the first.",
    ),
    ("tokens/per_answer", "train, tokens of an answer", "Mean tokens of a training answer."),
    ("val/tokens_per_answer", "val, tokens of an answer", "Mean tokens of a validation answer."),
    ("tokens/per_game", "train, tokens of a game", "Mean sampled tokens of a training game."),
)
_GROUPS = (
    (
        "groups/zero_spread",
        "no spread",
        "Share of groups whose rewards are all equal. They teach nothing.",
    ),
    ("turns/zero_spread", "no spread, turns", "Share of turns whose returns are all equal."),
    ("groups/skipped", "skipped", "Share of groups that the update left out."),
    ("groups/resampled", "resampled", "Groups without spread that others replaced."),
    ("groups/played", "played", "Groups that the step played."),
    (
        "curriculum/<name>",
        "curriculum, <name>",
        "Progress of the curriculum. Replayed counts the lost secrets that were played again.",
    ),
)
_TIME = (
    ("time/step", "step", "Seconds of the whole step."),
    ("games_per_second", "games a second", "Training games a second."),
    (
        "time/<part>",
        "part <part>",
        "Seconds of one part of the step. The tab Custom Scalars has all parts in one chart.",
    ),
    ("memory/resident_gb", "memory", "Resident memory of the largest process, in 10⁹ bytes."),
    ("memory/device_gb", "memory of the device", "Memory in use on the device, in 10⁹ bytes."),
)
_COUNTS = (
    ("train/games", "games", "Training games of the step."),
    ("train/wins", "wins", "Training games of the step that were won."),
    ("train/answers", "answers", "Share of training games whose secret is a possible answer."),
    ("train/extra_games", "replaced games", "Games of groups that others replaced."),
    ("train/rows", "rows", "Rows of a file that the step trained on."),
    ("tokens/sampled", "tokens", "Tokens that the step sampled."),
    ("update/count", "updates", "Optimiser steps of the step."),
    ("update/skipped", "updates, skipped", "Updates left out because a number was not finite."),
    ("update/halved", "updates, halved", "How often micro-batches were halved for memory."),
    ("update/empty", "updates, empty", "1 if no group of the step taught anything."),
    ("val/given_<n>/games", "validation games after <n> given", "Games that began with n guesses."),
    ("total/<what>", "total, <what>", "Count since the first step of the run."),
)
_HISTOGRAMS = {
    REWARD: (
        ("rewards/train", "training, histogram", "Rewards of the step's games."),
        ("rewards/val", "validation, histogram", "Rewards of the validation games."),
    ),
    GUESSES: (
        ("guesses/val", "validation, histogram", "Guesses of validation games, lost ones last."),
    ),
    LEARNING: (("advantages/train", "advantages, histogram", "Advantages of the step's turns."),),
}
_TEXTS = (
    ("validation games", "boards of validation", "The first validation games, always the same."),
    ("training games", "boards of training", "One game of each of the first groups."),
    ("validation by secret", "validation by secret", "Every validation game, with its rewards."),
    ("curriculum", "curriculum", "When the curriculum moved to another stage."),
)


def _skill() -> list[Metric]:
    """The entries of skill, of validation games and of training games."""
    return _metrics(
        SKILL,
        [
            (f"{prefix}/{key}", f"{games}, {title}", text)
            for prefix, games in (("val/skill", "validation"), ("skill", "training"))
            for key, title, text in _SKILL
        ],
    )


TABLE: tuple[Metric, ...] = (
    *_metrics(WINS, _WINS),
    *_metrics(REWARD, _REWARD),
    *_metrics(GUESSES, _GUESSES),
    *_skill(),
    *_metrics(LEARNING, _LEARNING),
    *_metrics(HABITS, _HABITS),
    *_metrics(GROUPS, _GROUPS),
    *_metrics(TIME, _TIME),
    *_metrics(COUNTS, _COUNTS),
    *chain.from_iterable(_metrics(g, rows, "histogram") for g, rows in _HISTOGRAMS.items()),
    *_metrics(WINS, _TEXTS, "text"),
)
# Their cards appear although a curve never changes.
FLAT = ("train/win_rate", "val/win_rate", REPORT)
