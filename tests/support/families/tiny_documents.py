"""Defines the smallest document-QA family: documents with a page of text, a table and a figure."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.document_qa.datamodule import DocumentDataModule
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.document_qa.types.question import UNANSWERABLE, Question, SplitName
from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.text.tokenizer import ChatTokenizer, load_tokenizer
from tests.support.families.colored_squares import COLORS, write_run

PARTS = ("bolt", "cover", "lever", "spring")
MATERIALS = ("steel", "brass", "nylon", "rubber")
SIZE = (60, 80)
"""Pixels of a page's width and height."""

LAYOUT = ImageLayout(size=16, tokens=4)


class TinyDocument:
    """Device `number`: what a part is made of stands on page 1, its mass on page 2; page 3 shows its color."""

    def __init__(self, number: int) -> None:
        random = np.random.default_rng(number)
        self.name = f"device-{number}"
        self.materials = dict(zip(PARTS, random.permutation(MATERIALS).tolist(), strict=True))
        self.masses = dict(zip(PARTS, random.permutation(8)[:4].tolist(), strict=True))
        self.colour = str(random.choice(list(COLORS)))

    @property
    def pages(self) -> Sequence[Page]:
        made_of = [f"The {part} is made of {material}." for part, material in self.materials.items()]
        table = "\n".join(["part | mass", *(f"{part} | {mass} kg" for part, mass in self.masses.items())])
        top, bottom = (0.1, 0.1, 0.9, 0.4), (0.1, 0.6, 0.9, 0.9)
        return (
            Page(1, (Chunk(1, "text", top, made_of[0] + " " + made_of[1]), Chunk(1, "text", bottom, made_of[2]))),
            Page(2, (Chunk(2, "text", top, made_of[3]), Chunk(2, "table", bottom, table))),
            Page(3, (Chunk(3, "text", top, "Figure 1: the cover."), Chunk(3, "figure", bottom, ""))),
        )

    def picture(self, page: int) -> Any:
        """White paper; a text is grey, a table black, a figure in the cover's color."""
        from PIL import Image

        picture = Image.new("RGB", SIZE, (255, 255, 255))
        for chunk in self.pages[page - 1].chunks:
            colour = {"text": (120, 120, 120), "table": (0, 0, 0), "figure": COLORS[self.colour]}[chunk.kind]
            left, top, right, bottom = chunk.box
            box = (round(left * SIZE[0]), round(top * SIZE[1]), round(right * SIZE[0]), round(bottom * SIZE[1]))
            picture.paste(colour, box)
        return picture

    def figure(self, chunk: Chunk) -> Any:
        from PIL import Image

        return Image.new("RGB", (48, 24), COLORS[self.colour])


class TinyQuestions:
    """Four kinds in turn: text, table, figure (choices, but table questions are open) and unanswerable.

    Args:
        split: its number keeps the documents of splits apart.
        size: samples.
        together: questions of a sample.
    """

    def __init__(self, split: int, size: int, together: int = 1) -> None:
        self.split, self.size, self.together = split, size, together

    def __len__(self) -> int:
        return self.size

    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} (tiny documents {self.split})"

    def document(self, epoch: int, index: int) -> TinyDocument:
        return TinyDocument(1000 * self.split + index // 4)

    def another_document(self, epoch: int, index: int) -> TinyDocument:
        return TinyDocument(1000 * self.split + index // 4 + 500)

    def questions(self, epoch: int, index: int) -> list[Question]:
        return [self._question(index, index + offset) for offset in range(self.together)]

    def _question(self, index: int, turn: int) -> Question:
        document, part = self.document(0, index), PARTS[turn // 4 % 4]
        about = {"id": f"{self.split}-{index}-{turn}", "document": document.name}
        if turn % 4 == 1:
            answer = f"{document.masses[part]} kg"
            asked = f"What is the mass of the {part}?"
            return Question(
                **about, question=asked, answer=answer, answer_type="number", evidence_pages=(2,), source="table"
            )
        if turn % 4 == 3:
            return Question(
                **about,
                question="Who painted the cover?",
                answer=UNANSWERABLE,
                answer_type="unanswerable",
                source="none",
            )
        figure = turn % 4 == 2
        options, answer = (COLORS, document.colour) if figure else (MATERIALS, document.materials[part])
        asked = "Which colour is the cover?" if figure else f"What is the {part} made of?"
        page = 3 if figure else 2 if part == "spring" else 1
        return Question(
            **about,
            question=asked,
            options=tuple(options),
            answer=answer,
            right=list(options).index(answer),
            answer_type="choice",
            evidence_pages=(page,),
            source="figure" if figure else "text",
        )


class TinyDocuments(DocumentDataModule):
    """`size` samples in each split."""

    def __init__(self, size: int = 32, **documents: Any) -> None:
        super().__init__(**documents)
        self.size = size

    def question_set(self, split: SplitName) -> TinyQuestions:
        number = ("train", "validation", "test", "predict").index(split)
        return TinyQuestions(number, self.size, self.questions_per_chat if split == "train" else 1)

    def texts(self) -> Iterator[str]:
        yield from tiny_texts()


def tiny_texts() -> Iterator[str]:
    """Yield all texts of the documents."""
    questions = TinyQuestions(0, 64)
    for index in range(64):
        yield "\n".join(chunk.text for page in questions.document(0, index).pages for chunk in page.chunks)
        (question,) = questions.questions(0, index)
        yield "\n".join([question.question, *question.options, str(question.answer)])


def tiny_tokenizer() -> ChatTokenizer:
    """Return a tokenizer like the tokenizer of TinyDocuments."""
    return load_tokenizer(None, tiny_texts())


def write_config(folder: Path, **model: Any) -> list[str]:
    """The options of a run that takes a second."""
    data = {
        "class_path": "tests.support.families.tiny_documents.TinyDocuments",
        "init_args": {"batch_size": 16, "evaluation_batch_size": 16},
    }
    return write_run(
        folder / "document_qa.yaml", "DocumentReader", {"max_new_tokens": 4, **model}, data, "val/accuracy"
    )
