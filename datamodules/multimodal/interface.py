"""Defines the interfaces between the modules of the multimodal families and their data."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from datamodules.multimodal.batch import ChatEvaluationBatch, ImageLayout, Images, Tiling
from datamodules.multimodal.images.tiling import ResizeMode
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from engine.interface import LockstepData
from engine.telemetry.sample_previews import SamplePreview

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import PreTrainedTokenizerFast


class ChatData(LockstepData, Protocol):
    """Data of a MultimodalModule: chats as tokens. Implemented by MultimodalDataModule."""

    @property
    def tokenizer(self) -> ChatTokenizer:
        """Tokenizer of all chats. The language model has an embedding row for each of its tokens."""

    @property
    def tokenizer_source(self) -> str | None:
        """Name on the Hugging Face hub or local directory of the tokenizer; None for the built-in tokenizer."""

    def sample_name(self, sample: int) -> str:
        """Return the index of a sample of the evaluated set with the file and row that it comes from."""


class ImageData(ChatData, Protocol):
    """Data of ImageFeatures: how images become views. Implemented by the two families with images."""

    @property
    def max_tiles(self) -> int:
        """Maximum number of tiles along each edge of an image; 1 disables tiling."""

    @property
    def tiling(self) -> Tiling:
        """How an image becomes views, and the order of their features."""


@runtime_checkable
class HasImageLayout(Protocol):
    """A module of ImageData: its vision tower and its projector determine the layout of a view."""

    @property
    def image_layout(self) -> ImageLayout:
        """Layout of a view."""


class ImageChatData(ImageData, Protocol):
    """Data of a module of image chats that is exported for transformers. Implemented by the families' DataModules."""

    @property
    def resize_mode(self) -> ResizeMode:
        """How an image becomes a square view."""

    def exported_tokenizer(self) -> "PreTrainedTokenizerFast":
        """Return the tokenizer for other programs, with a chat template that takes images."""

    def prepare_images(self, images: Sequence["Image"]) -> Images:
        """Return images as the vision tower reads them."""


class GradedData(ChatData, Protocol):
    """Data of a GenerativeEvaluation: answers are graded one by one. Implemented by MultimodalDataModule.

    A `sample` is an index of the set that is being evaluated.
    """

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the outcomes that `grade` returns, the most informative first."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of questions whose losses are logged separately; empty for none."""

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of baselines that answer as well, besides the model and the model without its modality."""

    def kind(self, sample: int) -> str:
        """Return the kind of a sample, one of `kinds`; the empty string if there are none."""

    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        """Return {outcome: (points reached, points possible)} of an answer."""

    def question_text(self, sample: int) -> str:
        """Return what a sample asks, as people read it."""

    def right_answer(self, sample: int) -> str:
        """Return the reference answer to a sample; empty if it is unknown."""

    def sample_preview(self, sample: int, text: str, blind: str) -> SamplePreview:
        """Return a preview of a sample with the model's answer and its answer without the modality."""

    def describe(self, row: int) -> Mapping[str, Any]:
        """Return the fields that `predict` writes besides the answer, for a row of `predict_set`."""

    def next_turns(self, answers: Mapping[int, Sequence[str]]) -> ChatEvaluationBatch | None:
        """Return the next questions of the conversations of `predict_set`; None if all are answered.

        Args:
            answers: {row: the model's answers so far}.
        """

    def write_test_report(self, folder: str, answers: Sequence[tuple[int, str, str]]) -> None:
        """Write the report of a test into a run's folder.

        Args:
            folder: the run's folder.
            answers: (sample, answer, answer without the modality), in the order of the samples.
        """


ChatDataT = TypeVar("ChatDataT", bound=ChatData, covariant=True)
ImageDataT = TypeVar("ImageDataT", bound=ImageData, covariant=True)
ImageChatDataT = TypeVar("ImageChatDataT", bound=ImageChatData, covariant=True)
