"""Measures throughput, model FLOPs utilization and data wait of a training."""

import logging
import time

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.performance.peak_flops import peak_flops
from engine.datamodule import LockstepDataModule
from engine.distributed.data_parallel_rank import data_parallel_rank
from engine.module import LockstepModule, as_lockstep_module
from engine.number_check import check_number
from engine.run_trainer import as_run_trainer
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

WAITED = "throughput: waited"

_WARM_UP_LOGS = 3
"""First logs of a start, which are ignored: data wait is high while workers start and caches fill."""

_MAX_WAIT_SHARE, _MIN_LOGS, _MIN_WAITED_SECONDS = 0.2, 5, 10.0
"""A data wait is reported above this share of the time, in this many logs in a row with this sum of waited seconds."""


class DataWaitDetector:
    """Detects that ranks wait for data for more than a fifth of the time, in each of several logs in a row."""

    def __init__(self) -> None:
        self._logs, self._consecutive, self._waited_seconds = 0, 0, 0.0

    def update(self, share: float, seconds: float) -> bool:
        """Add a log, and return whether ranks have waited for too long.

        Args:
            share: share of the time since the last log that was spent waiting, averaged over ranks.
            seconds: seconds since the last log.
        """
        self._logs += 1
        # One log without a wait ends the series: a pause of a shared disk is not a lasting cause.
        if self._logs <= _WARM_UP_LOGS or share <= _MAX_WAIT_SHARE:
            self._consecutive, self._waited_seconds = 0, 0.0
            return False
        self._consecutive, self._waited_seconds = self._consecutive + 1, self._waited_seconds + share * seconds
        return self._consecutive >= _MIN_LOGS and self._waited_seconds >= _MIN_WAITED_SECONDS


class Throughput(Callback):
    """Logs the throughput every `log_every_n_steps` steps, over all ranks and all steps since the last log.

    - `train/samples_per_second`, and `train/NAME_per_second` for each NAME in the module's `throughput_counts`;
    - `train/real_tokens`, the share of computed positions that are not padding;
    - `train/tflops`, 10^12 floating-point operations per second of the model, as the module counts them, and
      `train/mfu`, their share of the devices' peak (model FLOPs utilization, PaLM, arXiv 2204.02311, app. B);
    - `train/data_wait`, the mean share of the time that ranks wait for their loaders.

    If the wait stays above a fifth of the time, it logs one warning with the option to change.

    Time in validation is excluded; time in saving checkpoints is included. The counts are summed in the all-reduce of
    the exact mean, so they need no collective of their own. The device is synchronized in steps that log only.

    Args:
        peak_tflops: dense peak of one device in the run's precision, in 10^12 operations per second, for `train/mfu`;
            null looks it up in a table. If it is not known (CPUs), `train/mfu` is not logged.
    """

    def __init__(self, peak_tflops: float | None = None) -> None:
        check_number("throughput.peak_tflops", peak_tflops, above=0)
        self.peak_tflops = peak_tflops
        self._names: list[str] = []
        self._start: float | None = None  # of the interval since the last log; None before training
        self._peak: float | None = None
        self._has_warned = False

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._names, self._waits = [], DataWaitDetector()
        counters = as_lockstep_module(pl_module).counters
        counters.register(WAITED)
        self._counted_wait = as_run_trainer(trainer).train_dataloader.waited
        self._totals = {WAITED: counters.total(WAITED)}
        self._start, self._steps, self._samples = time.perf_counter(), trainer.global_step, 0
        if trainer.is_global_zero:
            _warn_of_large_batch(as_run_trainer(trainer).datamodule)

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._paused = time.perf_counter()

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._start is not None:  # not in the sanity check, before training
            self._start += time.perf_counter() - self._paused

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        module, waited = as_lockstep_module(pl_module), as_run_trainer(trainer).train_dataloader.waited
        # Added before the backward pass, whose all-reduce sums the counters.
        module.counters.add(WAITED, waited - self._counted_wait)
        self._counted_wait = waited
        counts = module.throughput_counts(batch)
        if not self._names and counts:
            self._open_counters(trainer, module, list(counts))
        # The ranks of a tensor-parallel group read the same batch, so only its leader counts it.
        if data_parallel_rank(trainer).is_group_leader:
            for name, amount in counts.items():
                module.counters.add(_counter(name), amount)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        datamodule = as_run_trainer(trainer).datamodule
        if (batch_idx + 1) % (accumulation := trainer.accumulate_grad_batches) == 0:
            self._samples += datamodule.samples_in_step(batch_idx // accumulation)
        interval = as_run_trainer(trainer).log_every_n_steps
        if not interval or trainer.global_step - self._steps < interval:
            return  # Lightning logs no step for an interval of 0
        # Reading the counters waits for the device, whose steps are part of the time.
        since = self._since_last_log(as_lockstep_module(pl_module))
        assert self._start is not None, "training has started"
        now = time.perf_counter()
        elapsed = now - self._start
        metrics = {
            "train/samples_per_second": self._samples / elapsed,
            # The waits of all ranks are summed, so they are a share of the time of all ranks.
            "train/data_wait": since.pop(WAITED) / (elapsed * trainer.world_size),
        }
        # FLOPs and positions become metrics of their own; all other counts become rates.
        if "flops" in since:
            per_second = since.pop("flops") / elapsed
            metrics["train/tflops"] = per_second / 1e12
            if self._peak is not None:
                metrics["train/mfu"] = per_second / (self._peak * trainer.world_size)
        if "positions" in since:
            metrics["train/real_tokens"] = since["tokens"] / max(since.pop("positions"), 1)
        metrics |= {f"train/{name}_per_second": amount / elapsed for name, amount in since.items()}
        pl_module.log_dict(metrics, batch_size=1)
        share = metrics["train/data_wait"]
        if self._waits.update(share, elapsed) and trainer.is_global_zero and not self._has_warned:
            self._has_warned = True
            log.warning("%s", _wait_warning(share, datamodule), extra=event("waiting_for_data", share=share))
        self._start, self._steps, self._samples = now, trainer.global_step, 0

    def _open_counters(self, trainer: Trainer, pl_module: LockstepModule, names: list[str]) -> None:
        """Open the counters with the first micro-batch, which all ranks have before any rank ends a step."""
        for name in names:
            pl_module.counters.register(_counter(name))
            self._totals[_counter(name)] = 0.0
        # `register` resets the totals of all counters.
        self._names, self._totals[WAITED] = names, 0.0
        if "flops" in names:
            device, peak_tflops = trainer.strategy.root_device, self.peak_tflops
            self._peak = peak_flops(device, str(trainer.precision)) if peak_tflops is None else peak_tflops * 1e12
            if self._peak is None:
                log.debug("no train/mfu: the peak of %s is not known; set throughput.peak_tflops", device)

    def _since_last_log(self, pl_module: LockstepModule) -> dict[str, float]:
        totals = {counter: pl_module.counters.total(counter) for counter in self._totals}
        before, self._totals = self._totals, totals
        return {counter.removeprefix("throughput/"): total - before[counter] for counter, total in totals.items()}


def _wait_warning(share: float, datamodule: LockstepDataModule) -> str:
    if datamodule.num_workers == "auto" and datamodule.is_in_memory:
        change = "--data.init_args.num_workers 1; auto uses no worker for data in memory"
    elif datamodule.num_workers == "auto":
        change = f"give the job more cores; num_workers auto is {datamodule.workers} on the available ones"
    else:
        change = f"--data.init_args.num_workers auto, or more than {datamodule.num_workers}"
    return (
        f"training waits for data {share:.0%} of the time, and 20% or more in each of the last logs "
        f"(train/data_wait).\nFirst change: {change}. Then move the data to a local disk"
    )


def _counter(name: str) -> str:
    return f"throughput/{name}"


def _warn_of_large_batch(datamodule: LockstepDataModule) -> None:
    """Log a warning if an epoch has fewer samples than a batch, whose size may be mistyped."""
    batch, samples = datamodule.plan.batch_size, datamodule.samples_in_step(0)
    if batch <= samples:
        return
    name, size, limit = "batch_size", batch, samples
    if datamodule.batch_size_per_device is not None:
        name, size = "batch_size_per_device", datamodule.batch_size_per_device
        limit = max(1, samples * size // batch)
    log.warning(
        "data.init_args.%s is %d, but an epoch has %d samples, so a step has no more; lower it to at most %d",
        name, size, samples, limit,
    )  # fmt: skip
