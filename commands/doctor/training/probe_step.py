"""Runs two training steps of one micro-batch, which measure time and memory and leave nothing behind.

The first step creates the optimizer's state, and the second is measured. Lightning's own loop runs both.
"""

import gc
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import Tensor

from commands.doctor.training.loader_throughput import time_loading
from commands.doctor.training.memory_limit import limit_host_memory
from engine.data.dataloader import TimedDataLoader
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from engine.optim.offload import OffloadedOptimizer
from engine.optim.row_table import is_trained
from engine.system import host_memory
from engine.system.oom import is_oom_error

_STEPS = 2
_SCHEDULED_STEPS = 1 << 30
"""Steps that the schedule of the learning rate gets. With those of the probe, every warm-up would be too long."""
log = logging.getLogger("lockstep")


class ProbeResult(NamedTuple):
    """Measurements of one micro-batch."""

    samples: int | None
    """Samples of the training data; None for a stream."""
    loss: float
    seconds: float
    """Time of forward, backward and optimizer."""
    peak: int
    """Peak memory in bytes: reserved on a GPU, resident on a CPU."""
    device: torch.device
    gradients: int
    """Bytes that ranks all-reduce in a step."""
    checkpoint: int
    """Approximate size of a checkpoint in bytes."""
    warnings: list[str]
    """Warnings that the program logged."""
    loading: float | None
    """Seconds of a core that loading a sample takes; None if it is not known."""
    in_memory: bool
    """Whether `num_workers: auto` loads in the training process."""


class BeforeTraining(Exception):
    """Error before the first micro-batch, in the data or in the model."""

    def __init__(self, part: Literal["data", "model"], words: str) -> None:
        super().__init__(words)
        self.part = part


def run_probe_step(
    model: LockstepModule,
    data: LockstepDataModule,
    settings: Any,
    seed: int,
    trainable_only: bool,
    ranks_per_node: int,
    directory: Path,
) -> ProbeResult:
    """Train two steps and measure the second.

    Args:
        model: the model; it is not usable afterwards.
        data: data whose global batch is one micro-batch.
        settings: `trainer` of a config.
        seed: `seed_everything` of the config.
        trainable_only: whether checkpoints omit frozen weights.
        ranks_per_node: ranks that share the memory of a node.
        directory: temporary directory for files that the model writes.

    Raises:
        BeforeTraining: the data or the model failed before the first step; its cause is the error.
        Exception: the error of the step, or memory ran out at any time.
    """
    probe = _Probe()
    data.prepare_data = lambda: None  # type: ignore[method-assign]  # it would convert and write files
    with quiet() as warned:
        seed_everything(seed, verbose=False)
        trainer = build_trainer(settings, probe, directory)
        try:
            # Without a limit, a step that is too large would make the kernel kill the doctor or another process.
            with limit_host_memory(trainer.strategy.root_device, ranks_per_node):
                trainer.fit(model, datamodule=data)
        except Exception as error:
            if probe.began or is_oom_error(error):  # memory may run out while the weights are moved to the device
                raise
            raise BeforeTraining(probe.stage, str(error)) from error
        finally:
            peak = probe.peak()
        if probe.seconds is None:
            raise BeforeTraining(
                "data", f"the training data gave {trainer.global_step} micro-batches; expected {_STEPS}"
            )
        train_set = getattr(data, "train_set", None)
        return ProbeResult(
            samples=len(train_set) if isinstance(train_set, Sized) else None,
            loss=float(model.mean_loss),
            seconds=probe.seconds,
            peak=peak,
            device=trainer.strategy.root_device,
            gradients=sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad),
            checkpoint=_checkpoint_bytes(model, trainer, trainable_only),
            warnings=warned,
            loading=_loading(trainer),
            in_memory=data.is_in_memory,
        )


def _loading(trainer: Trainer) -> float | None:
    loader = trainer.train_dataloader
    return time_loading(loader) if isinstance(loader, TimedDataLoader) else None


def build_trainer(settings: Any, probe: Callback | None = None, directory: Path | None = None) -> Trainer:
    """Return Lightning's Trainer for the probe.

    Raises:
        MisconfigurationException, ValueError: Lightning refuses `trainer` of the config.
    """
    return Trainer(
        accelerator=settings.accelerator,
        devices=_device(settings.accelerator),
        precision=settings.precision,
        gradient_clip_val=settings.gradient_clip_val,
        deterministic=settings.deterministic,
        plugins=[LightningEnvironment()],  # one rank, whatever a launcher has started
        max_steps=_SCHEDULED_STEPS, limit_val_batches=0, num_sanity_val_steps=0,
        logger=False, callbacks=probe, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, default_root_dir=directory,
    )  # fmt: skip


class _Probe(Callback):
    """Measures the time of the last step and the peak memory."""

    stage: Literal["data", "model"] = "data"
    """What Lightning creates at the moment: it opens the data, then creates the model, then the loaders."""
    began = False
    seconds: float | None = None

    def __init__(self) -> None:
        self._cuda: torch.device | None = None
        gc.collect()  # an earlier probe of the same process would otherwise count in the peak
        _reset_peak()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.stage = "model"
        device = trainer.strategy.root_device
        if device.type == "cuda":
            self._cuda = device
            torch.cuda.reset_peak_memory_stats(device)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stage = "data"

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.began = True
        self._synchronize()
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._synchronize()  # kernels run asynchronously: without this, only their launch would be timed
        self.seconds = time.perf_counter() - self._start
        trainer.should_stop = trainer.global_step >= _STEPS

    def peak(self) -> int:
        """Return the peak memory in bytes: reserved on the GPU, resident on the CPU."""
        if self._cuda is not None:
            return torch.cuda.max_memory_reserved(self._cuda)
        return host_memory.read_proc_status().get("VmHWM") or host_memory.peak_resident_memory()

    def _synchronize(self) -> None:
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)


def is_on_gpu(accelerator: str) -> bool:
    """Return whether the accelerator is an NVIDIA GPU of this machine."""
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def _device(accelerator: str) -> Any:
    """Return the GPU of this local rank if there are GPUs; else one device of the kind."""
    if is_on_gpu(accelerator):
        return [int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()]
    return 1


def _checkpoint_bytes(model: LockstepModule, trainer: Trainer, trainable_only: bool) -> int:
    """Return the size of weights, buffers and optimizer state, which exists after a step."""
    frozen = {name for name, parameter in model.named_parameters() if trainable_only and not is_trained(parameter)}
    weights = model.state_dict().items()
    saved_tensors = [value for name, value in weights if isinstance(value, Tensor) and name not in frozen]
    plain = [each.on_cpu if isinstance(each, OffloadedOptimizer) else each for each in trainer.optimizers]
    states = [value for optimizer in plain for state in optimizer.state.values() for value in state.values()]
    return sum(value.numel() * value.element_size() for value in [*saved_tensors, *states] if isinstance(value, Tensor))


def _reset_peak() -> None:
    """Reset VmHWM on Linux (man 5 proc_pid_clear_refs); elsewhere the peak counts from the process's start."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Silence logs and warnings; yield a list of the warnings that the program logs."""
    warned: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warned.append(record.getMessage())

    keeper = Keeper(logging.WARNING)
    loggers = [log, *(logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "lightning"))]
    before = [(logger, logger.handlers, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [keeper] if logger is log else [logging.NullHandler()], False
        logger.setLevel(logging.WARNING if logger is log else logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield warned
    finally:
        for logger, handlers, level, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
