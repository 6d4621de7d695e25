"""Tests questions and conversations that `predict` answers: their files, and how a conversation continues."""

import json

import pytest

from datamodules.multimodal.batch import ImageLayout
from datamodules.vision_language.chat_dataset import ImageProcessor
from datamodules.vision_language.predict_questions import PredictDataset
from engine.data.errors import BadSampleError
from tests.support.data_files.vision_language_files import png

LAYOUT = ImageLayout(16, 4)
RED, BLUE = (250, 0, 0), (0, 0, 250)


def asked(tmp_path, *lines, **settings):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return PredictDataset(path, ImageProcessor(LAYOUT, 10_000), **settings)


def test_questions_are_asked_about_images_of_the_user(tmp_path):
    (tmp_path / "a.png").write_bytes(png(RED, 16))
    (tmp_path / "b.png").write_bytes(png(BLUE, 16))
    questions = asked(
        tmp_path,
        {"image": "a.png", "question": "What is it?", "id": 7},
        "",
        {"images": ["a.png", str(tmp_path / "b.png")], "question": "First <image>, then <image>?"},
        {"question": "No image?"},
        system="Be brief.",
    )
    items = [questions.item(0, index) for index in range(len(questions))]
    texts = [[message["content"] for message in item.messages] for item in items]
    assert texts == [
        ["Be brief.", "<image>\nWhat is it?"],
        ["Be brief.", "First <image>, then <image>?"],
        ["Be brief.", "No image?"],
    ]
    assert [item.counts for item in items] == [(4,), (4, 4), ()]
    assert items[1].encoder_input.pixels[:, :, 0, 0].tolist() == [list(RED), list(BLUE)]
    assert questions.name(1) == f"1 ({tmp_path / 'questions.jsonl'}, line 3)"


def test_image_parts_of_a_conversation_may_name_their_images(tmp_path):
    (tmp_path / "a.png").write_bytes(png(RED, 16))
    parts = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What is it?"}]
    questions = asked(tmp_path, {"messages": [{"role": "user", "content": parts}]})
    assert questions.rows[0].images == ["a.png"]
    assert questions.item(0, 0).encoder_input.pixels[:, :, 0, 0].tolist() == [list(RED)]
    with pytest.raises(ValueError, match='image part 1 names "a.png", but image 1 of the record is "b.png"'):
        asked(tmp_path, {"image": "b.png", "messages": [{"role": "user", "content": parts}]})


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: found list"),
        ({"image": "a.png"}, "question is None"),
        ({"question": []}, r"line 1: question is \[\], expected a text"),
        ({"question": ["a", " "]}, "line 1: question is ' ', expected a text"),
        (
            {"question": "a", "messages": [{"role": "user", "content": "b"}]},
            "found question and messages, expected one",
        ),
        ({"messages": [{"user": "a", "assistant": "b"}]}, "a message of the assistant at the end, expected a question"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "line 1: a chat must begin with a message of the user"),
        ({"messages": [{"role": "user", "content": ""}]}, "line 1: message 1 is '', expected a text"),
        ({"messages": "a"}, "line 1: the chat is not JSON"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "line 1: turn 1: expected"),
        ({"image": "a.png", "images": ["a.png"], "question": "?"}, "either image"),
        ({"images": "a.png", "question": "?"}, "expected image, a path"),
        ({"image": 3, "question": "?"}, "expected image, a path"),
        ({"image": "a.png", "question": "<image> and <image>"}, "found <image> 2 times"),
        ({"img": "a.png", "question": "?"}, "found img, expected"),
        ({"question": "a\ud800"}, "line 1: not JSON .found '.ud800', half of a surrogate pair"),
        ({"question": "?", "id": "\udc00"}, "line 1: not JSON .found '.udc00', half of a surrogate pair"),
        ({"question": "?", "id": [[7]]}, "line 1: id is list, expected a text or a number"),
        ('{"question": "?", "id": ' + "[" * 100_000, "line 1: not JSON .*recursion"),
        ("", "found no line"),
    ],
)
def test_questions_that_cannot_be_read(tmp_path, line, messages):
    with pytest.raises(ValueError, match=rf"questions.jsonl.*{messages}"):
        asked(tmp_path, line)


def test_a_conversation_continues_after_the_models_answers(tmp_path):
    """Answers that are given stay, and an image is read with the turn that has its marker."""
    (tmp_path / "a.png").write_bytes(png(RED, 16))
    (tmp_path / "b.png").write_bytes(png(BLUE, 16))
    chat = [
        {"role": "system", "content": "own"},
        {"user": "One?", "assistant": "1"},
        {"user": "Two?"},
        {"user": "Three?"},
    ]
    path = tmp_path / "conversations.json"
    path.write_text(
        json.dumps(
            [
                {"question": ["<image> First?", "And <image>?"], "images": ["a.png", "b.png"]},
                {"question": "Once?"},
                {"messages": chat, "image": "a.png"},
            ],
            indent=1,
        )
    )
    found = PredictDataset(path, ImageProcessor(LAYOUT, 10_000), "Be brief.")
    assert [found.turns(row) for row in range(3)] == [2, 1, 2]
    assert found.name(1) == f"1 ({path}, line 12)"

    def texts(source, row):
        item = source.item(0, row)
        return [message["content"] for message in item.messages], len(item.counts)

    assert texts(found, 0) == (["Be brief.", "<image> First?"], 1)
    assert texts(found, 2) == (["own", "<image>\nOne?", "1", "Two?"], 1)
    after = found.next_turns({0: ["red"], 2: ["2"]})
    assert texts(after, 0) == (["Be brief.", "<image> First?", "red", "And <image>?"], 2)
    assert texts(after, 2) == (["own", "<image>\nOne?", "1", "Two?", "2", "Three?"], 1)
    assert texts(after, 1) == texts(found, 1) == (["Be brief.", "Once?"], 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the list is empty, expected an object with a question"),
        ('{"question": "a"}', "expected a list of records"),
        ('[{"question": "a"},\n\n 7]', "line 3: found int, expected an object"),
        ('[{"question": "a"},\n{"question": "b", "b": 1}]', "line 2: found b, expected"),
        ('[{"question": "a", "question": "b"}]', "line 1: not JSON"),
    ],
)
def test_a_list_of_questions_that_cannot_be_read(tmp_path, text, message):
    path = tmp_path / "questions.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"questions.json.*{message}"):
        PredictDataset(path, ImageProcessor(LAYOUT, 10_000))


@pytest.mark.parametrize("image", ["missing.png", "nowhere/a.png", "."])
def test_images_of_questions_that_are_not_there(tmp_path, image):
    with pytest.raises(BadSampleError, match=r"questions.jsonl, line 1"):
        asked(tmp_path, {"image": image, "question": "?"}).item(0, 0)


def test_a_null_is_a_missing_key(tmp_path):
    (tmp_path / "a.png").write_bytes(png(RED, 16))
    chat = [{"role": "user", "content": "What is it?"}]
    questions = asked(
        tmp_path,
        {"question": None, "messages": chat, "conversations": None, "image": None, "images": ["a.png"], "id": None},
        {"question": "What is it?", "messages": None, "image": "a.png", "images": None},
        {"question": "What is it?", "image": None, "images": None},
    )
    assert [questions.item(0, index).counts for index in range(len(questions))] == [(4,), (4,), ()]
    assert {questions.messages(index)[-1]["content"][-11:] for index in range(len(questions))} == {"What is it?"}


def test_a_list_may_end_in_json_of_any_case(tmp_path):
    path = tmp_path / "questions.JSON"
    path.write_text(json.dumps([{"question": "a"}, {"question": "b"}]))
    assert len(PredictDataset(path, ImageProcessor(LAYOUT, 10_000))) == 2
