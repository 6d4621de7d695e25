"""The base of the vision-language family's DataModules: chats with images in them."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.chat import Message
from datamodules.multimodal.datamodule import MultimodalDataModule
from datamodules.multimodal.exported_tokenizer import exported_tokenizer
from datamodules.vision_language.image_chat import MARKER

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import PreTrainedTokenizerFast


class ImageDataModule(MultimodalDataModule):
    """Chats with images.

    Args:
        max_tiles: the most tiles along each edge that a larger image is split into, beside a view of the whole; 1: an image is one view.
        batches: see MultimodalDataModule and LockstepDataModule.
    """  # noqa: E501

    marker = MARKER

    def __init__(self, max_tiles: int = 1, **batches: Any) -> None:
        super().__init__(**batches)
        if max_tiles < 1:
            raise ValueError(f"data.init_args.max_tiles must be at least 1 (images are not split), got {max_tiles}")
        self.max_tiles = max_tiles

    @cached_property
    def image_layout(self) -> ImageLayout:
        """What vision tower and projector, which are the module's, make of a view. Known from `setup` on."""
        return self.trainer.lightning_module.image_layout

    def exported_tokenizer(self) -> "PreTrainedTokenizerFast":
        """The tokenizer for other programs, whose chat template takes images."""
        return exported_tokenizer(self.tokenizer, self.marker)

    # -- of the set that is evaluated: what the reports show of a sample ---------------------------------------------

    @abstractmethod
    def images(self, sample: int) -> list["Image"]:
        """Its images, before they are cut to views."""

    def question(self, sample: int) -> str:
        """What the user says, without the markers; of several turns, one a line."""
        turns = (message["content"] for message in self._messages(sample) if message["role"] == "user")
        return "\n".join(turn.replace(self.marker, "").strip() for turn in turns)

    def right_answer(self, sample: int) -> str:
        """What the assistant should say last; nothing where that is not known."""
        messages = self._messages(sample)
        return messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""

    def _messages(self, sample: int) -> Sequence[Message]:
        return self.evaluated.item(0, sample).messages
