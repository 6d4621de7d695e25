"""Declares the types of the options that a family's module or DataModule passes on to its base class.

    def __init__(self, hidden_size: int = 64, **training: Unpack[TrainingOptions]) -> None:
        super().__init__(**training)

mypy checks the names and types of what is passed on. At run time the annotation is `Any`, because jsonargparse follows
`super().__init__` to the names, types and defaults of the base class; a TypedDict would hide the defaults from it, and
they would be missing in `config.yaml`. A test compares each TypedDict with its base class.
"""

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from engine.data.sample_loading import OnBadSample
from engine.data.worker_process import WorkerStart
from engine.optim.lr_schedule import Scaling, Schedule
from engine.optim.optimizers import OptimizerName

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:

    class Unpack:
        """Replaces typing's `Unpack` at run time."""

        def __class_getitem__(cls, options: type) -> Any:
            """Return Any, the annotation that jsonargparse looks behind."""
            return Any


class TrainingOptions(TypedDict, total=False):
    """Options of LockstepModule, which describes them."""

    learning_rate: float
    optimizer: OptimizerName
    betas: tuple[float, float]
    weight_decay: float
    schedule: Schedule
    warmup_steps: int
    final_fraction: float
    decay_fraction: float
    decay_rate: float
    decay_steps: int
    lr_scaling: Scaling
    base_batch_size: int | None
    optimizer_offload: bool
    optimizer_fused: bool


class LoadingOptions(TypedDict, total=False):
    """Options of LockstepDataModule, which describes them."""

    batch_size: int | None
    batch_size_per_device: int | None
    micro_batch_size: int | None
    evaluation_batch_size: int
    num_workers: int | Literal["auto"]
    worker_start: WorkerStart | None
    worker_timeout: float
    persistent_workers: bool
    prefetch_factor: int | None
    pin_memory: bool
    on_bad_sample: OnBadSample
    max_bad_samples: int
