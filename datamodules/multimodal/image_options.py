"""Image options of a DataModule: tiling, the layout of a view, and preview images."""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from lightning.pytorch import Trainer

from datamodules.multimodal.batch import ImageLayout
from engine.telemetry.image_grid import encode_png_grid

if TYPE_CHECKING:
    from PIL.Image import Image


class ImageOptions:
    """Image options of a DataModule, with a cache of preview images.

    Args:
        max_tiles: maximum number of tiles along each edge of an image; 1 disables tiling.

    Raises:
        ValueError: `max_tiles` is below 1.
    """

    def __init__(self, max_tiles: int) -> None:
        if max_tiles < 1:
            raise ValueError(f"data.init_args.max_tiles must be at least 1 (images are not split), got {max_tiles}")
        self.max_tiles = max_tiles
        self._previews: dict[Hashable, bytes] = {}

    def layout(self, trainer: Trainer | None) -> ImageLayout:
        """Return the layout that the vision tower and the projector of the trainer's module impose on a view.

        Raises:
            ValueError: the module has no such parts.
        """
        assert trainer is not None  # setup runs under a trainer
        layout = getattr(trainer.lightning_module, "image_layout", None)
        if not isinstance(layout, ImageLayout):
            raise ValueError(
                "data.class_path: these data make views for a vision tower, which "
                f"{type(trainer.lightning_module).__name__} has not; use ImageChats"
            )
        return layout

    def preview(self, key: Hashable, load: Callable[[], Sequence["Image"]]) -> bytes | None:
        """Return the images of a sample as one PNG, or None if it has no images.

        Every validation previews the same samples, so the images of a key are loaded once.
        """
        if key not in self._previews and (images := load()):
            self._previews[key] = encode_png_grid(*images)
        return self._previews.get(key)
