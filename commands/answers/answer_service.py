"""Declares what a family provides for `demo` and `chat`: the fields of the input, and answers as blocks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from commands.answers.answer_blocks import AnswerBlock

MEGABYTE = 2**20

MAX_SEARCH_RESULTS = 20
"""Largest number of values that a search of a field of the kind `pick` returns."""


class UserInputError(ValueError):
    """The input of a visitor cannot be used. The message states what was found and what is expected."""


class UploadedFile(NamedTuple):
    """A file that a visitor has given: its name, for messages, and its content."""

    name: str
    content: bytes


class FieldChoice(NamedTuple):
    """A value that a visitor can choose, and how it is shown."""

    value: str
    label: str


class SketchedCurve(NamedTuple):
    """A curve that can be drawn: the name of its column, its largest value, and the unit."""

    name: str
    top: float
    unit: str = ""


class Sketch(NamedTuple):
    """Axes on which a curve is drawn. The page sends it as a CSV file, in which a step that is not drawn is empty.

    Attributes:
        curves: what can be drawn, one at a time.
        points: number of steps.
        time: name of the column of times, or "".
        step: time from a step to the next.
    """

    curves: tuple[SketchedCurve, ...]
    points: int
    time: str = ""
    step: float = 1.0


class InputField(NamedTuple):
    """One part of the input.

    Attributes:
        name: key of the value in a UserQuestion.
        kind: `picture` and `file` are files; `text` is free text; `choice` is one of `choices`; `pick` is a list of
            values found by `AnswerService.search`; `time` is a time in ISO 8601, or empty.
        label: what the page shows above it.
        help: one sentence below it.
        suffixes: endings of accepted files, in lower case.
        max_bytes: largest accepted file.
        max_count: largest number of files or of picked values.
        choices: `choice`: its values; the first is the default.
        draw: `picture`: (ink, paper) in CSS colors if it can also be drawn.
        camera: `picture`: whether the camera of the visitor can take it.
        sketch: `file`: axes on which a curve can be drawn instead.
        times: `pick`: whether each value has a time.
        is_persistent: whether its value stays after a question has been asked; a question's text does not.
    """

    name: str
    kind: Literal["picture", "file", "text", "choice", "pick", "time"]
    label: str
    help: str = ""
    suffixes: tuple[str, ...] = ()
    max_bytes: int = 20 * MEGABYTE
    max_count: int = 1
    choices: tuple[FieldChoice, ...] = ()
    draw: tuple[str, str] | None = None
    camera: bool = False
    sketch: Sketch | None = None
    times: bool = False
    is_persistent: bool = True


class PickedValue(NamedTuple):
    """A value of the kind `pick`, with its time in ISO 8601, or ""."""

    value: str
    time: str = ""


class Example(NamedTuple):
    """Values by field that a visitor can try: of files a list of UploadedFile, of `pick` a list of PickedValue."""

    label: str
    values: Mapping[str, Any]
    picture: str | None = None  # data URL of its preview


class Turn(NamedTuple):
    """An earlier question of a conversation and its answer; with compared runs the answer of each run."""

    question: str
    answer: str
    others: tuple[str, ...] = ()


class UserQuestion(NamedTuple):
    """The input of one answer.

    Attributes:
        texts: values of the kinds `text`, `choice` and `time` by field.
        files: files by field.
        picked: values of the kind `pick` by field.
        turns: the conversation before it, the earliest turn first.
    """

    texts: Mapping[str, str] = {}
    files: Mapping[str, Sequence[UploadedFile]] = {}
    picked: Mapping[str, Sequence[PickedValue]] = {}
    turns: Sequence[Turn] = ()

    def file(self, field: str) -> UploadedFile:
        """Return the only file of a field. Raises UserInputError if there is none."""
        files = self.files.get(field, ())
        if not files:
            raise UserInputError(f"{field}: no file is given; give one first")
        return files[0]

    def text(self, field: str) -> str:
        """Return the text of a field without spaces around it. Raises UserInputError if it is empty."""
        text = self.texts.get(field, "").strip()
        if not text:
            raise UserInputError(f"{field}: it is empty; write something first")
        return text


class AnswerService(ABC):
    """Answers questions with one model. Every method runs in the thread that owns the model, one call at a time."""

    fields: Sequence[InputField]
    about: Sequence[tuple[str, str]] = ()
    """Facts about the run: name and value."""

    task: str = ""
    """The task of the model in one sentence, for the page. Runs with the same task can be compared."""

    runs: Sequence[str] = ()
    """Names of the runs that answer side by side; empty for one run."""

    is_conversation: bool = False
    """Whether a question may follow earlier ones, which `UserQuestion.turns` then has."""

    def examples(self) -> Sequence[Example]:
        """Return inputs to try; called once, when the page starts."""
        return ()

    def accept(self, field: InputField, file: UploadedFile) -> Iterator[AnswerBlock]:
        """Check a file before a question is asked of it; yield progress, and a preview.

        Raises:
            UserInputError: the file cannot be used.
        """
        yield from ()

    def search(self, field: InputField, text: str) -> Sequence[FieldChoice]:
        """Return at most MAX_SEARCH_RESULTS values of a field of the kind `pick` that match a text."""
        return ()

    def data_identity(self) -> Mapping[str, str]:
        """Return facts about the data that two runs must share to be asked the same questions: name and value."""
        return {}

    @abstractmethod
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        """Yield the answer. A block with the key of an earlier one replaces it.

        Raises:
            UserInputError: the question cannot be answered.
        """
