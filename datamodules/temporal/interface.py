"""Interface between the temporal family's module and its data."""

from typing import TYPE_CHECKING, Protocol

from datamodules.multimodal.interface import GradedData
from datamodules.temporal.batch import SeriesLayout


class TemporalData(GradedData, Protocol):
    """Timelines with questions about them. Implemented by ResourceTimelines."""

    @property
    def layout(self) -> SeriesLayout:
        """Channels of a series, and its number of feature vectors."""

    def right_answer(self, sample: int) -> str:
        """Return the reference answer to a sample of the evaluated set."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interface here
    from datamodules.temporal.datamodule import ResourceTimelines

    def _provided(data: ResourceTimelines) -> TemporalData:
        return data
