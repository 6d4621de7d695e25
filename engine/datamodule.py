"""Defines the base class of all DataModules: batch plan, order of samples, exact evaluation, resumption."""

import logging
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from lightning.pytorch import LightningDataModule
from numpy.typing import NDArray
from typing_extensions import override

from engine.checkpointing.checkpoint_schema import declare_part
from engine.checkpointing.schema import COUNT, POSITIVE, fields
from engine.data.batch_plan import BatchPlan
from engine.data.batched_dataset import BatchedDataset, sample_costs, shuffle_blocks
from engine.data.dataloader import LoadingError, TimedDataLoader
from engine.data.loader_factory import LoaderFactory, auto_num_workers
from engine.data.resume_point import position_to_save, resume_point
from engine.data.sample_loading import OnBadSample, check_policy
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest, TrainSampler
from engine.data.shared_memory import PREFETCH_FACTOR
from engine.data.step_limits import num_evaluation_batches
from engine.data.stream import StreamDataset, require_trained_batches
from engine.data.worker_process import WorkerStart
from engine.determinism.stateless_rng import global_seed
from engine.distributed.data_parallel_rank import DataParallelRank, data_parallel_rank, tensor_parallel_size
from engine.family_hooks import FamilyDataHooks
from engine.lightning_internals.training_loop import micro_batch_index, micro_batches_started
from engine.number_check import check_numbers
from engine.system.cpu_count import check_process_count

log = logging.getLogger("lockstep")

_POSITION = fields({"epoch": COUNT, "batches": COUNT, "accumulation": POSITIVE})


class LockstepDataModule(FamilyDataHooks, LightningDataModule):
    """Splits global batches over the ranks of a run. A family sets `train_set`, `validation_set`, ... in `setup`.

    Args:
        batch_size: samples of one optimizer step over all ranks. Give exactly one of this and `batch_size_per_device`.
        batch_size_per_device: samples of one optimizer step on each rank.
        micro_batch_size: largest number of samples that a device computes at once; accumulation follows from it.
        evaluation_batch_size: samples that a device evaluates at once; metrics do not depend on it.
        num_workers: loader processes of each rank, each with one thread. 0 loads in the training process; `auto` uses
            the CPUs that are left, at most 8 (none if batches come from memory).
        worker_start: start method of the workers: `fork`, `forkserver` or `spawn`; null for Python's default.
        worker_timeout: seconds to wait for a batch before the run ends with the batch and its samples named; 0 for
            the watchdog's timeout.
        persistent_workers: keep the workers from epoch to epoch. If false, each epoch and evaluation starts new
            workers, which takes time and frees their memory in between.
        prefetch_factor: micro-batches that each worker loads ahead; null for 2. Larger values smooth variable loading
            times and use more memory. It has no effect without workers.
        pin_memory: on GPUs, put batches into page-locked memory, from which copies are faster. Without GPUs nothing is
            pinned.
        on_bad_sample: policy for a bad sample (its file is corrupt, its row malformed). `stop` ends the run and names
            it; `skip` skips it, counts it and lists it in bad_samples.jsonl.
        max_bad_samples: with `skip`, largest number of different samples that a training, or one evaluation, may skip.
            The run stops if it is exceeded. Samples of a stream are identified by their position, once per epoch.
    """

    train_set: BatchedDataset | StreamDataset[Any]
    validation_set: BatchedDataset | StreamDataset[Any]
    test_set: BatchedDataset | StreamDataset[Any]
    predict_set: BatchedDataset | StreamDataset[Any]

    same_epoch = False
    """Whether all epochs are equal. LockstepModule sets it for `trainer.overfit_batches`."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        declare_part(cls.__qualname__, _POSITION)  # the key under which Lightning saves `state_dict`

    def __init__(
        self,
        batch_size: int | None = None,
        batch_size_per_device: int | None = None,
        micro_batch_size: int | None = None,
        evaluation_batch_size: int = 256,
        num_workers: int | Literal["auto"] = 0,
        worker_start: WorkerStart | None = None,
        worker_timeout: float = 0.0,
        persistent_workers: bool = True,
        prefetch_factor: int | None = None,
        pin_memory: bool = True,
        on_bad_sample: OnBadSample = "stop",
        max_bad_samples: int = 100,
    ) -> None:
        super().__init__()
        self.batch_size, self.batch_size_per_device = batch_size, batch_size_per_device
        self.micro_batch_size, self.evaluation_batch_size = micro_batch_size, evaluation_batch_size
        if num_workers != "auto" and num_workers < 0:
            raise ValueError(f"data.init_args.num_workers must be 0 or more, or auto; got {num_workers}")
        if num_workers != "auto":
            check_process_count("data.init_args.num_workers", num_workers)
        sizes = {"batch_size": batch_size, "batch_size_per_device": batch_size_per_device}
        sizes |= {"micro_batch_size": micro_batch_size, "evaluation_batch_size": evaluation_batch_size}
        check_numbers("data.init_args.", sizes | {"prefetch_factor": prefetch_factor}, at_least=1)
        limits = {"worker_timeout": worker_timeout, "max_bad_samples": max_bad_samples}
        check_numbers("data.init_args.", limits, at_least=0)
        self.num_workers, self.worker_start, self.worker_timeout = num_workers, worker_start, worker_timeout
        self.prefetch_factor = PREFETCH_FACTOR if prefetch_factor is None else prefetch_factor
        self.persistent_workers, self.pin_memory = persistent_workers, pin_memory
        self.on_bad_sample, self.max_bad_samples = on_bad_sample, max_bad_samples
        self._resume_state: dict[str, Any] = {}  # state of the checkpoint; empty without one
        self._loaders: list[TimedDataLoader] = []

    def prepare(self) -> None:
        """Download and convert the data for `train.py prepare`. Safe to repeat."""
        self.prepare_data()

    @property
    def plan(self) -> BatchPlan:
        """Split of the global batch over the ranks of this run."""
        return BatchPlan.derive(
            world_size=self._data_parallel_rank.size,
            batch_size=self.batch_size,
            batch_size_per_device=self.batch_size_per_device,
            micro_batch_size=self.micro_batch_size,
            group_size=tensor_parallel_size(self.trainer),
        )

    @property
    def steps_in_epoch(self) -> int | None:
        """Optimizer steps of a whole epoch; None for a stream."""
        return None if isinstance(self.train_set, StreamDataset) else -(-len(self.train_set) // self.plan.batch_size)

    def samples_in_step(self, index: int) -> int:
        """Return the number of samples of an optimizer step over all ranks: fewer in the last step of an epoch.

        Args:
            index: of the step in its epoch.
        """
        batch_size, data = self.plan.batch_size, self.train_set
        return batch_size if isinstance(data, StreamDataset) else min(batch_size, len(data) - index * batch_size)

    # -- loaders -----------------------------------------------------------------------------------------------------

    @override
    def train_dataloader(self) -> TimedDataLoader:
        plan, data = self.plan, self.train_set
        self._order = TrainSampler(
            None if isinstance(data, StreamDataset) else len(data),
            plan.batch_size,
            seed=global_seed(),
            rank=self._data_parallel_rank.rank,
            world_size=plan.world_size,
            accumulation=plan.accumulation,
            resume=resume_point(self._resume_state, self._order_identity, self.steps_in_epoch),
            same_epoch=self.same_epoch,
            sample_costs=sample_costs(data),
            blocks=partial(shuffle_blocks, data),
            count_trained=None if self.trainer is None else partial(micro_batches_started, self.trainer),
        )
        loader = self._loader_factory.train_loader(data, self._order)
        self._loaders.append(loader)  # for on_exception
        # Lightning would end an epoch of a stream without batches, or with too few for a validation, without a word.
        if (epoch_ended := loader.epoch_ended) is not None:
            loader.epoch_ended = lambda request, records: epoch_ended(request, records) and self._check_end(request)
        return loader

    @override
    def val_dataloader(self) -> TimedDataLoader:
        return self._evaluation_loader(self.validation_set, "val")

    @override
    def test_dataloader(self) -> TimedDataLoader:
        return self._evaluation_loader(self.test_set, "test")

    @override
    def predict_dataloader(self) -> TimedDataLoader:
        return self._evaluation_loader(self.predict_set, "predict")

    def _evaluation_loader(
        self, data: BatchedDataset | StreamDataset[Any], stage: Literal["val", "test", "predict"]
    ) -> TimedDataLoader:
        size = self.evaluation_batch_size
        batches = None if isinstance(data, StreamDataset) else -(-len(data) // size)
        limit = None if self.trainer is None else num_evaluation_batches(self.trainer, stage, batches)
        self._loaders.append(self._loader_factory.evaluation_loader(data, size, limit))
        return self._loaders[-1]

    @property
    def _loader_factory(self) -> LoaderFactory:
        return LoaderFactory(
            rank=self._data_parallel_rank.rank,
            world_size=self._data_parallel_rank.size,
            local_world_size=self._local_world_size,
            num_workers=self.workers,
            worker_start=self.worker_start,
            worker_timeout=self.worker_timeout,
            skip_bad=self.skips_bad_samples,
            persistent_workers=self.persistent_workers,
            prefetch_factor=self.prefetch_factor,
            pin_memory=self.pin_memory and self._device_type == "cuda",
        )

    @property
    def skips_bad_samples(self) -> bool:
        """Whether bad samples are skipped. Raises ValueError with tensor parallelism."""
        check_policy(self.on_bad_sample, tensor_parallel_size(self.trainer))
        return self.on_bad_sample == "skip"

    @property
    def workers(self) -> int:
        """Workers of each loader of this rank: `num_workers`, or the number that `auto` means."""
        return self._auto_num_workers if self.num_workers == "auto" else self.num_workers

    @cached_property
    def _auto_num_workers(self) -> int:
        return auto_num_workers(self._local_world_size, self._device_type != "cpu", self.is_in_memory)

    @property
    def _device_type(self) -> str:
        return "cpu" if self.trainer is None else self.trainer.strategy.root_device.type

    @property
    def _local_world_size(self) -> int:
        return 1 if self.trainer is None else min(self.trainer.num_devices, self.trainer.world_size)

    def _check_end(self, request: MicroBatchRequest) -> bool:
        plan, limit = self.plan, None if self.trainer is None else self.trainer.limit_train_batches
        require_trained_batches(request, self._order.batches_done, plan.batch_size, plan.accumulation, limit)
        return True

    @override
    def on_exception(self, exception: BaseException) -> None:
        # PyTorch raises the death of a worker at any line of the training process, also in the middle of a step.
        if not isinstance(exception, LoadingError):
            for batches in filter(None, (loader.lost_batches() for loader in self._loaders)):
                log.error("a loader worker of rank %d died while loading %s", self._data_parallel_rank.rank, batches)

    @property
    def _data_parallel_rank(self) -> DataParallelRank:
        return data_parallel_rank(self.trainer)

    def samples_of_step(self, rank: int) -> list[NDArray[np.int64]]:
        """Return the samples of each micro-batch of a rank in the current optimizer step."""
        assert self.trainer is not None, "without a trainer there is no step"
        batch = micro_batch_index(self.trainer) // self.plan.accumulation
        requests = self._order.requests_of(self._order.epoch, batch, rank)
        return [request.indices[request.indices != PADDING_INDEX] for request in requests]

    # -- resume ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the order of the samples: the epoch and its global batches that are trained."""
        if self.trainer is None or self.trainer.state.fn != "fit":
            return {}
        epoch, batches = position_to_save(self.trainer, self._order, self.plan.accumulation)
        return {"epoch": epoch, "batches": batches, "accumulation": self.plan.accumulation, **self._order_identity()}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resume_state = dict(state_dict)

    def _order_identity(self) -> dict[str, Any]:
        """Return the settings on which the order of an epoch depends. They must not change in its middle."""
        data = self.train_set
        size = {"stream": data.identity} if isinstance(data, StreamDataset) else {"num_samples": len(data)}
        return {"seed": global_seed(), "batch_size": self.plan.batch_size, **size}
