"""How much a run plays and learns, counted before its first step."""

from dataclasses import dataclass

from wordle_rl.policy.sampling import describe_drawing
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.validation import choose_report_limit


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a run has to do."""

    steps: int
    games: int  # of a step at most; single guesses with rollout=turn
    held_out: int  # games of validations, on watched secrets and of reports
    looks: tuple[tuple[int, int], ...]  # steps between validations or watched games, and games
    reported: int  # games of a report, of which the end has one more with the old first guess
    validations: int
    drawn: str  # how the policy plays in training, "" where a scripted player does

    def held_out_after(self, done: int) -> int:
        """The games outside training that are left when so many steps are done."""
        times = [-(-self.steps // every) - done // every for every, _ in self.looks]
        counts = [n * games for n, (_, games) in zip(times, self.looks, strict=True)]
        return 2 * self.reported + sum(counts) * (done < self.steps)

    def __str__(self) -> str:
        text = (
            f"the run: {self.steps:,} steps of at most {self.games:,} games{self.drawn}; at most "
            f"{self.steps * self.games + self.held_out:,} in all, with {self.validations} "
            "validations"
        )
        if self.reported:
            text += " and reports"
        return text


def plan_work(setup: Experiment, parameters: int) -> Workload:
    """Count the work of a run. parameters: of the model, which decide trainer.report_limit."""
    rollout, trainer = setup.recipe.rollout, setup.trainer
    looks = [(trainer.validate_every, len(setup.validation) * trainer.validation_samples)]
    if trainer.watch_every:
        looks.append((trainer.watch_every, 2 * len(setup.test)))
    secrets = setup.test[: choose_report_limit(trainer.report_limit, parameters)]
    reports = trainer.report * len(secrets)
    times = [1 + -(-trainer.steps // every) for every, _ in looks]
    held_out = 3 * reports + sum(n * games for n, (_, games) in zip(times, looks, strict=True))
    temperature = setup.recipe.sampling.temperature
    return Workload(
        steps=trainer.steps,
        games=rollout.groups * (1 if rollout.kind == "best_of" else rollout.num_generations),
        held_out=held_out,
        looks=tuple(looks),
        reported=reports,
        validations=times[0],
        drawn=f", {describe_drawing(temperature)}" if setup.recipe.teacher is None else "",
    )
