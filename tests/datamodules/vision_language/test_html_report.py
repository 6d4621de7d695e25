"""Opens the prediction report in a real browser: pictures, questions and answers appear unchanged."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from commands.report.comparison.saved_answers import read_answers
from datamodules.multimodal.reports.html_report import MetricRow, metric_rows
from datamodules.vision_language.html_report import AnsweredQuestion, is_right, thumbnail_data_url, write_test_report
from tests.support.families.colored_squares import write_config
from tests.support.outputs.browser import with_browser
from tests.support.outputs.report_page import ATTACK, CARDS, STATUS, assert_fits, choose

ABOUT = {"run": "mine", "checkpoint": "best.ckpt"}


def answered(number=0, pictures=1, kind="colour", answer="red", blind="blue"):
    noise = np.random.default_rng(number).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    images = [Image.fromarray(noise + index) for index in range(pictures)]
    points = [(float(output == "red"), 1.0) for output in (answer, blind)]
    grades = [{"exact": reached, f"{kind}/exact": reached} for reached in points]
    return AnsweredQuestion(number, kind, images, f"what is number {number}?", "red", answer, blind, *grades)


def answers(count):
    """Return records of two kinds; every fourth is wrong, every tenth contains an attack."""
    for number in range(count):
        output = ATTACK if number % 10 == 9 else "green" if number % 4 == 1 else "red"
        yield answered(number, number % 3, "colour" if number % 2 else "shape", output)


def picture(uri):
    form, data = uri.removeprefix("data:image/").split(";base64,")
    return form, Image.open(io.BytesIO(base64.b64decode(data)))


def test_small_pictures_are_kept_to_the_pixel_and_large_ones_small():
    small, large = Image.effect_noise((64, 20), 90), Image.effect_noise((2000, 1000), 90)
    form, same = picture(thumbnail_data_url(small))
    assert form == "png"
    assert np.array_equal(np.asarray(same)[..., 0], np.asarray(small))
    form, thumbnail = picture(thumbnail_data_url(large))
    assert (form, thumbnail.size) == ("jpeg", (320, 160))
    assert large.size == (2000, 1000)


def test_an_answer_is_right_by_its_exact_match():
    assert is_right({"exact": (1.0, 1.0), "token_f1": (0.0, 1.0)}) is True
    assert is_right({"exact": (0.0, 1.0), "token_f1": (1.0, 1.0)}) is False
    assert is_right({}) is None


def test_metrics_are_of_graded_answers():
    graded = [{"model": {"exact": (1.0, 1.0)}, "blind": {"exact": (0.0, 1.0)}}, {"model": {}, "blind": {}}]
    assert metric_rows(("exact", "colour/exact"), graded) == [MetricRow("all", "exact", 1.0, 0.0)]


def test_files_hold_what_was_given(tmp_path):
    page = write_test_report(tmp_path / "new", answers(20), [MetricRow("all", "exact", 0.5, 0.25)], ABOUT)
    assert sorted(path.name for path in page.parent.iterdir()) == ["prediction_report.html", "prediction_report.json"]
    content = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    records = content["records"]
    assert [len(record["pictures"]) for record in records[:4]] == [0, 1, 2, 0]
    assert records[9]["answer"] == ATTACK
    assert records[9]["errors"] == ["answer"]
    assert records[2]["errors"] == []
    assert records[0]["outcomes"] == {"exact": [1.0, 1.0]}
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "<img src=x" not in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing from elsewhere"


# -- in a browser ----------------------------------------------------------------------------------------------------


@with_browser
def test_answers_are_found_by_kind_and_by_right_or_wrong(page, tmp_path):
    path = write_test_report(tmp_path, answers(200), [MetricRow("all", "exact", 0.7, 0.0)], ABOUT)
    page.resize(1280, 900)
    page.open(path.as_uri())
    assert page.run("document.title") == "Prediction report – mine"
    assert page.run(STATUS) == "200 of 200 answers: 140 right, 60 wrong"
    page.run(choose("task", "shape"))
    assert page.run(STATUS) == "100 of 200 answers: 100 right, 0 wrong"
    page.run(choose("task", "colour"))
    page.run(choose("result", "wrong"))
    assert page.run(STATUS) == "60 of 200 answers: 0 right, 60 wrong"
    page.run(choose("text", "number 199?"))
    assert page.run(CARDS) == ["Sample 199"]
    card = page.run("document.querySelector('.card').textContent")
    assert ATTACK in card
    assert "wrong" in card
    assert "blue" in card
    assert "(wrong)" in card
    assert page.run("document.querySelectorAll('.card script, .card img[src=x]').length") == 0
    heads = page.run("[...document.querySelectorAll('thead th')].map((head) => head.textContent)")
    assert heads[:5] == ["kind", "metric", "model", "blind", "model − blind"]
    assert "rules" not in heads
    assert page.run("document.querySelector('[name=error]')") is None, "one kind of error is none to choose"
    assert page.complaints == []
    assert {address for address in page.requests if "://" in address and not address.startswith("file:")} == set()


@with_browser
def test_pictures_are_there_in_their_colors(page, tmp_path):
    """The content security policy allows embedded images; each is drawn, and a chat without images is marked."""
    path = write_test_report(tmp_path, [answered(0, 0), answered(1, 2)], [], ABOUT)
    page.open(path.as_uri())
    images = "[...document.querySelectorAll('.card img')]"
    page.run(f"Promise.all({images}.map((image) => image.decode()))")
    assert page.run(f"{images}.map((image) => [image.naturalWidth, image.naturalHeight])") == [[48, 32], [48, 32]]
    seen = page.run(
        "(() => { const canvas = document.createElement('canvas'), pen = canvas.getContext('2d');"
        f"pen.drawImage({images}[1], 0, 0); return [...pen.getImageData(3, 5, 1, 1).data].slice(0, 3); }})()"
    )
    assert seen == np.asarray(answered(1, 2).pictures[1])[5, 3].tolist()
    assert "(no image)" in page.run("document.querySelector('.card').textContent")
    assert page.complaints == []


@with_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_the_page_fits_its_window(page, tmp_path, width, dark):
    long = answered(0, 3, answer="x" * 400)._replace(question="没有空格" * 200)
    wide = long._replace(sample=1, pictures=[Image.effect_noise((3000, 200), 90)])
    path = write_test_report(tmp_path, [long, wide], [MetricRow("all", "exact", 0.5, 0.25)], ABOUT)
    assert_fits(page, path, width, dark)


@with_browser
def test_an_ungraded_answer_is_neither_right_nor_wrong(page, tmp_path):
    ungraded = answered(1)._replace(grade={}, blind_grade={}, truth="")
    path = write_test_report(tmp_path, [answered(0), ungraded], [], ABOUT)
    page.open(path.as_uri())
    assert page.run(STATUS) == "2 of 2 answers: 1 right, 0 wrong"
    badges = page.run("[...document.querySelectorAll('.badge')].map((badge) => badge.textContent)")
    assert badges == ["right", "not graded"]


# -- of a run --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_test_reports_what_it_measures(lockstep, tmp_path, monkeypatch):
    monkeypatch.setattr("datamodules.vision_language.datamodule._REPORTED", 50)
    options = [*write_config(tmp_path), "--data.init_args.images", "[1, 0, 2]"]
    lockstep("fit", *options, name="a")
    run = lockstep("test", *options, "--ckpt_path", "last", name="a")
    report = json.loads((run.folder / "prediction_report.json").read_text(encoding="utf-8"))
    assert [record["sample"] for record in report["records"]] == list(range(50))
    assert [len(record["pictures"]) for record in report["records"][:3]] == [1, 0, 2]
    assert report["about"]["answers"].startswith("the first 50 of 64")
    (metric,) = report["metrics"]
    measured = {key: value for line in run.records for key, value in line.items()}
    assert metric["model"] == pytest.approx(measured["test/exact"], abs=1e-6)
    assert metric["blind"] == pytest.approx(measured["test/baseline/blind/exact"], abs=1e-6)
    kept = read_answers(run.folder)
    assert (kept.metric, len(kept.answers), kept.answers[0].question) == ("test/exact", 64, "what colours ?")
