"""Defines the interface between the temporal family's module and its data."""

from typing import TYPE_CHECKING, Protocol

from datamodules.multimodal.interface import GradedData
from datamodules.temporal.batch import SeriesLayout


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

    def options(self, sample: int) -> tuple[str, ...]:
        """Return the options of a sample, which are scored; empty if its answer is generated, and for padding."""

    def option_tokens(self, option: str) -> tuple[int, ...]:
        """Return the tokens of an option as the assistant's turn, the end of the turn among them."""

    def chance(self, sample: int) -> dict[str, tuple[float, float]]:
        """Return the expected points of a guess among the options, for the baseline `chance`."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interface here
    from datamodules.temporal.series.datamodule import SeriesDataModule
    from datamodules.temporal.timelines.datamodule import ResourceTimelines

    def _provided(data: ResourceTimelines | SeriesDataModule) -> TemporalData:
        return data
