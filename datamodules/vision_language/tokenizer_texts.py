"""Yields texts of the user's chats that the built-in tokenizer is trained on."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice

from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.shards.chat_reader import read_sample
from datamodules.vision_language.source_config import SourceSettings
from engine.data.errors import BadSampleError

_TEXTS = 1000
"""Rows of each source that are read."""


def first_contents(sources: Sequence[SourceSettings], root: str, chats: Mixture | None) -> Iterator[str]:
    """Yield the contents of the messages of the first chats of each source.

    Args:
        sources: training sources.
        root: folder that `prepare` writes to.
        chats: the sources' chats; None: they are tar shards, which are read as a stream.
    """
    # Functions instead of chats, so that a bad sample does not end the iteration.
    for read in _first_samples(sources, root, chats):
        try:
            messages = read().messages
        except BadSampleError:
            continue  # reported when the sample is drawn
        yield from (message["content"] for message in messages)


def _first_samples(
    sources: Sequence[SourceSettings], root: str, chats: Mixture | None
) -> Iterator[Callable[[], ImageChat]]:
    if chats is not None:
        for file in chats.files:
            yield from (partial(file.read, row) for row in range(min(_TEXTS, len(file))))
        return
    for source in sources:
        samples = chain.from_iterable(shard.locations() for shard in source.shards(root))
        yield from (partial(read_sample, sample) for sample in islice(samples, _TEXTS))
