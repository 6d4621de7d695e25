"""One micro-batch forward and backward, as the training would compute it, of which nothing is left afterwards.

Lightning's own loop does it twice: the first step makes the optimizer's state, the second shows what a step takes.
"""

import gc
import logging
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import Tensor

from callbacks.memory_room import memory_room
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from engine.out_of_memory import is_out_of_memory

_STEPS = 2
log = logging.getLogger("lockstep")


class Tried(NamedTuple):
    """What one micro-batch takes."""

    samples: int | None  # to train on; None for a stream
    loss: float
    seconds: float  # of forward, backward and optimizer
    peak: int  # bytes
    device: torch.device
    gradients: int  # bytes that processes exchange in a step
    checkpoint: int  # bytes, about
    warnings: list[str]  # what the program warned of meanwhile


class BeforeTraining(Exception):
    """What went wrong before the first micro-batch, and with what."""

    def __init__(self, part: Literal["data", "model"], words: str) -> None:
        super().__init__(words)
        self.part = part


def tried(
    model: LockstepModule,
    data: LockstepDataModule,
    settings: Any,
    seed: int,
    trainable_only: bool,
    beside: int,
    folder: Path,
) -> Tried:
    """
    Args:
        data: whose global batch is one micro-batch.
        settings: `trainer` of a config.
        seed: of the config.
        trainable_only: whether checkpoints leave out what is frozen.
        beside: processes of a node, each of which takes as much of its memory.
        folder: for what the model writes; nobody needs it afterwards.

    Raises:
        BeforeTraining: from what was wrong with data or model.
        Exception: whatever the step raised, and memory that ran out at any time.
    """
    probe = _Probe()
    data.prepare_data = lambda: None  # type: ignore[method-assign]  # converts and writes
    with quiet() as warned:
        seed_everything(seed, verbose=False)
        trainer = trainer_of(settings, probe, folder)
        try:
            with memory_room(trainer.strategy.root_device, beside):  # else the kernel kills, and nothing is said
                trainer.fit(model, datamodule=data)
        except Exception as error:
            if probe.began or is_out_of_memory(error):
                raise
            raise BeforeTraining(probe.made, str(error)) from error
        finally:
            peak = probe.peak()
        if probe.seconds is None:
            words = f"the training data gave {trainer.global_step} micro-batches; expected {_STEPS}"
            raise BeforeTraining("data", words)
        train_set = getattr(data, "train_set", None)
        return Tried(
            len(train_set) if hasattr(train_set, "__len__") else None,
            float(model.mean_loss), probe.seconds, peak, trainer.strategy.root_device,
            sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad),
            _checkpoint_bytes(model, trainer, trainable_only), warned,
        )  # fmt: skip


def trainer_of(settings: Any, probe: Callback | None = None, folder: Path | None = None) -> Trainer:
    """Lightning's Trainer for the trial.

    Raises:
        MisconfigurationException, ValueError, ...: what it says of `trainer` of a config.
    """
    return Trainer(
        accelerator=settings.accelerator,
        devices=_device(settings.accelerator),
        precision=settings.precision,
        gradient_clip_val=settings.gradient_clip_val,
        deterministic=settings.deterministic,
        plugins=[LightningEnvironment()],  # alone, whatever a launcher has started beside it
        max_steps=_STEPS, limit_val_batches=0, num_sanity_val_steps=0,
        logger=False, callbacks=probe, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, default_root_dir=folder,
    )  # fmt: skip


class _Probe(Callback):
    """Takes the time of the last step, and the most memory."""

    made: Literal["data", "model"] = "data"
    """What Lightning is busy with until the first micro-batch: it opens data, makes the model, makes loaders."""
    began = False
    seconds: float | None = None

    def __init__(self) -> None:
        self._cuda: torch.device | None = None
        gc.collect()
        _forget_peak()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.made = "model"
        device = trainer.strategy.root_device
        if device.type == "cuda":
            self._cuda = device
            torch.cuda.reset_peak_memory_stats(device)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.made = "data"

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.began = True
        self._synchronize()
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._synchronize()
        self.seconds = time.perf_counter() - self._start

    def peak(self) -> int:
        """Bytes: of the GPU what was reserved, of the CPU what this process had in memory."""
        return torch.cuda.max_memory_reserved(self._cuda) if self._cuda is not None else _peak_of_process()

    def _synchronize(self) -> None:
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)


def _device(accelerator: str) -> Any:
    """This process's own GPU, where there are GPUs; else one device of the kind."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return [int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()]
    return 1


def _checkpoint_bytes(model: LockstepModule, trainer: Trainer, trainable_only: bool) -> int:
    """Weights, buffers, and the optimizer's state, which is there after a step."""
    frozen = {name for name, parameter in model.named_parameters() if trainable_only and not parameter.requires_grad}
    kept = [value for name, value in model.state_dict().items() if isinstance(value, Tensor) and name not in frozen]
    states = [value for one in trainer.optimizers for state in one.state.values() for value in state.values()]
    return sum(value.numel() * value.element_size() for value in [*kept, *states] if isinstance(value, Tensor))


def _forget_peak() -> None:
    """Linux counts the most memory of a process anew; elsewhere it counts from its start."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def _peak_of_process() -> int:
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return psutil.Process().memory_info().rss


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Nothing is said meanwhile; what the program warns of is kept."""
    warned: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warned.append(record.getMessage().removeprefix("WARNING: "))

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
