"""The base of every DataModule: batch plan, elastic order, exact evaluation, measured loading."""

import logging
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from lightning.pytorch import LightningDataModule
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from engine.batch_plan import BatchPlan
from engine.randomness import global_seed
from engine.sampling import FILLER, Draw, EvaluationSampler, TrainSampler

log = logging.getLogger("lockstep")


class BatchedDataset(Protocol):
    """A data set that assembles a whole micro-batch at once; FILLER indices give rows that weigh nothing."""

    def __len__(self) -> int: ...

    def __getitem__(self, draw: Draw) -> Any: ...


class MeasuredLoader(DataLoader):
    """A DataLoader that knows how long it kept the training waiting (`waited`, seconds since the start)."""

    waited = 0.0

    def __iter__(self) -> Iterator[Any]:
        # A generator: Lightning makes iterators that it never uses; only the first batch asked for begins an epoch.
        batches = super().__iter__()
        while True:
            start = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.waited += time.perf_counter() - start
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the sampler starts where the data module's state says. Having it tells Lightning we can resume."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `state_dict`."""


class LockstepDataModule(LightningDataModule):
    """Deals global batches out to the processes of a run. A family fills `train_set`, `validation_set`, ... in `setup`.

    Args:
        batch_size: samples of one optimizer step over all processes; exactly one of this and `batch_size_per_device`.
        batch_size_per_device: samples of one optimizer step on each process.
        micro_batch_size: the most samples that one device computes at once; accumulation follows from it.
        evaluation_batch_size: samples that one device evaluates at once; figures do not depend on it.
        num_workers: loader processes of each training process; 0 loads in the training process itself.
    """

    train_set: BatchedDataset
    validation_set: BatchedDataset
    test_set: BatchedDataset
    predict_set: BatchedDataset

    same_epoch = False
    """Whether all epochs are alike; LockstepModule sets it for `trainer.overfit_batches`."""

    def __init__(
        self,
        batch_size: int | None = None,
        batch_size_per_device: int | None = None,
        micro_batch_size: int | None = None,
        evaluation_batch_size: int = 256,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.batch_size, self.batch_size_per_device = batch_size, batch_size_per_device
        self.micro_batch_size, self.evaluation_batch_size = micro_batch_size, evaluation_batch_size
        self.num_workers = num_workers
        self._resumed: dict[str, int] = {}

    def prepare(self) -> None:
        """Everything that `train.py prepare` does once: downloads and conversions. Safe to repeat."""
        self.prepare_data()

    @property
    def plan(self) -> BatchPlan:
        """How the global batch splits over this run's processes."""
        return BatchPlan.derive(
            processes=self._processes,
            batch_size=self.batch_size,
            batch_size_per_device=self.batch_size_per_device,
            micro_batch_size=self.micro_batch_size,
        )

    # -- loaders -----------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> MeasuredLoader:
        plan = self.plan
        self._order = TrainSampler(
            len(self.train_set),
            plan.batch_size,
            seed=global_seed(),
            process=self._process,
            processes=plan.processes,
            accumulation=plan.accumulation,
            resume=self._resume_point(),
            same_epoch=self.same_epoch,
        )
        return self._loader(self.train_set, self._order, self.num_workers)

    def val_dataloader(self) -> MeasuredLoader:
        return self._evaluation_loader(self.validation_set)

    def test_dataloader(self) -> MeasuredLoader:
        return self._evaluation_loader(self.test_set)

    def predict_dataloader(self) -> MeasuredLoader:
        return self._evaluation_loader(self.predict_set)

    def _evaluation_loader(self, dataset: BatchedDataset) -> MeasuredLoader:
        sampler = EvaluationSampler(
            len(dataset), self.evaluation_batch_size, process=self._process, processes=self._processes
        )
        return self._loader(dataset, sampler, self.num_workers)

    def _loader(self, dataset: BatchedDataset, sampler: Sampler[Draw], workers: int) -> MeasuredLoader:
        # batch_size=None: a draw *is* a batch, so loading is one vectorised call instead of one call a sample.
        return MeasuredLoader(
            dataset,  # type: ignore[arg-type]
            sampler=sampler,
            batch_size=None,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
        )

    @property
    def _process(self) -> int:
        return self.trainer.global_rank if self.trainer is not None else 0

    @property
    def _processes(self) -> int:
        return self.trainer.world_size if self.trainer is not None else 1

    def samples_of_step(self, process: int) -> list[NDArray[np.int64]]:
        """The samples of the optimizer step under way: of each micro-batch that a process has in it."""
        micro_batch = self.trainer.fit_loop.epoch_loop.batch_progress.current.ready - 1
        draws = self._order.draws_of(self._order.epoch, micro_batch // self.plan.accumulation, process)
        return [draw.indices[draw.indices != FILLER] for draw in draws]

    # -- resume ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, int]:
        """Where the order of the samples stands: the epoch and the global batches trained in it."""
        if self.trainer is None or self.trainer.state.fn != "fit":
            return {}
        plan = self.plan
        epoch = self._order.epoch
        processed = self.trainer.fit_loop.epoch_loop.batch_progress.current.processed
        batches = processed // plan.accumulation
        if processed >= self.trainer.num_training_batches:  # of the epoch, or of trainer.limit_train_batches
            epoch, batches = epoch + 1, 0
        return {
            "epoch": epoch,
            "batches": batches,
            "seed": global_seed(),
            "batch_size": plan.batch_size,
            "num_samples": len(self.train_set),
            "accumulation": plan.accumulation,
        }

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._resumed = dict(state_dict)

    def _resume_point(self) -> tuple[int, int]:
        state = self._resumed
        if not state:
            return 0, 0
        if state["batches"]:
            found = {"seed": global_seed(), "batch_size": self.plan.batch_size, "num_samples": len(self.train_set)}
            for key, value in found.items():
                if state[key] != value:
                    raise ValueError(
                        f"the checkpoint was written {state['batches']} batches into epoch {state['epoch']} with "
                        f"{key} {state[key]}, this run has {key} {value}: the samples that are left in the epoch "
                        f"cannot be told. Resume with {key} {state[key]}, or from a checkpoint at the end of an epoch"
                    )
        return state["epoch"], state["batches"]
