"""A batch of questions as numbers of the host, and what is found out about its prompts."""

from typing import NamedTuple

from datamodules.document_qa.batch import QUESTION_ONLY, WHOLE, Asked, Shown
from lightning_modules.multimodal.reading import Written

Text = tuple[int, list[int]]
"""The place of an option, or another number that a text goes by; and its tokens, with the end of the turn."""


class Scored(NamedTuple):
    """How likely a text is after a prompt."""

    log_likelihood: float  # nats, of all its tokens
    count: int  # tokens, at least 1

    @property
    def per_token(self) -> float:
        return self.log_likelihood / self.count


class AskedBatch:
    """Prompts go by their places in the batch."""

    def __init__(self, asked: Asked) -> None:
        self.variants: list[int] = asked.variants.tolist()
        self.prompts: dict[int, dict[int, int]] = {}
        """{sample: {variant: prompt}}."""
        self._asks: set[int] = set()
        for place, sample in enumerate(asked.prompts.samples.tolist()):
            if sample >= 0:  # a filler asks nothing
                self.prompts.setdefault(sample, {})[self.variants[place]] = place
                self._asks.add(place)
        self.shown: dict[int, Shown] = {one.sample: one for one in asked.shown}
        self.given: dict[int, list[Text]] = {}
        """{prompt: what is to be scored after it}."""
        followed = asked.continuations
        for tokens, length, place, option in zip(*(part.tolist() for part in followed), strict=True):
            self.given.setdefault(place, []).append((option, tokens[:length]))
        self.scored: dict[tuple[int, int], Scored] = {}
        """{(prompt, number of a text): how likely it is}."""
        self.written: dict[int, Written] = {}
        """{prompt: what was written after it}."""

    def options(self, place: int) -> list[int]:
        """Places of the options of a prompt's question, in their order; none: it is open."""
        return sorted(option for option, _ in self.given.get(place, ()) if option >= 0)

    def is_open(self, place: int) -> bool:
        """Whether an answer is to be written."""
        return place in self._asks and self.variants[place] in (WHOLE, QUESTION_ONLY) and not self.options(place)
