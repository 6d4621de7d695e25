"""Builds data modules of chat files, and reads back which samples a source has."""

from datamodules.multimodal.batch import ImageLayout
from datamodules.vision_language.image_chats import ImageChats
from datamodules.vision_language.source_config import SourceSettings

LAYOUT = ImageLayout(16, 4)
RED, GREEN, BLUE = (250, 0, 0), (0, 250, 0), (0, 0, 250)


def module(train, **settings):
    """Return a data module of one source or several, with batches of 4."""
    data = ImageChats([train] if isinstance(train, SourceSettings) else train, batch_size=4, **settings)
    data.image_layout = LAYOUT
    return data


def numbers_of(source):
    """Return the numbers that the pictures of a source's samples encode."""
    return [int(views.pixels[0, 0, 0, 0]) for views in (source.item(0, i).encoder_input for i in range(len(source)))]
