"""Provides the base of DataModules of chats with images: tiling, the layout of a view, and preview images."""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from datamodules.multimodal.batch import ImageLayout, Images, Tiling
from datamodules.multimodal.datamodule import ChatOptions, MultimodalDataModule
from datamodules.multimodal.images.image_processing import prepare_images
from datamodules.multimodal.images.tiling import MARKER, ResizeMode, collate_views
from datamodules.multimodal.interface import HasImageLayout
from datamodules.multimodal.text.tokenizer_export import exported_tokenizer
from engine.base_options import Unpack
from engine.number_check import check_number
from engine.telemetry.image_grid import encode_png_grid

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import PreTrainedTokenizerFast


class TileOptions(ChatOptions, total=False):
    """Options of ImageDataModule, which describes them, and of its bases."""

    max_tiles: int


class ImageDataModule(MultimodalDataModule):
    """Chats with images, which become square views.

    Args:
        max_tiles: maximum number of tiles along each edge that a larger image is split into, besides a view of the
            whole image; 1 disables tiling.
        **batches: see MultimodalDataModule and LockstepDataModule.

    Raises:
        ValueError: `max_tiles` is below 1.
    """

    marker = MARKER

    resize_mode: ResizeMode = "stretch"
    """How an image becomes a square view."""

    tiling: Tiling = "tile_positions"
    """How an image becomes views, and the order of their features."""

    def __init__(self, max_tiles: int = 1, **batches: Unpack[ChatOptions]) -> None:
        super().__init__(**batches)
        check_number("data.init_args.max_tiles", max_tiles, at_least=1)
        self.max_tiles = max_tiles
        self._image_previews: dict[Hashable, bytes] = {}

    @cached_property
    def image_layout(self) -> ImageLayout:
        """Layout of a view, which the vision tower and the projector determine; known from `setup` on.

        Raises:
            ValueError: the trainer's module has no such parts.
        """
        assert self.trainer is not None  # setup runs under a trainer
        module = self.trainer.lightning_module
        if not isinstance(module, HasImageLayout):
            raise ValueError(
                f"data.class_path: {type(self).__name__} prepares images for a vision tower, but "
                f"{type(module).__name__} has none: use ImageChats"
            )
        return module.image_layout

    def exported_tokenizer(self) -> "PreTrainedTokenizerFast":
        """Return the tokenizer for other programs, with a chat template that takes images."""
        return exported_tokenizer(self.tokenizer, self.marker, self.image_layout.special_tokens)

    def prepare_images(self, images: Sequence["Image"]) -> Images:
        """Return images as the vision tower reads them."""
        _, views = prepare_images(images, self.image_layout, self.resize_mode)
        return collate_views([views], self.image_layout)

    def preview_images(self, key: Hashable, load: Callable[[], Sequence["Image"]]) -> bytes | None:
        """Return the images of a sample as one PNG, or None if it has no images.

        Every validation previews the same samples, so the images of a key are loaded once.
        """
        if key not in self._image_previews and (images := load()):
            self._image_previews[key] = encode_png_grid(*images)
        return self._image_previews.get(key)
