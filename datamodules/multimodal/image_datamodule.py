"""The base of DataModules whose chats have images in them."""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.datamodule import MultimodalDataModule
from datamodules.multimodal.exported_tokenizer import exported_tokenizer
from datamodules.multimodal.images import MARKER, Fit
from engine.pictures import png

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

    fit: Fit = "stretch"
    """How an image becomes a square view."""

    def __init__(self, max_tiles: int = 1, **batches: Any) -> None:
        super().__init__(**batches)
        if max_tiles < 1:
            raise ValueError(f"data.init_args.max_tiles must be at least 1 (images are not split), got {max_tiles}")
        self.max_tiles = max_tiles
        self._pictures: dict[Hashable, bytes] = {}

    def picture(self, name: Hashable, images: Callable[[], Sequence["Image"]]) -> bytes | None:
        """Of what every validation shows again: its images are asked for once. None where there are none."""
        if name not in self._pictures and (found := images()):
            self._pictures[name] = png(*found)
        return self._pictures.get(name)

    @cached_property
    def image_layout(self) -> ImageLayout:
        """What vision tower and projector, which are the module's, make of a view. Known from `setup` on."""
        return self.trainer.lightning_module.image_layout

    def exported_tokenizer(self) -> "PreTrainedTokenizerFast":
        """The tokenizer for other programs, whose chat template takes images."""
        return exported_tokenizer(self.tokenizer, self.marker)
