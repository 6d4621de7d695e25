"""Interface between the temporal family's module and its data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from datamodules.multimodal.interface import GradedData
from datamodules.temporal.batch import SeriesLayout


class Option(NamedTuple):
    """An option of a question."""

    text: str
    tokens: tuple[int, ...]  # as the assistant's turn, the end of the turn among them


class TemporalData(GradedData, Protocol):
    """Series with questions about them. Implemented by ResourceTimelines and SeriesDataModule."""

    @property
    def layout(self) -> SeriesLayout:
        """Channels of a series, and its number of feature vectors."""

    def right_answer(self, sample: int) -> str:
        """Return the reference answer to a sample of the evaluated set."""

    def trained_steps(self) -> int:
        """Return the number of steps of the longest training series; in a fit."""

    def evaluated_steps(self) -> int:
        """Return the number of steps of the longest series of the evaluated set."""

    def options(self, sample: int) -> Sequence[Option]:
        """Return the options of a sample, which are scored; empty if its answer is generated, and for padding."""

    def chance(self, sample: int) -> dict[str, tuple[float, float]]:
        """Return the expected points of a guess among the options, for the baseline `chance`."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interface here
    from datamodules.temporal.datamodule import ResourceTimelines
    from datamodules.temporal.series.datamodule import SeriesDataModule

    def _provided(data: ResourceTimelines | SeriesDataModule) -> TemporalData:
        return data
