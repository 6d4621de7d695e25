"""Declares hooks that a family's module and DataModule override, as Lightning's ModelHooks and DataHooks do."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import nn

from engine.export.artifacts import DatasetCard, ExportedModel
from engine.optim.global_loss_mean import LossSum
from engine.telemetry.sample_previews import SamplePreview

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle


class FamilyHooks:
    """Hooks of LockstepModule. A family must implement `training_loss`; all others are optional."""

    extra: ClassVar[str | None] = None
    """Extra of setup.cfg with the packages that the family needs; see engine.system.extras."""

    export_extra: ClassVar[str | None] = None
    """Further extra that its export needs."""

    terms_per_sample: int = 1
    """Approximate number of loss terms of a sample; only the order of magnitude matters (see GlobalLossMean)."""

    supports_grad_accumulation = True
    """Whether a global batch may be split into micro-batches; False if the loss compares all samples of a batch."""

    predicts_at_the_end = False
    """Whether `predict` writes its predictions itself after the last batch, instead of returning them by batch."""

    equal_evaluation_passes = False
    """Whether ranks run their layers equally often in an evaluation, so that FSDP may gather layer by layer. Otherwise
    it gathers the whole model for the evaluation."""

    def tensor_parallel_layers(self, size: int) -> "dict[nn.Module, ParallelStyle]":
        """Return the layers that tensor parallelism divides over `size` ranks, and how each is divided.

        Raises:
            ValueError: the family's network, or its settings, cannot be divided.
        """
        raise ValueError(
            f"trainer.strategy.init_args.tensor_parallel is {size}, but {type(self).__name__} has no language model, "
            "whose layers it divides. Set it to 1: FSDP shards any model"
        )

    @abstractmethod
    def training_loss(self, batch: Any) -> LossSum:
        """Return the sum of the micro-batch's loss terms and their number.

        Trial passes before training (`--threads auto`, `trainer.auto_micro_batch`) call it too. They restore buffers,
        metrics and random number generators; an implementation must keep no other state between calls.
        """

    def throughput_counts(self, batch: Any) -> dict[str, float]:
        """Return counts of a micro-batch by name, with the same names in every micro-batch of every rank.

        Throughput adds them up over all ranks and logs `train/NAME_per_second`. Two names have a meaning of their own:
        `positions` (padding included) gives `train/real_tokens`, the share of `tokens` among them; `flops` (of forward
        and backward pass) gives `train/tflops` and `train/mfu`.

        Called in every step, so values must be on the host: sizes, and counts from the data module.
        """
        return {}

    def sample_previews(self) -> list[Callable[[], SamplePreview]]:
        """Return previews of samples of the last validation and the model's output for them.

        At most `preview_reservoir.number` previews. The validation adds their contents to `preview_reservoir`, whose
        `previews` returns the functions.

        Called on every rank, so it may gather. The previews of rank 0 are displayed and must not depend on the number
        of ranks. Only rank 0 calls the returned functions, so these may read files but not gather. A preview whose
        function raises is skipped.
        """
        return []

    def memory_saving_options(self) -> list[tuple[str, str]]:
        """Return options not yet set that reduce memory, each as (option with value, its cost)."""
        return []

    def load_export(self, folder: Path) -> None:
        """Load the weights of an export of this run, for `demo` and `chat`. Optional for a family.

        Args:
            folder: directory that `export` has written.

        Raises:
            ValueError: the family reads no exports, or the export is of other data or of another model.
            FileNotFoundError: a file of the export is missing.
        """
        raise ValueError(f"{folder} is an export, and {type(self).__name__} reads none; give a checkpoint")

    def export(self, folder: Path, merge: bool) -> ExportedModel:
        """Write the trained weights for other programs, for `train.py export`. Optional for a family.

        Args:
            folder: exists and is empty.
            merge: see LockstepTrainer.export.

        Returns:
            Facts for the model card.
        """
        raise NotImplementedError


class FamilyDataHooks:
    """Hooks of LockstepDataModule, all optional."""

    extra: ClassVar[str | None] = None
    """Extra of setup.cfg whose packages the family needs with any settings."""

    is_in_memory = False
    """Whether a batch comes from memory in a few milliseconds, so that workers would make loading slower."""

    too_long: Literal["stop", "drop"] = "stop"
    """Policy for a sample that is longer than a model's input. A family with such a limit has an option for it."""

    @classmethod
    def extra_for(cls, settings: Mapping[str, Any]) -> str | None:
        """Return the extra of setup.cfg whose packages are needed with these settings (`init_args`)."""
        return cls.extra

    def pending_conversion(self) -> str | None:
        """Describe the conversion that a fit would run when it opens its data, or None. Writes nothing.

        Conversions of `prepare_data` need not be described.

        Raises:
            OSError, ValueError: the data do not exist.
        """
        return None

    def dataset_card(self) -> DatasetCard:
        """Return the description of the data for the model card of an export."""
        terms = "Lockstep does not know on what terms these data may be used; state them here before you publish."
        return DatasetCard(type(self).__name__, "See the configuration below.", terms)

    @property
    def predict_input(self) -> str | None:
        """File whose samples `predict` answers in place of the run's own data, or None.

        Its predictions get a file of their own, see PredictionWriter.
        """
        return None

    def describe(self, row: int) -> Mapping[str, Any]:
        """Return the fields of a prediction line that identify a sample, also for a sample that was skipped."""
        return {}
