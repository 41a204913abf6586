"""Lightning callbacks as a user writes them."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

PLACE = f"{__name__}.*"  # what a user names who has this file


class Diary(Callback):
    """Writes down what it is shown, and may fail in a step, or end the run with one."""

    def __init__(self, file: str, fails: int | None = None, ends: int | None = None) -> None:
        self.file, self.fails, self.ends = Path(file), fails, ends

    def write(self, *entries: object) -> None:
        with self.file.open("a") as file:
            print(*entries, file=file)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.write("gradient", trainer.global_step)

    def on_before_optimizer_step(self, *args: Any) -> None:
        self.write("optimizer", type(args[-1]).__name__)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        pl_module.log("diary/step", float(trainer.global_step))
        metrics = trainer.callback_metrics
        self.write("step", trainer.global_step, trainer.current_epoch, float(metrics["loss"]))
        if trainer.global_step == self.fails:
            raise LookupError("no such\npage")
        trainer.should_stop |= trainer.global_step == self.ends

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = trainer.callback_metrics
        self.write("validation", trainer.global_step, float(metrics["val/win_rate"]))
