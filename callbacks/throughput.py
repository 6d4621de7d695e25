"""How fast a run is, how much of its devices it uses, and how much of its time it waits for data."""

import logging
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.peak_flops import peak_flops
from callbacks.trends import LongWaits
from engine.events import event

log = logging.getLogger("lockstep")

WAITED = "throughput: waited"


class Throughput(Callback):
    """Logs every `log_every_n_steps` steps, over all processes and all steps since the last log:

    - `train/samples_per_second`, and `train/NAME_per_second` of whatever the module's `amounts` names;
    - `train/real_tokens`, the share of the computed positions that are not padding;
    - `train/tflops`, 10^12 floating-point operations a second that the model takes, as the module counts them, and
      `train/mfu`, their share of what the devices could do (model FLOPs utilization, PaLM, arXiv 2204.02311, app. B);
    - `train/data_wait`, the share of the time that the processes waited for their loaders, in the mean.

    When the processes go on waiting for more than a fifth of the time it warns once, with what to change.

    Validation is not counted, saving checkpoints is. The amounts travel in the all-reduce that the exact mean needs
    anyway, and the device is waited for in steps that log alone.

    Args:
        peak_tflops: what one device can do in the run's precision, dense, in 10^12 operations a second, for `train/mfu`; null looks it up; where it is not known (CPUs) there is no `train/mfu`.
    """  # noqa: E501

    def __init__(self, peak_tflops: float | None = None) -> None:
        if peak_tflops is not None and peak_tflops <= 0:
            raise ValueError(f"throughput.peak_tflops must be more than 0, got {peak_tflops}")
        self.peak_tflops = peak_tflops
        self._names: list[str] = []
        self._told_waits = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._names, self._waits = [], LongWaits()
        pl_module.votes.open(WAITED)
        self._told = trainer.train_dataloader.waited
        self._totals = {WAITED: pl_module.votes.total(WAITED)}
        self._restart(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._paused = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if hasattr(self, "_start"):
            self._start += time.perf_counter() - self._paused

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        waited = trainer.train_dataloader.waited
        pl_module.votes.cast(WAITED, waited - self._told)
        self._told = waited
        amounts = pl_module.amounts(batch)
        if not self._names and amounts:
            self._open(trainer, pl_module, list(amounts))
        for name, amount in amounts.items():
            pl_module.votes.cast(_vote(name), amount)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        steps = trainer.global_step - self._steps
        if steps < trainer.log_every_n_steps:
            return
        elapsed = time.perf_counter() - self._start
        plan = trainer.datamodule.plan  # type: ignore[attr-defined]
        since = self._since_last_log(pl_module)
        figures = {
            "train/samples_per_second": steps * plan.batch_size / elapsed,
            "train/data_wait": since.pop(WAITED) / (elapsed * plan.processes),
        }
        if "flops" in since:
            per_second = since.pop("flops") / elapsed
            figures["train/tflops"] = per_second / 1e12
            if self._peak is not None:
                figures["train/mfu"] = per_second / (self._peak * plan.processes)
        if "positions" in since:
            figures["train/real_tokens"] = since["tokens"] / max(since.pop("positions"), 1)
        figures |= {f"train/{name}_per_second": amount / elapsed for name, amount in since.items()}
        pl_module.log_dict(figures, batch_size=1)
        share = figures["train/data_wait"]
        if self._waits.seen_with(share, elapsed) and trainer.is_global_zero and not self._told_waits:
            self._told_waits = True
            said = _waiting(share, trainer.datamodule)  # type: ignore[attr-defined]
            log.warning("%s", said, extra=event("waiting_for_data", share=share))
        self._restart(trainer)

    def _open(self, trainer: Trainer, pl_module: LightningModule, names: list[str]) -> None:
        """With the first micro-batch, which all processes have before any has finished a step."""
        for name in names:
            pl_module.votes.open(_vote(name))
            self._totals[_vote(name)] = 0.0
        self._names, self._totals[WAITED] = names, 0.0
        if "flops" in names:
            device, given = trainer.strategy.root_device, self.peak_tflops
            self._peak = peak_flops(device, str(trainer.precision)) if given is None else given * 1e12
            if self._peak is None:
                log.debug("no train/mfu: the peak of %s is not known; set throughput.peak_tflops", device)

    def _since_last_log(self, pl_module: LightningModule) -> dict[str, float]:
        totals = {vote: pl_module.votes.total(vote) for vote in self._totals}
        before, self._totals = self._totals, totals
        return {vote.removeprefix("throughput/"): total - before[vote] for vote, total in totals.items()}

    def _restart(self, trainer: Trainer) -> None:
        self._start, self._steps = time.perf_counter(), trainer.global_step


def _waiting(share: float, datamodule: Any) -> str:
    if datamodule.num_workers == "auto" and datamodule.loads_at_once:
        change = "--data.init_args.num_workers 1, as auto takes none of data that lie in memory"
    elif datamodule.num_workers == "auto":
        change = f"num_workers auto is {datamodule.workers} on the cores that there are: give the job more of them"
    else:
        change = f"--data.init_args.num_workers auto, or more than {datamodule.num_workers}"
    return (
        f"WARNING: the processes wait for data: {share:.0%} of the time, and a fifth and more in each of the last logs "
        f"(train/data_wait). First change: {change}; then the data on a local disk"
    )


def _vote(name: str) -> str:
    return f"throughput/{name}"
