"""Tests splits of the user's files: which document is in which split, and the messages on invalid files."""

import json
import logging
import shutil
from collections import Counter
from pathlib import Path

import pytest

from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.questions.question_source import QuestionSource
from datamodules.document_qa.questions.splits import SplitSettings
from datamodules.document_qa.user_documents import DocumentQuestions
from tests.support.data_files.document_folder import PARTS, questions_about, write_folder, write_pdf, write_questions
from tests.support.data_files.vision_language_files import png
from tests.support.outputs.jsonl import read_jsonl


@pytest.fixture(autouse=True)
def every_message(caplog):
    caplog.set_level(logging.DEBUG, "lockstep")


def module(folder, train, **settings):
    settings.setdefault("ingestion", IngestionSettings(dpi=36, workers=1))
    return DocumentQuestions(QuestionSource(**train), root=str(folder / "root"), batch_size=4, **settings)


def asked(data, split):
    questions = data.question_set(split)
    return [question for index in range(len(questions)) for question in questions.questions(0, index)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Ten documents and a copy of one under another name; ingested."""
    folder = tmp_path_factory.mktemp("prepared")
    train = write_folder(folder, range(10))
    shutil.copy(folder / "documents/manual-3.pdf", folder / "documents/again.pdf")
    with open(train["questions"], "a") as file:
        file.write("\n".join(json.dumps(question) for question in questions_about("again.pdf", 3, 40)) + "\n")
    module(folder, train).prepare()
    return folder, train


def test_each_document_is_in_one_split(prepared, messages):
    folder, train = prepared
    data = module(folder, train, split=SplitSettings(validation=0.2, test=0.3, seed=1))
    data.prepare()
    assert "11 documents already ingested" in messages[0]
    assert messages[1].startswith("train: ")
    assert messages[3].endswith(" documents")
    assert len(messages) == 4
    of = {split: {question.document for question in asked(data, split)} for split in ("train", "validation", "test")}
    assert [len(of[split] - {"again.pdf"}) for split in of] == [5, 2, 3]
    assert Counter(name for names in of.values() for name in names) == dict.fromkeys(
        [*(f"manual-{number}.pdf" for number in range(10)), "again.pdf"], 1
    )
    assert any({"manual-3.pdf", "again.pdf"} <= names for names in of.values())
    assert sum(len(asked(data, split)) for split in of) == 44
    turned = write_questions(folder / "turned.jsonl", read_jsonl(Path(train["questions"]))[::-1])
    other = module(folder, {**train, "questions": str(turned)}, split=data.split)
    assert {question.document for question in asked(other, "test")} == of["test"]


def test_a_sample_is_a_question_and_its_document(prepared):
    data = module(*prepared, split=SplitSettings(0, 0))
    questions = data.question_set("train")
    assert len(questions) == 44
    (question,) = questions.questions(3, 7)
    assert (question.id, question.options, question.evidence_pages) == ("7", (), (1,))
    document = questions.document(3, 7)
    assert document is questions.document(0, 6)
    assert document.name == question.document == "manual-1.pdf"
    assert question.answer in document.pages[0].chunks[-1].text
    assert questions.name(7) == f"7 ({prepared[1]['questions']}, line 8)"
    other = {questions.another_document(epoch, 13).name for epoch in range(40)}
    assert "manual-3.pdf" not in other
    assert "again.pdf" not in other
    assert len(other) > 5
    assert questions.another_document(5, 13).name == questions.another_document(5, 13).name


def test_a_chat_asks_about_one_document(prepared):
    data = module(*prepared, split=SplitSettings(0, 0.1), questions_per_chat=3)
    questions, seen = data.question_set("train"), []
    for epoch in (0, 1):
        chats = [questions.questions(epoch, index) for index in range(len(questions))]
        assert all(len({question.document for question in chat}) == 1 for chat in chats)
        assert all(chat[0].document == questions.document(epoch, index).name for index, chat in enumerate(chats))
        assert {len(chat) for chat in chats} == {3, 1}
        assert len(chats) == 2 * len(data.loaded_split("train").documents)
        seen.append([question.id for chat in chats for question in chat])
        assert sorted(seen[-1]) == sorted(question.id for question in data.loaded_split("train").questions)
    assert seen[0] != seen[1]
    assert {len(data.question_set("test").questions(0, index)) for index in range(4)} == {1}


def test_splits_may_have_files_of_their_own(tmp_path):
    train, test = write_folder(tmp_path / "train", range(6)), write_folder(tmp_path / "test", range(20, 22))
    sources = {"test": QuestionSource(**test), "split": SplitSettings(validation=0.2, test=0.5)}
    data = module(tmp_path, train, **sources)
    data.prepare()
    assert {question.document for question in asked(data, "test")} == {"manual-20.pdf", "manual-21.pdf"}
    assert len({question.document for question in asked(data, "train")}) == 5  # split.test counts for nothing


def test_files_that_share_a_document_are_refused(tmp_path):
    train, test = write_folder(tmp_path / "train", range(6)), write_folder(tmp_path / "test", range(20, 22))
    validation = write_folder(tmp_path / "validation", range(30, 31))
    shutil.copy(tmp_path / "train/documents/manual-4.pdf", tmp_path / "test/documents/manual-21.pdf")
    sources = {"test": QuestionSource(**test), "validation": QuestionSource(**validation)}
    data = module(tmp_path, train, **sources)
    output = (
        f"{test['questions']}, line 5: document 'manual-21.pdf' of data.init_args.test is also in "
        f"data.init_args.train, as 'manual-4.pdf' ({train['questions']}, line 17). "
    )
    with pytest.raises(ValueError) as raised:
        data.prepare()
    assert str(raised.value).startswith(output)
    with pytest.raises(ValueError, match="manual-21.pdf"):
        data.setup("fit")
    allowed = module(tmp_path, train, **sources, shared_documents="allow")
    allowed.prepare()
    assert len(asked(allowed, "test")) == 8
    shutil.copy(tmp_path / "validation/documents/manual-30.pdf", tmp_path / "test/documents/manual-21.pdf")
    with pytest.raises(ValueError, match="as 'manual-30.pdf' .*validation/questions"):
        module(tmp_path, train, **sources).prepare()


def test_questions_about_corrupt_documents_stop_or_are_skipped(tmp_path, messages):
    train = write_folder(tmp_path, range(4))
    (tmp_path / "documents/manual-2.pdf").write_bytes(b"%PDF-1.4 broken")
    with pytest.raises(ValueError, match="documents/manual-2.pdf: .*ingestion.on_broken to skip"):
        module(tmp_path, train).prepare()
    settings = IngestionSettings(dpi=36, workers=1, on_broken="skip")
    data = module(tmp_path, train, ingestion=settings, split=SplitSettings(0, 0))
    data.prepare()
    assert {question.document for question in asked(data, "train")} == {f"manual-{number}.pdf" for number in (0, 1, 3)}
    assert any(line.endswith("4 of 16 questions are about broken documents and skipped") for line in messages)
    assert any("manual-2.pdf is skipped: " in line for line in messages)


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"document": "manual-0.pfd"}, "line 2: found no document 'manual-0.pfd' in .*; did you mean manual-0.pdf"),
        ({"document": "nothing like it"}, "line 2: found no document 'nothing like it' in .*, which has 2 documents"),
        ({"document": "notes.docx"}, "line 2: .*notes.docx is not a document; expected a PDF, a Markdown file"),
        ({"document": "both"}, "line 2: found no document 'both' in .*: the name is ambiguous: both.md and both.png"),
        ({"evidence_pages": [1, 3]}, "line 2: evidence_pages: found 3, but manual-0.pdf has pages 1 to 2"),
        ({"id": 0}, "line 2: the id '0' is already used by .*, line 1"),
    ],
)
def test_an_error_in_a_question_is_reported_with_its_line(tmp_path, change, messages):
    write_pdf(tmp_path / "documents/manual-0.pdf", 0)
    (tmp_path / "documents/notes.docx").write_bytes(b"x")
    if change.get("document") == "both":
        (tmp_path / "documents/both.md").write_text("# x")
        (tmp_path / "documents/both.png").write_bytes(png((1, 2, 3), 20))
    else:
        write_pdf(tmp_path / "documents/other.pdf", 1)
    first, second = questions_about("manual-0.pdf", 0)[:2]
    write_questions(tmp_path / "q.jsonl", [first, {**second, **change}])
    train = {"questions": str(tmp_path / "q.jsonl"), "documents": str(tmp_path / "documents")}
    data = module(tmp_path, train, split=SplitSettings(0, 0))
    with pytest.raises(ValueError, match=messages):
        data.prepare()
        data.question_set("train")


def test_a_document_may_be_named_without_its_ending(tmp_path):
    write_pdf(tmp_path / "documents/manual-0.pdf", 0)
    write_questions(tmp_path / "q.jsonl", questions_about("manual-0", 0))
    train = {"questions": str(tmp_path / "q.jsonl"), "documents": str(tmp_path / "documents")}
    data = module(tmp_path, train, split=SplitSettings(0, 0))
    data.prepare()
    assert data.question_set("train").document(0, 0).name == "manual-0"


def test_documents_of_one_name_are_told_apart_by_their_folders(tmp_path):
    """The usual layout of manuals: a folder for each product."""
    texts = {"pump/manual.md": "# Pump\n\nIt is of steel.\n", "fan/manual.md": "# Fan\n\nIt is of brass.\n"}
    for name, text in texts.items():
        (tmp_path / "documents" / name).parent.mkdir(parents=True)
        (tmp_path / "documents" / name).write_text(text)
    rows = [{"id": name, "question": "Which material?", "document": name, "answer": "steel"} for name in texts]
    write_questions(tmp_path / "q.jsonl", rows)
    source = QuestionSource(str(tmp_path / "q.jsonl"), str(tmp_path / "documents"))
    settings = IngestionSettings(dpi=36, workers=1)
    source.ingest(tmp_path / "root", settings)
    found = source.read(tmp_path / "root", settings).documents
    assert {name: document.pages[0].chunks[1].text for name, document in found.items()} == {
        "pump/manual.md": "It is of steel.", "fan/manual.md": "It is of brass.",
    }  # fmt: skip


def test_markdown_and_folders_of_page_images_are_documents(tmp_path):
    folder = tmp_path / "documents"
    (folder / "scan").mkdir(parents=True)
    for page in (1, 2, 10):
        (folder / f"scan/page_{page}.png").write_bytes(png((page, 0, 0), 20))
    (folder / "guide.md").write_text("# One\n\ntext\n\n# Two\n\nmore\n")
    write_questions(tmp_path / "q.jsonl", [questions_about("scan", 0)[0], questions_about("guide.md", 1, 5)[0]])
    train = {"questions": str(tmp_path / "q.jsonl"), "documents": str(folder)}
    data = module(tmp_path, train, split=SplitSettings(0, 0))
    data.prepare()
    questions = data.question_set("train")
    assert [len(questions.document(0, index).pages) for index in range(2)] == [3, 2]


def test_the_page_images_of_mp_docvqa_are_found_by_their_ids(tmp_path, messages):
    names = [f"abcd0001_p{page}" for page in range(1, 12)]
    folder = tmp_path / "images"
    folder.mkdir()
    for page, name in enumerate(names):
        (folder / f"{name}.png").write_bytes(png((10 * page, 0, 0), 20))
    ask = {"question": "what ?", "doc_id": "abcd0001", "answers": ["x"]}
    records = [
        {**ask, "questionId": 1, "page_ids": names[:10], "answer_page_idx": 9},
        {**ask, "questionId": 2, "page_ids": names[1:], "answer_page_idx": 0},
        {**ask, "questionId": 3, "page_ids": names[:1], "doc_id": "other", "answer_page_idx": 0},
    ]
    (tmp_path / "train.json").write_text(json.dumps({"data": records}))
    train = {"questions": str(tmp_path / "train.json"), "documents": str(folder)}
    data = module(tmp_path, train, split=SplitSettings(0, 0.4))
    data.prepare()
    together = next(split for split in ("train", "test") if len(data.loaded_split(split).questions) == 2)
    questions = data.question_set(together)  # two ranges of pages of one document
    assert [question.id for question in asked(data, together)] == ["1", "2"]
    assert [len(questions.document(0, index).pages) for index in range(2)] == [10, 10]
    assert questions.document(0, 1).picture(1).getpixel((5, 5))[0] == 10
    assert questions.document(0, 0).picture(10).getpixel((5, 5))[0] == 90
    messages.clear()
    module(tmp_path, train).prepare_data()
    assert "nothing to do" in messages[-1]
    (folder / f"{names[4]}.png").unlink()
    with pytest.raises(ValueError, match="train.json, record 0: found no image abcd0001_p5 in .*images, expected"):
        module(tmp_path, train).prepare_data()


def test_of_one_document_there_is_no_other(tmp_path):
    train = write_folder(tmp_path, range(1))
    data = module(tmp_path, train, split=SplitSettings(0, 0))
    data.prepare()
    with pytest.raises(ValueError, match=r"\(train\): ablation and augmentation need another document"):
        data.question_set("train").another_document(0, 0)


def test_missing_settings_and_documents_are_reported(prepared):
    data = module(*prepared, split=SplitSettings(0, 0.1))
    for split, what in (("validation", "data.init_args.split.validation is 0"), ("predict", "data.init_args.predict_")):
        with pytest.raises(ValueError, match=what):
            data.question_set(split)
    with pytest.raises(ValueError, match="predict_documents .* must be set together"):
        module(*prepared, predict_questions="q.jsonl")
    with pytest.raises(ValueError, match="data.init_args.split.test must be at least 0 and less than 1, got 2"):
        module(*prepared, split=SplitSettings(test=2))
    with pytest.raises(ValueError, match="not ingested into .*run `python train.py prepare`"):
        module(*prepared, ingestion=IngestionSettings(dpi=40)).question_set("train")


def test_the_built_in_tokenizer_knows_the_users_words(prepared):
    data = module(*prepared)
    ids = data.tokenizer.encode("pump steel 3 kg")
    assert data.tokenizer.decode(ids) == "pump steel 3 kg"
    assert len(ids) < 8
    assert all(part in "\n".join(data.texts()) for part in PARTS)


def test_a_resumed_run_reports_other_questions(prepared):
    folder, train = prepared
    identity = module(folder, train).loaded_split("train").identity
    assert module(folder, train).loaded_split("train").identity == identity
    records = read_jsonl(Path(train["questions"]))
    held = module(folder, train).loaded_split("train").questions[0].id
    changed = [{**record, "question": "else ?"} if str(record["id"]) == held else record for record in records]
    other = write_questions(folder / "other.jsonl", changed)
    assert module(folder, {**train, "questions": str(other)}).loaded_split("train").identity != identity
