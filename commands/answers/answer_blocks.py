"""Defines the parts of an answer. The page draws them from their JSON (pages/blocks.js); the terminal prints them."""

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from PIL.Image import Image


class AnswerBlock(Protocol):
    """A part of an answer. `key` identifies it within the answer."""

    @property
    def key(self) -> str:
        """Identifier within an answer; a later block with the same key replaces this one."""
        ...

    def _asdict(self) -> dict[str, Any]: ...


class Text(NamedTuple):
    """A text with a title. `is_answer` marks the text that becomes a turn of the conversation."""

    key: str
    title: str
    text: str
    is_answer: bool = False
    faint: bool = False  # drawn faint: an answer to compare with, such as that without the picture


class Note(NamedTuple):
    """A line in small print: progress, or a remark."""

    key: str
    text: str


class Bar(NamedTuple):
    """A label with a share from 0 to 1."""

    label: str
    share: float


class Bars(NamedTuple):
    """Labels with shares, the largest first."""

    key: str
    title: str
    bars: Sequence[Bar]


class Table(NamedTuple):
    """A table. A later block with the same key replaces it; `note` is shown below it."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    note: str = ""


class Picture(NamedTuple):
    """A picture as a data URL, and a line below it."""

    url: str
    caption: str
    text: str = ""  # printed by a terminal instead of the picture


class Pictures(NamedTuple):
    """Pictures side by side."""

    key: str
    title: str
    pictures: Sequence[Picture]
    note: str = ""
    large: bool = False  # draw the pictures in large, not as thumbnails


class ChartLine(NamedTuple):
    """A curve: a value for each point, None where nothing was measured."""

    name: str
    values: Sequence[float | None]


class ChartMark(NamedTuple):
    """A mark on a chart: a point, a vertical line at a step, or a horizontal line at a value."""

    step: float | None
    value: float | None


class Chart(NamedTuple):
    """Curves over steps, from 0 to 100 at least, with marks."""

    key: str
    title: str
    lines: Sequence[ChartLine]
    marks: Sequence[ChartMark]
    every: int  # steps from a point to the next
    note: str = ""
    span: tuple[float, float] = (0.0, 100.0)  # labels of the axis at 0 and 100
    unit: str = ""  # of the numbers on the axis


class SliderStop(NamedTuple):
    """A position of a slider: the value that the field gets, and its label."""

    value: str
    label: str


class Slider(NamedTuple):
    """Values of a field of the question. The answer follows the slider: the page asks again with the value chosen."""

    key: str
    title: str
    field: str  # name of the field
    stops: Sequence[SliderStop]
    selected: int  # the stop of this answer
    note: str = ""


class RunBlock(NamedTuple):
    """A part of the answer of a run that is compared with others."""

    run: int  # from 0
    block: AnswerBlock

    @property
    def key(self) -> str:
        """Identifier within an answer."""
        return f"{self.run} {self.block.key}"


class Failure(NamedTuple):
    """The reason why a compared run has no answer."""

    key: str
    text: str


def png_data_url(image: "Image", min_edge: int = 0) -> str:
    """Return a PNG of an image as a data URL.

    Args:
        image: the image.
        min_edge: pixels of the longer edge, to which a smaller image is enlarged without interpolation.
    """
    from PIL.Image import Resampling

    factor = -(-min_edge // max(image.size))
    if factor > 1:
        image = image.resize((image.width * factor, image.height * factor), Resampling.NEAREST)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def block_as_json(block: AnswerBlock) -> dict[str, Any]:
    """Return a block as an object with its kind, for `json.dumps`."""
    if isinstance(block, RunBlock):
        return {"run": block.run, **block_as_json(block.block)}
    return {"kind": type(block).__name__.lower(), **to_plain_value(block)}


def to_plain_value(value: object) -> Any:
    """Return a value with its NamedTuples as objects, for `json.dumps`."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_plain_value(item) for name, item in value._asdict().items()}
    return [to_plain_value(item) for item in value] if isinstance(value, (list, tuple)) else value
