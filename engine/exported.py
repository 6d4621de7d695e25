"""What a family says of its export and of its data, for the model card beside the weights."""

from typing import NamedTuple


class DataDescription(NamedTuple):
    """What a model was trained on, in plain English."""

    name: str
    """A few words: `MovieLens ml-1m`."""
    content: str
    """Sentences: what it is, and how much of it."""
    licence: str
    """Sentences: on what terms it may be used, as its owners say it, or that they say nothing."""


class Exported(NamedTuple):
    """What has been written, and how it is used."""

    title: str
    """A few words: `SASRec with hyper-connections`."""
    content: str
    """Sentences: what the model does."""
    files: dict[str, str]
    """What is in each file, by its name."""
    usage: str
    """Markdown: how it is loaded and asked."""
    library: str
    """By the hub's names: `transformers`, `peft`, `onnx`."""
    tags: tuple[str, ...] = ()
    pipeline: str | None = None
    """The hub's name of the task: `image-classification`."""
    pretrained: dict[str, str | None] = {}
    """Pretrained models that are in it or that it is put on, by name: the licence that their files state, if any."""
    checked: str | None = None
    """What was compared before the export was called good, with the figures found."""
