"""Measures the energy of a training where the machine has counters for it."""

import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.distributed.collectives import all_gather_tensor
from engine.lightning_internals.training_loop import is_last_micro_batch
from engine.module import as_lockstep_module
from engine.run_trainer import leave_training
from engine.system.energy_counters import EnergyMeter, cpu_counters, gpu_counters
from engine.telemetry.energy_file import JOULES_PER_KWH, Joules, read_energy, write_energy

_MAX_READ_INTERVAL = 30.0
"""Longest time between two readings of a batch loop: counters of CPUs return to 0 after minutes."""


class EnergyMonitor(Callback):
    """Logs the energy of a training, of all nodes, every `log_every_n_steps` steps, if a node has counters.

    - `train/power_watts`, the mean power since the last log, validations included;
    - `train/energy_kwh`, the energy of all starts of the run, repeated steps included.

    Each rank reads the counter of its GPU. The first rank of each node also reads the counters of the node's CPUs,
    which count all programs of the node. The ranks' values are added in an all-gather, only in steps that are logged.
    Rank 0 stores the sums in energy.json, because steps that were lost in a kill are in no checkpoint.

    Without any counter nothing is logged or written, and the callback removes itself.
    """

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        device = trainer.strategy.root_device
        self._meter = EnergyMeter(cpu_counters() if trainer.local_rank == 0 else [], gpu_counters(device))
        # All ranks stay or all leave, because adding is a collective; a node may have no counters.
        if not all_gather_tensor(torch.tensor(int(self._meter.has_counters), device=device)).any():
            leave_training(self, trainer)
            return
        self._folder = Path(trainer.default_root_dir)
        self._total = read_energy(self._folder) or Joules()  # of earlier starts
        self._pending = Joules()
        self._added_at = self._read_at = time.perf_counter()

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if as_lockstep_module(pl_module).is_log_step and is_last_micro_batch(trainer):
            since = self._added_at
            used = self._add_of_all_ranks(trainer)
            watts = used.kwh * JOULES_PER_KWH / (self._added_at - since)
            metrics = {"train/power_watts": watts, "train/energy_kwh": self._total.kwh}
            pl_module.log_dict(metrics, on_step=True, on_epoch=False, batch_size=1)
        else:
            self._read_in_time()

    @override
    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._read_in_time()

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._add_of_all_ranks(trainer)

    def _read_in_time(self) -> None:
        if time.perf_counter() - self._read_at > _MAX_READ_INTERVAL:
            self._read()

    def _read(self) -> None:
        # Kept apart until the next log, because the total is that of all ranks.
        self._pending = self._pending.plus(*self._meter.read())
        self._read_at = time.perf_counter()

    def _add_of_all_ranks(self, trainer: Trainer) -> Joules:
        """Add the joules since the last addition to the total, and return them."""
        self._read()
        # float32 suffices for the joules since the last log; the total is summed in Python's float64.
        rank_joules = torch.tensor(self._pending, dtype=torch.float32, device=trainer.strategy.root_device)
        used = Joules(*all_gather_tensor(rank_joules).sum(0).tolist())
        self._total, self._pending = self._total.plus(*used), Joules()
        # Up to the reading, not to the end of the all-gather.
        self._added_at = self._read_at
        if trainer.is_global_zero:
            write_energy(self._folder, self._total)
        return used
