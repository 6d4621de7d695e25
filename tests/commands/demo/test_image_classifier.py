"""Tests the page of an image classifier: in process, and in a real browser."""

import io

import numpy as np
import pytest
from PIL import Image

from commands.answers.answer_service import UploadedFile, UserQuestion
from tests.conftest import REPOSITORY
from tests.support.data_files.vision_language_files import encoded
from tests.support.demo import demo_server, page_driver
from tests.support.outputs import browser
from tests.support.outputs.jsonl import read_jsonl

DIGITS = [
    f"--config={REPOSITORY / 'configs/image_classifier/digits.yaml'}",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
    "--model.init_args.width=8",
    "--model.init_args.norm=group",
    "--trainer.max_epochs=1",
    "--trainer.limit_train_batches=8",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run and a folder of pictures, and the answers of the run."""
    folder = tmp_path_factory.mktemp("digits")
    (folder / "pictures").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (20, 24), np.uint8)
        (folder / "pictures" / f"{number}.png").write_bytes(encoded(Image.fromarray(pixels)))
    with demo_server.trained(folder, *DIGITS) as demo:
        yield folder, demo


def test_the_answer_is_that_of_predict(run, monkeypatch):
    from commands.cli.main import main

    folder, demo = run
    monkeypatch.chdir(folder)
    main(["predict", "--run_name", "a", "--data.init_args.predict_folder", "pictures"])
    records = read_jsonl(folder / "runs/a/predictions.jsonl")
    assert len(records) == 3
    for record in records:
        file = UploadedFile("x.png", (folder / record["image"]).read_bytes())
        blocks = demo_server.answered(demo, UserQuestion(files={"picture": [file]}))
        best = blocks["classes"].bars[0]
        assert (best.label, best.share) == (record["class"], record["probability"])
        assert sum(bar.share for bar in blocks["classes"].bars) == pytest.approx(1, abs=1e-3)


def test_a_training_image_is_most_alike_itself(run):
    _, demo = run
    image = demo._train.read(np.array([7]))[0]
    blocks = demo_server.answered(
        demo, UserQuestion(files={"picture": [UploadedFile("x.png", encoded(Image.fromarray(image[0])))]})
    )
    assert blocks["alike"].pictures[0].text == demo._train.name(7)
    assert blocks["alike"].pictures[0].caption.endswith("1.00")
    assert len(blocks["alike"].pictures) == 6


def test_wrong_files_are_refused_with_a_message(run):
    page = demo_server.client(run[1])
    refused = {
        "a.txt": (b"text", "expected a file that ends in"),
        "a.png": (b"text", "expected an image"),
        "empty.png": (b"", "is empty"),
        "large.png": (bytes(21 * 2**20), "larger than 20 MB"),
    }
    for name, (content, message) in refused.items():
        (line,) = demo_server.uploaded(page, "picture", name, content)
        assert message in line["error"]
        assert name in line["error"]
    (line,) = demo_server.asked(page)
    assert "no file is given" in line["error"]


@pytest.mark.slow
def test_an_export_answers_as_its_checkpoint(run, monkeypatch):
    demo_server.check_export(*run, monkeypatch)
    (settings,) = run[0].glob("exported*/config.json")
    settings.write_text(settings.read_text().replace('"3"', '"three"'))
    with pytest.raises(ValueError, match=r"found an export of .*three.*, the data have"):
        run[1]._model.load_export(settings.parent)
    with pytest.raises(ValueError, match=r"config.json: found \w{12}, expected the SHA-256 \w{12} of SHA256SUMS"):
        demo_server.loaded("a", "--ckpt_path", settings.parent.name)


@browser.with_browser
def test_a_visitor_drops_and_draws(run, tmp_path):
    """Drops a wrong file and a right one, tries an example and a drawing, in light, dark and narrow windows."""
    with demo_server.served(run[1]) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        page_driver.drop(page, "picture", "notes.txt", b"no picture")
        page_driver.wait(page, "document.querySelector('.state.error')?.innerText.includes('expected a file')")
        page_driver.drop(page, "picture", "0.png", (run[0] / "pictures/0.png").read_bytes())
        page_driver.wait(page, "document.querySelector('.given img')")
        page_driver.ask(page)
        assert page.run("document.querySelectorAll('.bars tbody tr').length") == 10
        assert page.run("document.querySelectorAll('[data-key=alike] img').length") == 6
        page.run("document.querySelectorAll('.ways button')[1].click()")
        page_driver.wait(page, "document.querySelector('.camera .error')?.innerText.includes('No camera was found')")
        page.run("document.querySelectorAll('.ways button')[0].click()")
        page_driver.wait(page, "document.querySelector('.camera').hidden")
        box = page.run("(({left, top}) => [left, top])(document.querySelector('canvas').getBoundingClientRect())")
        page.mouse("mousePressed", box[0] + 110, box[1] + 30)
        page.mouse("mouseReleased", box[0] + 110, box[1] + 180)
        page_driver.ask(page)  # it waits for the drawing to be sent
        assert page.run("document.querySelector('.given figcaption').innerText") == "as the model sees it"
        assert page.run("document.querySelectorAll('.bars tbody tr').length") == 10
        page.run("document.querySelector('.example').click()")
        page_driver.check_two_visitors(page)
        assert page.run("document.querySelectorAll('.bars tbody tr').length") == 10
        page_driver.check_quality(page, address)


@pytest.mark.slow
@browser.with_browser
def test_a_visitor_takes_a_picture(run, tmp_path, monkeypatch):
    """The answer is that to the picture that the camera sent; a camera that is denied is a message."""
    _, demo = run
    sent, accept = [], demo.accept
    monkeypatch.setattr(demo, "accept", lambda field, file: sent.append(file) or accept(field, file))
    with demo_server.served(demo) as address, browser.Browser(tmp_path, cameras=1) as page:
        page.open(address)
        page.run("document.querySelectorAll('.ways button')[1].click()")
        page_driver.wait(page, "document.querySelector('video').videoWidth > 0")
        page.run("document.querySelector('.camera button').click()")
        page_driver.wait(page, "document.querySelector('.given img')")
        page_driver.ask(page)
        bars = demo_server.answered(demo, UserQuestion(files={"picture": sent}))["classes"].bars
        assert [file.name for file in sent] == ["camera.png"]
        assert Image.open(io.BytesIO(sent[0].content)).width >= 320
        displayed = page.run("[...document.querySelectorAll('.bars tbody th')].map((cell) => cell.innerText)")
        assert displayed == [bar.label for bar in bars]
        page.run("document.querySelectorAll('.ways button')[1].click()")
        assert page.run("document.querySelector('video').srcObject") is None, "the camera is off"
        page_driver.check_quality(page, address)
        denied = "Promise.reject(new DOMException('no', 'NotAllowedError'))"
        page.run(f"void (navigator.mediaDevices.getUserMedia = () => {denied})")
        page.run("document.querySelectorAll('.ways button')[1].click()")
        page_driver.wait(page, "document.querySelector('.camera .error')?.innerText.includes('does not allow')")
        assert page.run("document.querySelector('video').hidden")
