"""Tests the data set of synthetic manuals: samples are functions of their coordinates, and splits share no manual."""

import pickle

import pytest

from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.types.document import Document
from datamodules.multimodal.synthetic_split import Split

ASKER = QuestionSampler(ManualSettings(), ManualQuestionSettings())


def questions(split=Split.TEST, size=40, **more) -> ManualQuestionSet:
    return ManualQuestionSet(ASKER, split, size, **{"per_manual": 4, "per_chat": 3, **more})


def pixels(manual) -> list[bytes]:
    return [manual.figure(chunk).tobytes() for page in manual.pages for chunk in page.chunks if chunk.kind == "figure"]


@pytest.mark.parametrize("split", Split)
def test_a_sample_is_a_function_of_its_coordinates(split):
    first, second = questions(split), pickle.loads(pickle.dumps(questions(split)))
    for index in (39, 0, 7):  # in any order
        assert first.questions(2, index) == second.questions(2, index)
        assert first.document(2, index).pages == second.document(2, index).pages
    figures = pixels(first.document(2, 0))
    assert figures
    assert pixels(second.document(2, 0)) == figures
    assert pixels(second.document(2, 0)) == figures  # drawing a figure changes nothing


def test_epochs_differ_in_training_alone():
    training, test = questions(Split.TRAIN), questions(Split.TEST)
    assert training.questions(0, 3) != training.questions(1, 3)
    assert test.questions(0, 3) == test.questions(1, 3)
    cached = questions(Split.TRAIN, fresh=False)
    assert cached.questions(0, 3) == cached.questions(1, 3)


def test_no_two_splits_or_seeds_have_a_manual_in_common():
    every = [questions(split, seed=seed) for split in Split for seed in (0, 1)]
    keys = [item.document(0, index).key for item in every for index in range(0, 40, 4)]
    keys += [questions(Split.TRAIN).document(1, index).key for index in range(40)]
    assert len(set(keys)) == len(keys)


def test_in_training_a_sample_asks_several_things_about_one_chapter():
    training = questions(Split.TRAIN)
    for index in range(10):
        asked_questions = training.questions(0, index)
        assert len(asked_questions) == len({question.question for question in asked_questions}) == 3
        manual = training.document(0, index)
        assert {question.document for question in asked_questions} == {manual.name}
        chapters = [
            chapter for chapter in manual.device.chapters if f"the {chapter.title}" in asked_questions[0].question
        ]
        assert all(
            any(f"the {chapter.title}" in question.question for chapter in chapters) for question in asked_questions
        )


def test_the_questions_of_a_chat_may_keep_to_one_page():
    training = questions(Split.TRAIN, one_page=True)
    pages = [{question.evidence_pages for question in training.questions(0, index)} for index in range(40)]
    assert all(len(of_a_chat) == 1 for of_a_chat in pages)
    assert max(len(training.questions(0, index)) for index in range(40)) == 3


def test_drawings_are_described_at_first():
    training = questions(Split.TRAIN, one_page=True, caption_epochs=2)
    asked = [[training.sample_questions(epoch, index) for index in range(60)] for epoch in range(3)]
    for epoch in (0, 1):
        about = [chat for chat in asked[epoch] if any(question.source == "figure" for question in chat)]
        assert about
        assert all([question.kind for question in chat] == ["drawing"] for chat in about)
        assert all(len(one.answer.split(", ")) == 4 and len(one.pages) == 1 for (one,) in about)
    plain = [
        [questions(Split.TRAIN, one_page=True).sample_questions(epoch, index) for index in range(60)]
        for epoch in range(3)
    ]
    others = [(one, second) for one, second in zip(asked[0], plain[0], strict=True) if second[0].source != "figure"]
    assert others, "the other chats are as without"
    assert all(one == second for one, second in others), "the other chats are as without"
    assert asked[2] == plain[2]
    assert questions(caption_epochs=2).sample_questions(0, 5) == questions().sample_questions(0, 5), "in training alone"
    drawn = next(index for index in range(60) if asked[0][index][0].kind == "drawing")
    again = questions(Split.TRAIN, one_page=True, caption_epochs=1, fresh=False)
    assert again.sample_questions(0, drawn)[0].kind == "drawing" != again.sample_questions(1, drawn)[0].kind, (
        "the same manual"
    )


def test_in_a_test_a_sample_is_one_question_and_several_share_a_manual():
    test = questions()
    assert [len(test.questions(0, index)) for index in range(5)] == [1] * 5
    assert [test.document(0, index).key for index in range(4)] == [test.document(0, 0).key] * 4
    assert test.document(0, 4).key != test.document(0, 0).key
    assert len({test.questions(0, index)[0].id for index in range(40)}) == 40


def test_another_document_is_another_one_of_the_split():
    for test in (questions(), questions(size=3)):
        own = {test.document(0, index).key for index in range(len(test))}
        for index in range(len(test)):
            another = test.another_document(0, index)
            assert another.key != test.document(0, index).key
            assert another.key == test.another_document(0, index).key
            assert another.key in own or len(own) == 1


def test_the_answer_stands_on_its_pages():
    test = questions(size=200)
    reported = 0
    for index in range(len(test)):
        (question,) = test.questions(0, index)
        document: Document = test.document(0, index)
        texts = "".join(chunk.text for page in question.evidence_pages for chunk in document.pages[page - 1].chunks)
        if question.source in ("text", "table", "hop", "cross"):
            assert question.answer in texts
            reported += 1
        if question.source == "figure":
            assert texts.startswith("Drawing of the ")
        assert question.right is None or question.options[question.right] == question.answer
    assert reported > 50
