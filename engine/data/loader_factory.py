"""Builds the DataLoaders of one rank."""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Sampler

from engine.data.batched_dataset import BatchedDataset, HasLimitedSubset
from engine.data.dataloader import PendingSampler, SkipBadSamples, TimedDataLoader
from engine.data.samplers import EvaluationSampler, MicroBatchRequest, TrainSampler
from engine.data.stream import EpochEndCheck, StreamBatches, StreamDataset
from engine.data.worker_process import Workers, WorkerStart
from engine.distributed.collectives import gloo_group
from engine.system.cpu_count import available_cpus, num_loader_workers

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class LoaderFactory:
    """Settings that all DataLoaders of a rank share.

    Attributes:
        rank: data-parallel rank of this process, see DataParallelRank.
        world_size: number of data-parallel ranks.
        local_world_size: number of processes on this machine.
        num_workers: worker processes of each loader.
        worker_start: start method of the workers, see Workers.
        worker_timeout: seconds to wait for a batch of a worker; 0 for no limit.
        persistent_workers: keep the workers from epoch to epoch.
        prefetch_factor: micro-batches that each worker loads ahead.
        skip_bad: skip bad samples instead of raising their errors.
        pin_memory: put batches into page-locked memory, for copies to a GPU.
    """

    rank: int
    world_size: int
    local_world_size: int
    num_workers: int
    worker_start: WorkerStart | None
    worker_timeout: float
    persistent_workers: bool
    prefetch_factor: int
    skip_bad: bool
    pin_memory: bool

    def train_loader(self, data: BatchedDataset | StreamDataset[Any], sampler: TrainSampler) -> TimedDataLoader:
        """Build the loader of a training set. Of a stream, each global batch is checked for the end of the epoch."""
        if not isinstance(data, StreamDataset):
            return self._build(data, sampler, "global batch")
        # Every world_size-th record, as TrainSampler assigns the positions of a global batch.
        share = slice(self.rank, None, self.world_size)
        loader = self._build(StreamBatches(data, sampler.batch_size, share), sampler, "global batch")
        loader.epoch_ended = EpochEndCheck(gloo_group())
        return loader

    def evaluation_loader(
        self, data: BatchedDataset | StreamDataset[Any], batch_size: int, max_batches: int | None
    ) -> TimedDataLoader:
        """Build the loader of an evaluation set.

        Args:
            data: the evaluation set.
            batch_size: samples of a batch on one rank.
            max_batches: limit for the batches of all ranks together; None for all.
        """
        max_samples = None if max_batches is None else max_batches * batch_size
        if not isinstance(data, StreamDataset):
            evaluated_data: BatchedDataset = data
            samples = len(data) if max_samples is None else min(len(data), max_samples)
            if samples < len(data) and isinstance(data, HasLimitedSubset):
                evaluated_data = data.first(samples)
            sampler = EvaluationSampler(samples, batch_size, rank=self.rank, world_size=self.world_size)
            return self._build(evaluated_data, sampler, "evaluation batch")
        # Whole batches of consecutive records, as EvaluationSampler assigns them.
        share = slice(self.rank * batch_size, (self.rank + 1) * batch_size)
        batches = StreamBatches(data, batch_size * self.world_size, share, max_samples)
        sampler = EvaluationSampler(None, batch_size, rank=self.rank, world_size=self.world_size)
        loader = self._build(batches, sampler, "evaluation batch")
        loader.epoch_ended = EpochEndCheck(gloo_group())
        return loader

    def _build(
        self, data: BatchedDataset | StreamBatches, sampler: Sampler[MicroBatchRequest], kind: str
    ) -> TimedDataLoader:
        workers = Workers(self.num_workers, self.worker_start, self.local_world_size) if self.num_workers else None
        loader = TimedDataLoader(
            SkipBadSamples(data, self.skip_bad),
            sampler=PendingSampler(sampler),
            batch_size=None,  # a request is a whole micro-batch, so loading is one vectorized call
            # torch refuses the options of workers if there are none.
            num_workers=self.num_workers,
            persistent_workers=self.persistent_workers and self.num_workers > 0,
            worker_init_fn=workers,
            multiprocessing_context=None if workers is None else workers.context,
            timeout=self.worker_timeout if self.num_workers else 0,
            prefetch_factor=self.prefetch_factor if self.num_workers else None,
            pin_memory=self.pin_memory,
        )
        loader.kind, loader.workers = kind, workers
        return loader


def auto_num_workers(local_world_size: int, on_gpu: bool, is_in_memory: bool) -> int:
    """Return and log the number of workers for `num_workers: auto`.

    Args:
        local_world_size: number of ranks on this machine, which share its CPUs.
        on_gpu: whether the model computes on an accelerator; a rank then needs one CPU to feed it.
        is_in_memory: whether a batch comes from memory in a few milliseconds; workers would make loading slower.
    """
    cpus = available_cpus()
    if is_in_memory:
        number, reason = 0, "a batch is assembled from memory at once"
    else:
        # On a CPU the training itself needs the cores of its threads.
        computing = 1 if on_gpu else torch.get_num_threads()
        number = num_loader_workers(cpus, local_world_size, computing)
        reason = f"{cpus:g} cores for {local_world_size} processes here, each computing with {computing}"
    log.info("data.num_workers auto: %d (%s)", number, reason)
    return number
