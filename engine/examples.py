"""A sample and what a model made of it, in a form that every record of a run can show."""

from typing import NamedTuple


class Example(NamedTuple):
    """What is shown of a sample. Texts are plain text, in the user's language, and may be of several lines."""

    name: str
    """The sample's: the same at every evaluation, on any number of processes."""
    question: str
    """What the model was given: a user's last items, a question, ...; of pictures what `picture` does not show."""
    expected: str
    answer: str
    right: bool | None = None
    """None where an answer is neither right nor wrong."""
    picture: bytes | None = None
    """A PNG file: the image, the page, the curves."""
    blind: str | None = None
    """What the model answers without having seen that; None where it is not asked so."""
