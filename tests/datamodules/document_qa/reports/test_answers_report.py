"""Tests the report of answers with their pages, in a real browser."""

import json

import pytest

from commands.report.comparison.saved_answers import read_answers
from datamodules.document_qa.batch import AnswerRecord, Evidence, ModelAnswer
from datamodules.document_qa.reports.embedded_page_images import PageImages, page_data_url
from datamodules.document_qa.reports.prediction_record import prediction_line
from datamodules.document_qa.reports.run_reports import hash_checkpoint, write_prediction_report, write_test_reports
from datamodules.document_qa.types.question import UNANSWERABLE
from tests.support.families.colored_squares import COLORS
from tests.support.families.tiny_documents import TinyDocument, TinyQuestions
from tests.support.outputs.browser import with_browser
from tests.support.outputs.report_page import ATTACK, STATUS, assert_fits, choose


def record(asked, sample, right):
    """Return the record of an answer to TinyQuestions; of every four the second and the last are open."""
    (question,), evidence = asked.questions(0, sample), ()
    if question.options:
        best = question.right if right else (question.right + 1) % len(question.options)
        output = ModelAnswer("", tuple(0.0 if index == best else -2.0 for index in range(len(question.options))), 0.7)
        chunk = asked.document(0, sample).pages[2].chunks[1]
        evidence = (Evidence(chunk.page, chunk.kind, chunk.box, 1.0),)
    else:
        output = ModelAnswer(question.answer if right else ATTACK, (), 0.4)
    return AnswerRecord(
        sample, output, ModelAnswer("?", (), 0.1) if not question.options else output, (3, 1), (1, 3), evidence
    )


def records(asked):
    return [record(asked, sample, right=sample % 8 < 6) for sample in range(len(asked))]


def test_each_page_is_kept_once_and_not_too_many():
    pictures, document = PageImages(pages_at_most=2), TinyDocument(0)
    assert [pictures.add(document, page) for page in (1, 2, 1, 3, 4, 0)] == [
        "device-0#1",
        "device-0#2",
        "device-0#1",
        None,
        None,
        None,
    ]
    assert len(pictures.uris) == 2
    assert pictures.missing == 1
    assert PageImages(bytes_at_most=0).add(document, 1) is None


def test_pages_are_small_and_photographs_are_no_drawings():
    from PIL import Image

    assert page_data_url(TinyDocument(0).picture(1)).startswith("data:image/png;")
    photograph = Image.effect_noise((1500, 900), 90).convert("RGB")
    assert page_data_url(photograph).startswith("data:image/jpeg;")


def test_a_checkpoint_is_known_by_its_bytes(tmp_path):
    first, second, folder = tmp_path / "a.ckpt", tmp_path / "b.ckpt", tmp_path / "shards"
    first.write_bytes(b"x")
    second.write_bytes(b"x")
    assert hash_checkpoint(str(first)) == hash_checkpoint(str(second))
    folder.mkdir()
    (folder / "0").write_bytes(b"x")
    before = hash_checkpoint(str(folder))
    (folder / "1").write_bytes(b"y")
    assert hash_checkpoint(str(folder)) != before
    second.write_bytes(b"y")
    assert hash_checkpoint(str(first)) != hash_checkpoint(str(second))


def test_a_test_leaves_its_reports(tmp_path, caplog):
    questions, checkpoint = TinyQuestions(2, 16), tmp_path / "best.ckpt"
    checkpoint.write_bytes(b"weights")
    run = tmp_path / "run"
    with caplog.at_level("INFO", "lockstep"):
        for ablate in ("none", "figure"):
            write_test_reports(run, questions, records(questions), ablate, str(checkpoint), {"retriever": "bm25"})
    assert "without figures" in caplog.text
    assert {path.name for path in run.iterdir()} == {
        "test_report.html",
        "test_report.json",
        "ablation.html",
        "ablation.json",
        "ablation",
        "answers-test.jsonl",
    }
    answers = read_answers(run).answers
    assert sum(answer.points for answer in answers) / len(answers) == 0.75, "the accuracy of the reports"
    stored = json.loads((run / "ablation" / "figure.json").read_text())
    assert stored["identity"]["checkpoint"].startswith("best.ckpt (")
    assert stored["identity"]["retriever"] == "bm25"
    # Where the figure was the page is white.
    report = json.loads((run / "ablation" / "figure_report.json").read_text())
    assert report["pictures"]["uris"] != json.loads((run / "test_report.json").read_text())["pictures"]["uris"]
    text = (run / "test_report.html").read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "<img src=x" not in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing from elsewhere"


def test_each_sample_shows_its_own_other_figures(tmp_path):
    """All questions are about one document, and each is answered with the figures of another document."""

    class OneDocument(TinyQuestions):
        def document(self, epoch, index):
            return TinyDocument(0)

        def another_document(self, epoch, index):
            return TinyDocument(index)

    questions = OneDocument(2, 8)
    assert TinyDocument(2).colour != TinyDocument(6).colour
    write_test_reports(tmp_path, questions, records(questions), "shuffled_figure", None, {})
    found = json.loads((tmp_path / "ablation/shuffled_figure_report.json").read_text())
    first, second = (
        {picture["page"]: picture["key"] for picture in found["records"][sample]["pictures"]}[3] for sample in (2, 6)
    )
    assert found["pictures"]["uris"][first] != found["pictures"]["uris"][second]
    write_test_reports(tmp_path, questions, records(questions), "none", None, {})
    whole = json.loads((tmp_path / "test_report.json").read_text())["pictures"]["uris"]
    assert len(whole) == 3, "each page once where all show the same"


@with_browser
def test_answers_are_found_and_their_evidence_is_boxed(page, tmp_path):
    questions = TinyQuestions(2, 40)
    write_test_reports(tmp_path, questions, records(questions), "none", None, {})
    page.resize(1280, 900)
    page.open((tmp_path / "test_report.html").as_uri())
    assert page.run("document.title") == f"Test report – {tmp_path.name}"
    assert page.run(STATUS) == "40 of 40 answers: 30 right, 10 wrong"
    page.run(choose("task", "figure"))
    page.run(choose("result", "wrong"))
    assert page.run(STATUS) == "5 of 40 answers: 0 right, 5 wrong"
    texts = page.run("[...document.querySelectorAll('.card:first-child .options li')].map((one) => one.textContent)")
    assert sum("(chosen)" in text for text in texts) == sum("(right)" in text for text in texts) == 1

    # The box is around the figure, whose pixels are of its color; outside is paper.
    page.run("document.querySelector('.card img').decode()")
    seen = page.run(
        "(() => { const image = document.querySelector('.card img'), box = document.querySelector('.card .box');"
        "const canvas = document.createElement('canvas'), pen = canvas.getContext('2d', {willReadFrequently: true});"
        "canvas.width = image.naturalWidth; canvas.height = image.naturalHeight; pen.drawImage(image, 0, 0);"
        "const around = image.getBoundingClientRect(), edges = box.getBoundingClientRect();"
        "const at = (across, down) => [...pen.getImageData(across * canvas.width, down * canvas.height, 1, 1).data];"
        "const left = (edges.left - around.left) / around.width, top = (edges.top - around.top) / around.height;"
        "return [at(left + 0.05, top + 0.05), at(left - 0.05, top + 0.05)]; })()"
    )
    colour = COLORS[questions.document(0, 6).colour]
    assert all(abs(first - second) <= 8 for first, second in zip(seen[0][:3], colour, strict=True))
    assert seen[1][:3] == [255, 255, 255]

    page.run(choose("task", "none"))
    page.run(choose("result", "all"))
    page.run(choose("abstained", "no"))
    assert page.run(STATUS) == "5 of 40 answers: 0 right, 5 wrong"
    assert ATTACK in page.run("document.querySelector('.card').textContent")
    assert page.run("document.querySelectorAll('.card script, .card img[src=x]').length") == 0
    page.run(choose("task", ""))
    page.run(choose("abstained", ""))
    page.run(choose("confidence", "0.5"))
    assert page.run(STATUS) == "20 of 40 answers: 15 right, 5 wrong"
    assert page.complaints == []
    assert {address for address in page.requests if "://" in address and not address.startswith("file:")} == set()


@with_browser
def test_predictions_without_known_answers_are_shown_ungraded(page, tmp_path):
    class Unknown(TinyQuestions):
        def questions(self, epoch, index):
            found = super().questions(epoch, index)
            return [item._replace(answer=None, right=None, evidence_pages=(), source=None) for item in found]

    questions = TinyQuestions(3, 8)
    lines = [prediction_line(questions.questions(0, record.sample)[0], record) for record in records(questions)]
    lines[5] = {"id": "5", "answer": None, "why": "no document of this name"}
    predictions = tmp_path / "predictions.jsonl"
    predictions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_prediction_report(tmp_path, Unknown(3, 8), predictions, None)
    page.resize(1280, 900)
    page.open((tmp_path / "prediction_report.html").as_uri())
    assert page.run(STATUS) == "8 of 8 answers"
    assert page.run("document.querySelector('[name=result]')") is None
    text = page.run("document.body.innerText")
    assert "no document of this name" in text
    assert "Metrics" not in text
    assert "not graded" in text
    assert UNANSWERABLE in text
    assert page.run("document.querySelectorAll('.card .box').length") == 4
    assert page.complaints == []


@with_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_the_page_fits_its_window(page, tmp_path, width, dark):
    class Long(TinyQuestions):
        def questions(self, epoch, index):
            found = super().questions(epoch, index)
            return [item._replace(question="没有空格" * 100 + "x" * 300) for item in found]

    questions = Long(2, 8)
    write_test_reports(tmp_path, questions, records(questions), "none", None, {})
    assert_fits(page, tmp_path / "test_report.html", width, dark)


@with_browser
def test_a_thousand_answers_open_quickly(page, tmp_path):
    questions = TinyQuestions(2, 1000)
    write_test_reports(tmp_path, questions, records(questions), "none", None, {})
    assert page.open((tmp_path / "test_report.html").as_uri()) < 20
    assert page.run(STATUS).startswith("1000 of 1000 answers")
