"""Tests tables of questions in the formats of public benchmarks, from rows to the command line."""

import base64
import csv
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from datamodules.vision_language.chat_file import ReferenceAnswer
from datamodules.vision_language.evaluation_dataset import EvaluationDataset
from datamodules.vision_language.files.question_fields import INSTRUCTION, parse_image_question
from datamodules.vision_language.files.question_tables import QuestionParquet, QuestionText
from datamodules.vision_language.grading import chosen_letter, grade_reference
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.source_config import SourceSettings
from engine.data.errors import BadSampleError
from tests.support.data_files.vision_language_files import png
from tests.support.families.colored_squares import write_config

RED, BLUE = png((250, 0, 0), 64), png((0, 0, 250), 64)
METRICS = (
    "test/exact",
    "test/kind_0/exact",
    "test/kind_1/exact",
    "test/baseline/blind/kind_0/exact",
    "test/kind_1/loss",
)
MMBENCH = ("index", "question", "hint", "A", "B", "C", "D", "answer", "category", "image", "split")


def write_tsv(path, header, rows, delimiter="\t"):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def write_parquet(path, rows, **options):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def texts(chat):
    return [(message["role"], message["content"]) for message in chat.messages]


def test_rows_of_mmbench_become_questions_with_images(tmp_path):
    """A row of the circular evaluation names the row that has its image."""
    encoded = base64.b64encode(RED).decode()
    rows = [
        ["241", 'Which "colour"?\nLook.', "Hint: é", "red", "blue", "nan", "", "A", "colour/hue", encoded, "dev"],
        ["1000241", "Which?", "nan", "blue", "red", "", "", "B", "position", "241", "dev"],
    ]
    table = QuestionText(write_tsv(tmp_path / "mmbench.tsv", MMBENCH, rows))
    first, second = table.read(0), table.read(1)
    prompt = f'<image>\nHint: é\nWhich "colour"?\nLook.\nA. red\nB. blue\n{INSTRUCTION}'
    assert texts(first) == [("user", prompt), ("assistant", "A")]
    assert first.reference == ReferenceAnswer("colour_hue", ("A",), "AB", ("red", "blue"))
    assert texts(second)[1] == ("assistant", "B")
    assert second.images == first.images == [RED]
    assert [table.name(0), table.name(1)] == [f"{table.path}, line 2", f"{table.path}, line 4"]


def test_rows_of_a_csv_file_with_paths_become_questions_with_images(tmp_path):
    (tmp_path / "red.png").write_bytes(RED)
    header = ("question", "options", "answer", "image")
    rows = [["Which?", "red|blue", "blue", "red.png"], ["Which?", '["a|b", "c"]', "B", ""], [""] * 4]
    table = QuestionText(write_tsv(tmp_path / "own.csv", header, rows, ","))
    assert [chat.reference.options for chat in map(table.read, range(2))] == [("red", "blue"), ("a|b", "c")]
    assert table.read(0).images == [RED]
    assert texts(table.read(1))[1] == ("assistant", "B")
    assert len(table) == 2


def test_rows_of_mmstar_scienceqa_and_docvqa_become_questions(tmp_path):
    image = {"bytes": BLUE, "path": None}
    tables = {
        "mmstar": {
            "index": 7,
            "question": "Which?\nOptions: A: red, B: blue",
            "image": BLUE,
            "answer": "B",
            "category": "coarse perception",
            "l2_category": "hue",
        },
        "scienceqa": {
            "image": image,
            "question": "Which?",
            "choices": ["red", "blue"],
            "answer": 1,
            "hint": "",
            "category": "Colours",
        },
        "docvqa": {
            "questionId": "1",
            "question": "Date?",
            "question_types": ["form", "table"],
            "image": image,
            "answers": ["May 5", "5 May", "May 5"],
        },
    }
    found = {}
    for name, row in tables.items():
        found[name] = QuestionParquet(write_parquet(tmp_path / f"{name}.parquet", [row]), tmp_path).read(0)
        assert found[name].images == [BLUE]
    assert found["mmstar"].reference == ReferenceAnswer("coarse_perception", ("B",), "AB")
    assert texts(found["mmstar"])[0][1].endswith(f"A: red, B: blue\n{INSTRUCTION}")
    assert found["scienceqa"].reference == ReferenceAnswer("Colours", ("B",), "AB", ("red", "blue"))
    assert found["docvqa"].reference == ReferenceAnswer("form", ("May 5", "5 May"))
    assert texts(found["docvqa"]) == [("user", "<image>\nDate?"), ("assistant", "May 5")]


def test_a_kind_is_never_the_prefix_of_the_baselines():
    """`test/baseline/exact` would be read as the metric of a baseline."""
    fields = {"question": "Which?", "answer": "x", "category": "baseline"}
    assert parse_image_question("a.tsv, row 1", fields).reference.kind == "baseline_"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"question": "nan", "answer": "x"}, "found no question"),
        ({"question": "Q"}, "found no answer, expected one in answer or answers"),
        ({"question": "Q", "A": "x", "C": "y", "answer": "A"}, "found the options A, C, expected A, B"),
        ({"question": "Q", "choices": ["x"], "answer": 0}, "found 1 options, expected 2 to 10"),
        ({"question": "Q", "choices": ["x", "y"], "answer": 2}, "found 2, expected a letter of AB, an option or"),
        ({"question": "Q", "choices": ["x", "y"], "answer": True}, "found True, expected a letter"),
        ({"question": "Q", "choices": ["x", "y"], "answer": "z"}, "found .z., expected a letter"),
        ({"question": "Q", "choices": "x", "answer": "x"}, "expected a list of texts"),
        ({"question": "Q", "A": "x", "B": "x ", "answer": "B"}, "found the options .*'x', 'x'.*expected options that"),
        ({"question": "Q", "answers": ["x", " "]}, "an empty answer"),
        ({"question": "Q", "answer": "<image>"}, "the answer contains <image>"),
    ],
)
def test_a_wrong_row_is_named(fields, message):
    with pytest.raises(BadSampleError, match=f"a.tsv, line 3: .*{message}"):
        parse_image_question("a.tsv, line 3", fields)


@pytest.mark.parametrize("answer", [1, 1.0, "b", "(B)", "B.", "two", "Two"])
def test_an_answer_may_name_its_option_in_any_way(answer):
    question = parse_image_question("row", {"question": "Q", "choices": ["one", "Two"], "answer": answer})
    assert question.reference.accepted == ("B",)


def test_a_cell_of_a_text_table_may_hold_several_accepted_answers(tmp_path):
    rows = [["When?", "5 May|May 5"], ["When?", '["a|b", 7]']]
    table = QuestionText(write_tsv(tmp_path / "a.csv", ("question", "answers"), rows, ","))
    assert [table.read(row).reference.accepted for row in range(2)] == [("5 May", "May 5"), ("a|b", "7")]


def test_an_option_that_is_a_letter(tmp_path):
    record = {"question": "Which letter?", "answer": "A"}
    assert parse_image_question("row", record | {"choices": ["B", "A"]}).reference.accepted == ("B",)
    assert parse_image_question("row", record | {"A": "B", "B": "A"}).reference.accepted == ("A",)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b.", "B"),
        (" (B) two cats", "B"),
        ("B: two cats", "B"),
        ("two cats.", "B"),
        ("Two  Cats", "B"),
        ("The answer is B.", "B"),
        ("Answer: C", "C"),
        ("B。", "B"),
        ("**B**", "B"),
        ("[B]", "B"),
        ("**B. two cats**", "B"),
        ("Option B is correct", "B"),
        ("B is the correct answer", "B"),
        ("The correct answer is option B.", "B"),
        ("The right choice is (c).", "C"),
        ("答案是B", "B"),
        ("正确答案:B。", "B"),
        ("选B", "B"),
        ("A is a cat", ""),
        ("B is right of the car", ""),
        ("A* search is used", ""),
        ("Optional", ""),
        ("A cat", ""),
        ("D", ""),
        ("", ""),
        ("Because", ""),
    ],
)
def test_the_chosen_letter_is_read_from_an_answer(text, letter):
    assert chosen_letter(ReferenceAnswer("", ("B",), "ABC", ("one cat", "two cats", "three cats")), text) == letter


def test_the_best_of_several_references_counts():
    dates = ReferenceAnswer("form", ("5 May 1990", "May 5"))
    assert grade_reference(dates, "may 5.", with_anls=True) == {
        "exact": (1.0, 1.0),
        "token_f1": (1.0, 1.0),
        "anls": (pytest.approx(5 / 6), 1.0),
        "form/exact": (1.0, 1.0),
    }
    near = grade_reference(dates, "May 6", with_anls=True)
    assert near["exact"] == (0.0, 1.0)
    assert near["anls"] == (0.8, 1.0)
    assert near["token_f1"] == (0.5, 1.0)
    one = ReferenceAnswer("", ("x",))
    assert grade_reference(one, "x", with_anls=False) == {"exact": (1.0, 1.0), "token_f1": (1.0, 1.0)}
    assert grade_reference(one, "x", with_anls=True)["anls"] == (1.0, 1.0)
    choice = ReferenceAnswer("", ("A",), "AB", ("x", "y"))
    assert grade_reference(choice, "x", with_anls=True) == {"exact": (1.0, 1.0)}


def test_anls_is_over_all_open_questions_of_a_table(tmp_path):
    """DocVQA states most answers once and some in several wordings."""
    rows = [
        {"question": "Total?", "answers": ["0.28", "0,28"], "image": RED},
        {"question": "Date?", "answers": ["May 5"], "image": RED},
    ]
    path = write_parquet(tmp_path / "docvqa.parquet", rows)
    chats = Mixture([SourceSettings(path=str(path), format="questions")], tmp_path / "root")
    data = EvaluationDataset(chats, SimpleNamespace(length=lambda chat: 1))  # images are not decoded here
    assert "anls" in data.outcomes
    assert data.grade(0, "0.28")["anls"] == (1.0, 1.0)
    assert data.grade(1, "nothing")["anls"] == (0.0, 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found no rows"),
        (b"image\tanswer\nx\ty\n", "line 1: found the columns image, answer, expected question"),
        (b"question\tanswer\nQ\n", "line 2: found 1 cells, expected 2"),
        (b'question\tanswer\n"Q\tx\n', "line 2: found quotes that are not closed; write a field"),
        (b"question\tanswer\rQ\tx\r", "line 1: found lines that end with CR alone; end them with LF"),
        (b'question\tanswer\n"Q" a\tx\n', "line 2: found text after the quotes of a field"),
        (b"question\tanswer\nQ\t\xff\n", "line 2: .*not UTF-8"),
        (b"\x1f\x8b\x08\x00", "gzip"),
    ],
)
def test_a_broken_table_is_refused(tmp_path, content, message):
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"a.tsv.*{message}"):
        QuestionText(path)


def test_a_wrong_image_is_named(tmp_path):
    path = write_tsv(
        tmp_path / "a.tsv", ("question", "answer", "image"), [["Q", "x", cell] for cell in ("7", "no", "a.png")]
    )
    table = QuestionText(path)
    for row, message in enumerate(("no row has the index 7", "expected base64 or a path", "a.png")):
        with pytest.raises(BadSampleError, match=f"line {row + 2}: .*{message}"):
            table.read(row)


def test_other_parquet_files_are_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", [{"question": "Q", "answer": "x"}])
    write_parquet(tmp_path / "b.parquet", [{"question": "Q", "answers": ["x"]}])
    with pytest.raises(ValueError, match="b.parquet: found the columns question, answers, expected those of"):
        QuestionParquet(tmp_path, tmp_path)
    with pytest.raises(ValueError, match=r"a.parquet: expected chats .* set format to questions"):
        SourceSettings(str(tmp_path / "a.parquet")).open(tmp_path)


def test_train_and_test_on_tables(lockstep, tmp_path):
    """Metrics by kind, with the images and with black ones."""
    colors = {"red": RED, "blue": BLUE}
    rows = []
    for number in range(40):
        options = ["red", "blue"] if number % 4 < 2 else ["blue", "red"]
        right = "red" if number % 2 else "blue"
        letter = "AB"[options.index(right)]
        image = base64.b64encode(colors[right]).decode()
        rows.append([number, "Which?", "", *options, "", "", letter, f"kind {number % 2}", image, "dev"])
    path = write_tsv(tmp_path / "mmbench.tsv", MMBENCH, rows)
    source = {"path": str(path)}
    data = {"batch_size": 20, "train": [source], "validation": [source], "test": [source]}
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"data": {"class_path": "ImageChats", "init_args": data}}))
    arguments = [*write_config(tmp_path), "--config", str(tmp_path / "data.yaml")]
    lockstep("fit", *arguments, "--trainer.max_steps", "2", name="a")
    run = lockstep("test", name="a")
    metrics = {name: next(iter(run.series(name).values())) for name in METRICS}
    assert metrics["test/exact"] == pytest.approx((metrics["test/kind_0/exact"] + metrics["test/kind_1/exact"]) / 2)
    assert not run.series("test/anls")
    assert not run.series("test/token_f1")  # all questions have options
