"""The base of every DataModule: batch plan, elastic order, exact evaluation, measured loading."""

import logging
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from numpy.typing import NDArray
from torch.utils.data import Sampler

from engine.bad_samples import OnBadSample
from engine.batch_plan import BatchPlan
from engine.cores import usable_cores, workers_for
from engine.exported import DataDescription
from engine.faults import AgreedFailure
from engine.intervals import batches_to_evaluate
from engine.loading import LoadingError, MeasuredLoader, Pending
from engine.prepared_files import PreparedFiles
from engine.randomness import global_seed
from engine.reading import Reader
from engine.sampling import FILLER, Draw, EvaluationSampler, TrainSampler
from engine.streaming import AgreedEnd, Stream, StreamBatches, processes_on_cpu
from engine.workers import Workers, WorkerStart

log = logging.getLogger("lockstep")


class BatchedDataset(Protocol):
    """A data set that assembles a whole micro-batch at once; FILLER indices give rows that weigh nothing.

    With an attribute `work`, an integer for each sample, processes get equal shares of it (see TrainSampler). With a
    method `blocks`, which tells of an epoch which samples are cheap to read together, their order keeps to a window of
    such blocks at a time. With a method `first`, a limited evaluation is of `first(number)`: of a set that has an
    order of its own a fair choice.

    A sample that cannot be used is told by engine.bad_samples.BadSample; one that makes its samples one by one says
    which it begins by engine.workers.at, so that it can be named if the worker dies of it.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, draw: Draw) -> Any: ...


class LockstepDataModule(LightningDataModule):
    """Deals global batches out to the processes of a run. A family fills `train_set`, `validation_set`, ... in `setup`.

    Args:
        batch_size: samples of one optimizer step over all processes; exactly one of this and `batch_size_per_device`.
        batch_size_per_device: samples of one optimizer step on each process.
        micro_batch_size: the most samples that one device computes at once; accumulation follows from it.
        evaluation_batch_size: samples that one device evaluates at once; figures do not depend on it.
        num_workers: loader processes of each training process; 0 loads in the training process itself, `auto` takes what is left of the cores that this process may use, 8 at most (none where loading costs next to nothing).
        worker_start: how they are started: `fork`, `forkserver` or `spawn`; null: as Python does it on the platform.
        worker_timeout: seconds after which a batch that has not come ends the run, with the batch and its samples named; 0: the watchdog's timeout alone.
        on_bad_sample: what becomes of a sample that cannot be used (its file is damaged, its row malformed): `stop` ends the run and names it; `skip` leaves it out on whatever process has it, counts it and lists it in bad_samples.jsonl.
        max_bad_samples: with `skip`, how many different ones a whole training, or one evaluation, may leave out (a stream's are told by their places and count once an epoch). One more, and the run stops.
    """  # noqa: E501

    train_set: BatchedDataset | Stream[Any]
    validation_set: BatchedDataset | Stream[Any]
    test_set: BatchedDataset | Stream[Any]
    predict_set: BatchedDataset | Stream[Any]

    loads_at_once = False
    """Whether a batch is assembled from what is in memory in a few milliseconds: workers would make it slower."""

    limit_of_bad_samples = "max_bad_samples"
    """What the setting is called in messages."""

    same_epoch = False
    """Whether all epochs are alike; LockstepModule sets it for `trainer.overfit_batches`."""

    def __init__(
        self,
        batch_size: int | None = None,
        batch_size_per_device: int | None = None,
        micro_batch_size: int | None = None,
        evaluation_batch_size: int = 256,
        num_workers: int | Literal["auto"] = 0,
        worker_start: WorkerStart | None = None,
        worker_timeout: float = 0.0,
        on_bad_sample: OnBadSample = "stop",
        max_bad_samples: int = 100,
    ) -> None:
        super().__init__()
        self.batch_size, self.batch_size_per_device = batch_size, batch_size_per_device
        self.micro_batch_size, self.evaluation_batch_size = micro_batch_size, evaluation_batch_size
        if num_workers != "auto" and num_workers < 0:
            raise ValueError(f"data.init_args.num_workers must be 0 or more, or auto; got {num_workers}")
        if worker_timeout < 0:
            raise ValueError(f"data.init_args.worker_timeout is in seconds, 0 for none; got {worker_timeout}")
        if max_bad_samples < 0:
            raise ValueError(f"data.init_args.max_bad_samples is a number of samples, got {max_bad_samples}")
        self.num_workers, self.worker_start, self.worker_timeout = num_workers, worker_start, worker_timeout
        self.on_bad_sample, self.max_bad_samples = on_bad_sample, max_bad_samples
        self._resumed: dict[str, Any] = {}
        self._loaders: list[MeasuredLoader] = []

    def prepare(self) -> None:
        """Everything that `train.py prepare` does once: downloads and conversions. Safe to repeat."""
        self.prepare_data()

    def unprepared(self) -> str | None:
        """What a fit would convert as soon as it opens its data, in words; None: nothing. Writes nothing itself.

        What `prepare_data` converts, or whoever opens the data asks for, need not be told here.

        Raises:
            OSError, ValueError: the data are not there.
        """
        return None

    def description(self) -> DataDescription:
        """For the model card of an export."""
        terms = "Lockstep does not know on what terms these data may be used; state them here before you publish."
        return DataDescription(type(self).__name__, "See the configuration below.", terms)

    def prepared_files(self) -> PreparedFiles | None:
        """What `prepare` has read and written; the same command again then has nothing to do until some of it changes.
        None: it is to look every time."""
        return None

    @property
    def plan(self) -> BatchPlan:
        """How the global batch splits over this run's processes."""
        return BatchPlan.derive(
            processes=self._processes,
            batch_size=self.batch_size,
            batch_size_per_device=self.batch_size_per_device,
            micro_batch_size=self.micro_batch_size,
        )

    @property
    def steps_in_epoch(self) -> int | None:
        """Optimizer steps of a whole epoch; None for a stream."""
        return None if isinstance(self.train_set, Stream) else -(-len(self.train_set) // self.plan.batch_size)

    # -- loaders -----------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> MeasuredLoader:
        plan, data = self.plan, self.train_set
        self._order = TrainSampler(
            None if isinstance(data, Stream) else len(data),
            plan.batch_size,
            seed=global_seed(),
            process=self._process,
            processes=plan.processes,
            accumulation=plan.accumulation,
            resume=self._resume_point(),
            same_epoch=self.same_epoch,
            work=getattr(data, "work", None),
            blocks=getattr(data, "blocks", lambda epoch: None),
            trained=None if self.trainer is None else self._micro_batches_trained,
        )
        if not isinstance(data, Stream):
            return self._loader(data, self._order, "global batch")
        own = slice(self._process, None, plan.processes)
        loader = self._loader(StreamBatches(data, plan.batch_size, own), self._order, "global batch")
        ends = AgreedEnd(processes_on_cpu())
        loader.ends = lambda draw, count: ends(draw, count) and self._training_may_end(draw)
        return loader

    def val_dataloader(self) -> MeasuredLoader:
        return self._evaluation_loader(self.validation_set, "val")

    def test_dataloader(self) -> MeasuredLoader:
        return self._evaluation_loader(self.test_set, "test")

    def predict_dataloader(self) -> MeasuredLoader:
        return self._evaluation_loader(self.predict_set, "predict")

    def _evaluation_loader(
        self, data: BatchedDataset | Stream[Any], stage: Literal["val", "test", "predict"]
    ) -> MeasuredLoader:
        size, process, processes = self.evaluation_batch_size, self._process, self._processes
        whole = None if isinstance(data, Stream) else -(-len(data) // size)
        limit = None if self.trainer is None else batches_to_evaluate(self.trainer, stage, whole)
        most = None if limit is None else limit * size
        if not isinstance(data, Stream):
            samples = len(data) if most is None else min(len(data), most)
            if samples < len(data) and hasattr(data, "first"):
                data = data.first(samples)
            sampler = EvaluationSampler(samples, size, process=process, processes=processes)
            return self._loader(data, sampler, "evaluation batch")
        batches = StreamBatches(data, size * processes, slice(process * size, (process + 1) * size), most)
        sampler = EvaluationSampler(None, size, process=process, processes=processes)
        loader = self._loader(batches, sampler, "evaluation batch")
        loader.ends = AgreedEnd(processes_on_cpu())
        return loader

    def _loader(self, data: BatchedDataset | StreamBatches, sampler: Sampler[Draw], kind: str) -> MeasuredLoader:
        # batch_size=None: a draw *is* a batch, so loading is one vectorised call instead of one call a sample.
        number = self.workers
        workers = Workers(number, self.worker_start, self._processes_here) if number else None
        loader = MeasuredLoader(
            Reader(data, self.leaves_out_bad),  # type: ignore[arg-type]
            sampler=Pending(sampler),
            batch_size=None,
            num_workers=number,
            persistent_workers=number > 0,
            worker_init_fn=workers,
            multiprocessing_context=None if workers is None else workers.context,
            timeout=self.worker_timeout if number else 0,
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
        )
        loader.kind, loader.started = kind, workers
        self._loaders.append(loader)
        return loader

    @property
    def leaves_out_bad(self) -> bool:
        """Whether samples that cannot be used are left out."""
        return self.on_bad_sample == "skip"

    @property
    def workers(self) -> int:
        """Loader workers of each loader of this process: `num_workers`, or what `auto` makes of it."""
        return self._workers_left if self.num_workers == "auto" else self.num_workers

    @cached_property
    def _workers_left(self) -> int:
        cores, on_gpu = usable_cores(), self.trainer is not None and self.trainer.strategy.root_device.type != "cpu"
        if self.loads_at_once:
            number, why = 0, "a batch is assembled from memory at once"
        else:
            computing = 1 if on_gpu else torch.get_num_threads()
            number = workers_for(cores, self._processes_here, computing)
            why = f"{cores:g} cores for {self._processes_here} processes here, each computing with {computing}"
        log.info("data.num_workers auto: %d (%s)", number, why)
        return number

    @property
    def _processes_here(self) -> int:
        """Training processes of this machine."""
        return min(self.trainer.num_devices, self._processes) if self.trainer is not None else 1

    def _training_may_end(self, draw: Draw) -> bool:
        """An epoch of a stream ends before this draw; on all processes alike.

        Raises:
            AgreedFailure: it ends where Lightning would train nothing or skip the validation, without a word.
        """
        if draw.number == self._order.done:
            raise AgreedFailure(
                f"the training stream has no record at position {draw.number * self.plan.batch_size} of epoch "
                f"{draw.epoch}: it is empty, or shorter than when the checkpoint was written"
            )
        limit = self.trainer.limit_train_batches if self.trainer is not None else None
        found = draw.number * self.plan.accumulation
        if isinstance(limit, int) and found < limit:
            raise AgreedFailure(
                f"trainer.limit_train_batches is {limit}, but epoch {draw.epoch} of the stream has only {found} "
                "micro-batches; make it smaller, or leave it out"
            )
        return True

    def on_exception(self, exception: BaseException) -> None:
        # The death of a worker is raised wherever the process happens to be, also in the middle of a step.
        if not isinstance(exception, LoadingError):
            for place in filter(None, (loader.lost() for loader in self._loaders)):
                log.error("a loader worker of process %d died while loading %s", self._process, place)

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

    def state_dict(self) -> dict[str, Any]:
        """Where the order of the samples stands: the epoch and the global batches trained in it."""
        if self.trainer is None or self.trainer.state.fn != "fit":
            return {}
        accumulation = self.plan.accumulation
        processed = self.trainer.fit_loop.epoch_loop.batch_progress.current.processed
        if self._order.untouched:
            epoch, batches = self._order.epoch, self._order.done
        elif self.trainer.is_last_batch or processed >= self.trainer.num_training_batches:
            epoch, batches = self._order.epoch + 1, 0  # the end of the epoch, or of trainer.limit_train_batches
        else:
            epoch, batches = self._order.epoch, processed // accumulation
        return {"epoch": epoch, "batches": batches, "accumulation": accumulation, **self._what_is_ordered()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resumed = dict(state_dict)

    def _micro_batches_trained(self) -> int:
        return self.trainer.fit_loop.epoch_loop.batch_progress.total.ready

    def _what_is_ordered(self) -> dict[str, Any]:
        """What must be the same for the rest of an epoch to be the same."""
        data = self.train_set
        size = {"stream": data.identity} if isinstance(data, Stream) else {"num_samples": len(data)}
        return {"seed": global_seed(), "batch_size": self.plan.batch_size, **size}

    def _resume_point(self) -> tuple[int, int]:
        state = self._resumed
        if not state:
            return 0, 0
        if state["batches"]:
            for key, value in self._what_is_ordered().items():
                written = f"{key} {state[key]}" if key in state else f"no {key}"
                if state.get(key) != value:
                    raise ValueError(
                        f"the checkpoint was written {state['batches']} batches into epoch {state['epoch']} with "
                        f"{written}, this run has {key} {value}: the samples that are left in the epoch cannot be "
                        f"told. Resume with {written}, or from a checkpoint at the end of an epoch"
                    )
        return state["epoch"], state["batches"]
