"""Asks several runs the same question. Each part of an answer names its run."""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

from typing_extensions import override

from commands.answers.answer_blocks import AnswerBlock, Failure, Note, RunBlock, Slider
from commands.answers.answer_service import (
    AnswerService,
    Example,
    FieldChoice,
    InputField,
    Turn,
    UploadedFile,
    UserInputError,
    UserQuestion,
)

T = TypeVar("T")


class ComparedRun(NamedTuple):
    """A compared run: its name, its answer service, and the context in which its model computes."""

    name: str
    service: AnswerService
    context: Callable[[], AbstractContextManager[None]]


class ComparedAnswers(AnswerService):
    """Asks the same question of several runs. What a run answers does not depend on the others.

    Args:
        runs: the runs; the first provides the examples and the searches.

    Raises:
        ValueError: the runs are of different tasks or data.
    """

    def __init__(self, runs: Sequence[ComparedRun]) -> None:
        first, *others = runs
        for other in others:
            _check_comparable(first, other)
        self._runs = runs
        self._fields = [{field.name: field for field in run.service.fields} for run in runs]
        self.task = first.service.task
        self.is_conversation = first.service.is_conversation
        self.runs = [run.name for run in runs]
        self.fields = _join_fields(self._fields)
        equal = [fact for fact in first.service.about if all(fact in run.service.about for run in others)]
        own_fields = [
            (f"{run.name}: {name}", value)
            for run in runs
            for name, value in run.service.about
            if (name, value) not in equal
        ]
        self.about = [*own_fields, *equal]

    @override
    def examples(self) -> Sequence[Example]:
        return self._runs[0].service.examples()

    @override
    def search(self, field: InputField, text: str) -> Sequence[FieldChoice]:
        number = next(index for index, fields in enumerate(self._fields) if field.name in fields)
        with self._runs[number].context():
            return self._runs[number].service.search(self._fields[number][field.name], text)

    @override
    def accept(self, field: InputField, file: UploadedFile) -> Iterator[AnswerBlock]:
        shown = False
        for run, fields in zip(self._runs, self._fields, strict=True):
            if field.name in fields:
                for block in _steps(run.service.accept(fields[field.name], file), run.context):
                    if not shown or isinstance(block, Note):  # the preview of the first run stands for all
                        yield block
                shown = True

    @override
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        failures: dict[int, str] = {}
        has_slider = False
        for number, run in enumerate(self._runs):
            try:
                for block in _steps(run.service.answer(self._question_of(number, question)), run.context):
                    if not isinstance(block, Slider):
                        yield RunBlock(number, block)
                    elif not has_slider:  # it is of the question, which the runs share
                        has_slider = True
                        yield block
            except UserInputError as error:
                failures[number] = str(error)
        # No run can use the input: a single error without an answer, as from a single run.
        if len(failures) == len(self._runs):
            raise UserInputError("; ".join(dict.fromkeys(failures.values())))
        for number, message in failures.items():
            yield RunBlock(number, Failure("failure", message))

    def _question_of(self, number: int, question: UserQuestion) -> UserQuestion:
        """Return the question as the page of this run alone would send it."""
        fields = self._fields[number]
        if any(len(turn.others) != len(self._runs) - 1 for turn in question.turns):
            raise UserInputError(f"the conversation has no answer of each of {len(self._runs)} runs; begin a new one")
        turns = [Turn(turn.question, (turn.answer, *turn.others)[number]) for turn in question.turns]
        picked = {
            name: values if fields[name].times else [value._replace(time="") for value in values]
            for name, values in question.picked.items()
            if name in fields
        }
        texts = {name: text for name, text in question.texts.items() if name in fields}
        return UserQuestion(
            texts, {name: files for name, files in question.files.items() if name in fields}, picked, turns
        )


def fingerprint(values: Iterable[object]) -> str:
    """Return the number of values and a hash of their texts, which distinguishes two data sets."""
    texts = [str(value) for value in values]
    digest = hashlib.sha256()
    for text in texts:
        # The lengths distinguish ("ab", "c") from ("a", "bc"). Names of files may have lone surrogates, which
        # UTF-8 refuses without "surrogatepass".
        digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
    return f"{len(texts):,} ({digest.hexdigest()[:8]})"


def _check_comparable(first: ComparedRun, other: ComparedRun) -> None:
    if first.service.task != other.service.task:
        raise ValueError(
            f"--compare {other.name}: it has another task ({other.service.task}) than {first.name} "
            f"({first.service.task}); expected two runs of one family"
        )
    found, expected = other.service.data_identity(), first.service.data_identity()
    for name, value in expected.items():
        if found.get(name) != value:
            raise ValueError(
                f"--compare {other.name}: found other data than {first.name}'s: {name} {found.get(name)}, "
                f"expected {value}"
            )


def _join_fields(of_runs: Sequence[dict[str, InputField]]) -> list[InputField]:
    """Return the fields of all runs, each once. A value has a time if a run reads it."""
    fields: dict[str, InputField] = {}
    for field in (field for own in of_runs for field in own.values()):
        known = fields.get(field.name)
        fields[field.name] = field if known is None or (field.times and not known.times) else known
    return list(fields.values())


def _steps(iterator: Iterator[T], context: Callable[[], AbstractContextManager[None]]) -> Iterator[T]:
    """Iterate, with each step in a new context.

    A context around the whole iteration would stay entered at each `yield`, while the caller runs another model.
    """
    try:
        while True:
            with context():
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
    finally:  # the caller may stop early; the generator then releases what it holds at once
        if isinstance(iterator, Generator):
            iterator.close()
