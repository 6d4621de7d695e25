"""Defines the interface between a LanguageModule and its evaluation."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from engine.telemetry.sample_previews import SamplePreview

ModuleT = TypeVar("ModuleT", contravariant=True)
PredictionLine = tuple[int, dict[str, Any]]
"""A row of `predict_set` and the fields of its line of predictions."""


class EvaluatingTrainer(Protocol):
    """What an evaluator needs of the run's trainer, so that it does not depend on Lightning."""

    @property
    def is_global_zero(self) -> bool:
        """Whether this process has rank 0."""

    @property
    def default_root_dir(self) -> str:
        """Folder of the run."""


class Blinding(Protocol):
    """Removes the content of samples, for the blind baseline. ModalityFeatures and BlackImages provide it."""

    def blinded(self, inputs: Any) -> Any:
        """Return the samples without content but with the same number of features."""


class Evaluator(Generic[ModuleT]):
    """Evaluates a module: a component of a LanguageModule. The module passes itself to each call."""

    main_metric: str
    """Metric that the progress bar shows after a validation."""

    def begin(self) -> None:
        """Start an evaluation and discard the previous evaluation."""
        raise NotImplementedError

    def update(self, module: ModuleT, batch: Any) -> None:
        """Evaluate one batch of this rank."""
        raise NotImplementedError

    def compute(self, module: ModuleT) -> dict[str, float]:
        """Return the metrics over the samples of all ranks. Collective: every rank must call it."""
        raise NotImplementedError

    def previews(self, module: ModuleT) -> list[Callable[[], SamplePreview]]:
        """Return functions that render a few samples of the last evaluation. Collective."""
        return []

    def report(self, module: ModuleT) -> None:
        """Write the reports on a test into the run's folder, on rank 0. Collective; called after `compute`."""

    def predict(self, module: ModuleT, batch: Any) -> list[PredictionLine]:
        """Return the lines of predictions for a batch, ordered by row."""
        raise NotImplementedError
