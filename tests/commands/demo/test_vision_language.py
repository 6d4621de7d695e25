"""Tests the page and the chat of a vision-language model: equal to `predict`, token by token, over several turns."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from commands.answers.answer_service import Turn, UploadedFile, UserInputError, UserQuestion
from commands.answers.families.occlusion_map import CELLS, describe_part, draw_occlusion_map, occlude
from tests.conftest import REPOSITORY
from tests.support.demo import demo_server, page_driver
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER
from tests.support.outputs import browser
from tests.support.outputs.jsonl import read_jsonl

SCENES = [
    f"--config={REPOSITORY / 'configs/vision_language/quickstart_sft.yaml'}",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
    "--model.init_args.init_from=null",
    "--model.init_args.language_model.config",
    json.dumps(LANGUAGE_MODEL),
    "--model.init_args.vision_tower.config",
    json.dumps(TOWER),
    "--model.init_args.max_new_tokens=8",
    "--data.init_args.num_samples=64",
    "--data.init_args.validation_size=8",
    "--data.init_args.test_size=3",
    "--trainer.max_epochs=1",
    "--data.init_args.num_workers=0",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run, and its answers."""
    folder = tmp_path_factory.mktemp("scenes")
    with demo_server.trained(folder, *SCENES) as demo:
        yield folder, demo


def test_the_answer_is_that_of_predict(run, monkeypatch):
    from commands.cli.main import main

    folder, demo = run
    monkeypatch.chdir(folder)
    main(["predict", "--run_name", "a"])
    records = read_jsonl(folder / "runs/a/predictions.jsonl")
    assert len(records) == 3
    demo._data.setup("test")
    for record in records:
        scenes = demo._data.test_set.source
        buffer = io.BytesIO()
        scenes.scenes.picture(scenes.sample(0, record["sample"])).save(buffer, "PNG")
        file = UploadedFile("x.png", buffer.getvalue())
        question = UserQuestion({"question": record["question"], "lean": "yes"}, {"picture": [file]})
        blocks = demo_server.answered(demo, question)
        assert blocks["answer"].text == record["answer"]
        assert blocks["blind"].faint
        if record["answer"]:
            assert blocks["lean"].large
            assert " % without the reddest part." in blocks["lean"].note


def test_tokens_come_one_by_one_and_turns_count(run):
    _, demo = run
    example = demo.examples()[0]
    question = UserQuestion({"question": example.values["question"]}, {"picture": example.values["picture"]})
    texts = [block.text for block in demo.answer(question) if block.key == "answer"]
    assert texts == sorted(texts, key=len)
    assert len(texts) > 2
    messages = list(demo._messages(question._replace(turns=[Turn("first?", "yes")])))
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    demo_server.answered(demo, question._replace(turns=[Turn("first?", "yes")]))
    with pytest.raises(UserInputError, match="<image>"):
        demo_server.answered(demo, question._replace(texts={"question": "<image> <image> what"}))


def test_the_chat_reads_a_picture_and_questions(run):
    from commands.chat.main import chat

    folder, demo = run
    (folder / "a.png").write_bytes(demo.examples()[0].values["picture"][0].content)
    output = io.StringIO()
    lines = f"/picture {folder / 'a.png'}\nwhat is it?\n/blind\nand now?\n"
    chat(demo, folder, io.StringIO(lines), Console(file=output, width=200))
    first, second = output.getvalue().split("> what is it?")[1].split("> and now?")
    assert "Without the picture" in first
    assert "Without the picture" not in second


def test_the_overlay_marks_the_part_that_matters():
    from PIL import Image

    image = Image.new("RGB", (60, 66), (0, 100, 200))
    assert len(list(occlude(image))) == CELLS**2
    lost = np.zeros((CELLS, CELLS))
    lost[1, 2] = 3.0
    pixels = np.asarray(draw_occlusion_map(image, lost))
    changed = np.argwhere((pixels != (0, 100, 200)).any(2))
    assert changed.min(0).tolist() == [11, 20]
    assert changed.max(0).tolist() == [21, 29]
    assert (np.asarray(draw_occlusion_map(image, 0 * lost)) == (0, 100, 200)).all()
    assert describe_part(lost) == "the reddest part: row 2 of 6 from the top, column 3 of 6 from the left"
    assert describe_part(0 * lost) == "no part is red"


@pytest.mark.slow
def test_an_export_answers_as_its_checkpoint(run, monkeypatch):
    demo_server.check_export(*run, monkeypatch)


@browser.with_browser
def test_a_visitor_talks_about_a_picture(run, tmp_path):
    with demo_server.served(run[1]) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        page_driver.drop(page, "picture", "a.png", b"no picture")
        page_driver.wait(page, "document.querySelector('.state.error')?.innerText.includes('expected an image')")
        page.run("document.querySelector('.example').click()")
        page.run("document.querySelectorAll('select')[1].value = 'yes'")
        page_driver.check_two_visitors(page)
        assert page.run("document.querySelectorAll('[data-key=blind]').length") == 1
        page.run("document.querySelector('textarea').value = 'and what else?'")
        page_driver.ask(page)
        assert page.run("document.querySelectorAll('.card').length") == 2
        page_driver.check_quality(page, address)
