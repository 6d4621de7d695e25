"""Tests previews of the same few samples after each validation."""

import base64
import errno
import io
import json
import os

import pytest
import torch
from PIL import Image

from callbacks.logging.sample_previews import SamplePreviewLogger, preview_files, to_json
from engine.io import atomic_file
from engine.telemetry.sample_previews import SamplePreview
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer
from tests.support.outputs.sample_previews import DIGITS, previews_of
from tests.tiers import slow


def board(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.folder), size_guidance={"images": 0, "tensors": 0})
    events.Reload()
    return events


def test_previews_of_a_recommender_have_histories_and_unseen_items(lockstep):
    run = lockstep("fit", *TINY, "--trainer.max_epochs", "2", name="a")
    previews = previews_of(run)
    assert list(previews) == [13, 26]
    assert all(len(examples) == 8 for examples in previews.values())
    inputs = [
        [(preview["name"], preview["question"], preview["expected"]) for preview in examples]
        for examples in previews.values()
    ]
    assert inputs[0] == inputs[1], "the same samples every time"
    for preview in previews[26]:
        question_lines = preview["question"].splitlines()
        assert preview["name"].startswith("user shopper-")
        assert "newest first" in question_lines[0]
        assert question_lines[1].startswith("1. item-")
        recommended = [line.split(". ")[1] for line in preview["answer"].splitlines()[:10]]
        assert len(set(recommended)) == 10
        assert preview["right"] == (preview["expected"] in recommended)
        assert preview["answer"].endswith(preview["expected"]) or preview["right"]
        assert not {line.split(". ")[1] for line in question_lines[1:]} & set(recommended), (
            "what is known is not recommended"
        )
        assert preview["picture"] is None
        assert preview["blind"] is None
    texts = board(run).Tensors("val/examples/text_summary")
    assert [text.step for text in texts] == [13, 26]
    assert previews[26][0]["expected"] in texts[-1].tensor_proto.string_val[0].decode()
    assert board(run).Tags()["images"] == []


def test_previews_of_a_classifier_have_pictures_and_labels(lockstep):
    run = lockstep("fit", *DIGITS, name="a")
    (examples,) = previews_of(run).values()
    for preview in examples:
        picture = Image.open(io.BytesIO(base64.b64decode(preview["picture"])))
        assert picture.format == "PNG"
        assert picture.size == (128, 128)
        assert preview["right"] == (preview["answer"].split()[0] == preview["expected"])
        assert preview["name"].startswith("digit ")
    assert len({preview["expected"] for preview in examples}) > 3
    assert [picture.step for picture in board(run).Images("val/examples")] == [21]
    assert board(run).Images("val/confusion"), "the module's own images are logged, too"


def test_the_pictures_are_those_of_the_samples(lockstep):
    from datamodules.image_classifier.sources.image_source import digits

    run = lockstep("fit", *DIGITS, name="a")
    validation = digits(0.1).validation
    rows = {validation.name(row): row for row in range(len(validation.labels))}
    for preview in next(iter(previews_of(run).values())):
        row = rows[preview["name"]]
        picture = Image.open(io.BytesIO(base64.b64decode(preview["picture"]))).convert("L").resize((8, 8), 0)
        assert list(picture.tobytes()) == validation.pixels[row].ravel().tolist()
        assert preview["expected"] == str(validation.labels[row])


@pytest.mark.parametrize("options", [TINY, slow(DIGITS)], ids=["recommender", "image_classifier"])
def test_a_run_without_previews_is_the_same_to_the_bit(lockstep, options):
    short = [*options, "--trainer.max_epochs", "2"]
    runs = [lockstep("fit", *short, "--sample_previews.number", number, name=number) for number in ("8", "0")]
    assert previews_of(runs[0])
    assert not (runs[1].folder / "examples").exists()
    assert "val/examples/text_summary" not in board(runs[1]).Tags()["tensors"]
    metrics = [
        {(line["step"], key): value for line in lines for key, value in line.items() if key.startswith("val/")}
        for lines in (run.records for run in runs)
    ]
    assert metrics[0] == metrics[1]
    assert metrics[0]
    assert runs[0].series("train/loss") == runs[1].series("train/loss")
    weights = [torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"] for run in runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_a_resumed_run_writes_again_what_came_after_its_checkpoint(lockstep):
    options = [*TINY, "--trainer.max_epochs", "2"]
    run = lockstep("fit", *options, name="a")
    before = previews_of(run)
    folder = run.folder / "examples"
    (folder / "val-99.json").write_text("{}")
    (folder / f".val-39.json.{os.uname().nodename.replace('.', '-')}.999999999.new").write_text("half")
    (folder / "notes.txt").write_text("mine")
    lockstep("fit", *TINY, "--trainer.max_epochs", "3", "--ckpt_path", "last", name="a")
    after = previews_of(run)
    assert list(after) == [13, 26, 39]
    assert after[26] == before[26]
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "val-13.json", "val-26.json", "val-39.json"]


def test_fast_dev_run_and_evaluations_write_no_previews(lockstep, done):
    trial = lockstep("fit", *TINY, "--trainer.fast_dev_run", "true", name="b")
    assert not (trial.folder / "examples").exists()
    before = {file: file.stat().st_mtime_ns for _, file in preview_files(done.folder)}
    assert len(before) == 2
    for command in ("validate", "test"):
        lockstep(command, *TINY, name=done.folder.name)
    assert before == {file: file.stat().st_mtime_ns for _, file in preview_files(done.folder)}


def test_a_number_out_of_range_is_refused():
    for number in (-1, 9):
        with pytest.raises(ValueError, match=f"sample_previews.number must be from 0 to 8, got {number}"):
            SamplePreviewLogger(number)


# -- the files -------------------------------------------------------------------------------------------------------

EXAMPLE = SamplePreview("1", "what?", "this", "half \ud83d", None, b"\x89PNG")


def test_a_file_contains_all_fields(tmp_path):
    SamplePreviewLogger()._write(tmp_path, 7, [EXAMPLE])
    ((step, file),) = preview_files(tmp_path)
    record = json.loads(file.read_text(encoding="utf-8"))
    assert step == record["step"] == 7
    assert record["stage"] == "val"
    assert (
        record["examples"]
        == [to_json(EXAMPLE)]
        == [
            {
                "name": "1",
                "question": "what?",
                "expected": "this",
                "answer": "half ?",
                "right": None,
                "picture": base64.b64encode(b"\x89PNG").decode(),
                "blind": None,
            }
        ]
    )


def test_a_long_run_keeps_a_bounded_number_of_files(tmp_path):
    log = SamplePreviewLogger()
    for step in range(10, 2010, 10):
        log._write(tmp_path, step, [EXAMPLE])
        steps = [kept for kept, _ in preview_files(tmp_path)]
        assert len(steps) <= 32
        assert steps[0] == 10
        assert steps[-1] == step
    gaps = [later - earlier for earlier, later in zip(steps, steps[1:], strict=False)]
    assert len(steps) == 32, "spread over the whole run"
    assert max(gaps) <= 2 * 2000 / 31, "spread over the whole run"


def test_a_full_disk_ends_no_run_and_is_reported_once(tmp_path, monkeypatch, caplog):
    log, replace = SamplePreviewLogger(), os.replace

    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_file.os, "replace", full)
    for step in (1, 2):
        log._write(tmp_path, step, [EXAMPLE])
    (warning,) = [record for record in caplog.records if "cannot be written" in record.message]
    assert warning.event == "disk_full"
    assert "val-1.json" in warning.fields["path"]
    assert list((tmp_path / "examples").iterdir()) == []
    monkeypatch.setattr(atomic_file.os, "replace", replace)
    log._write(tmp_path, 3, [EXAMPLE])
    assert [step for step, _ in preview_files(tmp_path)] == [3]


def test_a_preview_that_cannot_be_rendered_ends_no_run(tmp_path, caplog):
    def gone():
        raise RuntimeError("page 3 of manual.pdf has changed")

    log = SamplePreviewLogger()
    for step in (1, 2):
        trainer = fake_trainer(default_root_dir=tmp_path, global_step=step)
        log._log_previews(trainer, [gone, lambda: EXAMPLE])  # its picture is no valid PNG
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "RuntimeError: page 3 of manual.pdf has changed" in warning
    assert "Training continues" in warning
    kept = [json.loads(file.read_text(encoding="utf-8"))["examples"] for _, file in preview_files(tmp_path)]
    assert kept == [[to_json(EXAMPLE)]] * 2


# -- trackers --------------------------------------------------------------------------------------------------------

TRACKED = [*DIGITS, "--wandb.project", "digits", "--mlflow.experiment", "digits"]


@pytest.mark.slow
def test_trackers_have_the_pictures(lockstep, tmp_path):
    run = lockstep("fit", *TRACKED, name="a")
    sheet = Image.open(io.BytesIO(board(run).Images("val/examples")[0].encoded_image_string))
    (media,) = run.folder.glob("wandb/offline-run-*/files/media/images/val/*.png")
    (picture,) = [file for file in (tmp_path / "runs/mlflow-files").glob("**/*.png") if "examples" in file.name]
    for file in (media, picture):
        assert Image.open(file).convert("RGB").tobytes() == sheet.convert("RGB").tobytes(), file


@pytest.mark.slow
def test_a_tracker_that_accepts_no_images_keeps_the_metrics(lockstep, messages, monkeypatch):
    def refused(*args, **kwargs):
        raise OSError("no artifact store")

    monkeypatch.setattr("mlflow.MlflowClient.log_image", refused)
    monkeypatch.setattr("wandb.Image", refused)
    run = lockstep("fit", *TRACKED, "--trainer.max_epochs", "3", name="a")
    warnings = [line for line in messages if "does not accept images (no artifact store)" in line]
    assert sorted(line.split()[0] for line in warnings) == ["MLflow", "W&B"]
    assert not [line for line in messages if "stopped recording" in line]
    assert len(previews_of(run)) == 3
