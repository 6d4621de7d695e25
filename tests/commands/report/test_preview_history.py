"""Tests the predictions for the same samples at several evaluations."""

import base64
import json

import pytest

from commands.report.preview_history import STEPS, read_previews
from tests.commands.report.recorded import PIXEL, Recorded


@pytest.fixture
def run(tmp_path):
    return Recorded(tmp_path / "a")


def test_answers_are_kept_by_step_and_each_picture_once(run):
    for step in (300, 20, 1000):
        run.example(step, f"answer {step}", step > 20)
    history = read_previews(run.folder / "examples")
    assert [step["step"] for step in history["steps"]] == [20, 300, 1000]
    assert [step["answers"]["user 7"]["right"] for step in history["steps"]] == [False, True, True]
    assert history["samples"] == {"user 7": {"question": "last items: 1, 2, 3", "expected": "4"}}
    assert {step["answers"]["user 7"]["picture"] for step in history["steps"]} == {"p0"}
    assert history["pictures"] == {"p0": "data:image/png;base64," + base64.b64encode(PIXEL).decode()}


def test_many_evaluations_are_thinned(run):
    for step in range(100):
        run.example(step, "4", True)
    history = read_previews(run.folder / "examples")
    steps = [step["step"] for step in history["steps"]]
    assert len(steps) == STEPS
    assert (steps[0], steps[-1]) == (0, 99)
    assert history["evaluations"] == 100


def test_pictures_over_the_bound_are_left_out_and_counted(run):
    run.example(1, "4", True, PIXEL + bytes(3000))
    run.example(2, "4", True, PIXEL)
    history = read_previews(run.folder / "examples", largest=1000)
    assert history["left_out"] == 1
    assert len(history["pictures"]) == 1
    assert [step["answers"]["user 7"]["picture"] for step in history["steps"]] == [None, "p0"]


@pytest.mark.parametrize("picture", [b"<svg onload=alert(1)>", b"GIF89a", b"\x89PNG"])
def test_only_png_files_come_onto_the_page(run, picture):
    run.example(1, "4", None, picture)
    assert read_previews(run.folder / "examples")["pictures"] == {}


def test_incomplete_files_are_counted(run):
    run.example(1, "4", None)
    folder = run.folder / "examples"
    (folder / "val-2.json").write_text('{"examples": [{"name"')
    (folder / "val-3.json").write_text(json.dumps({"examples": [{"name": "x"}]}))
    history = read_previews(folder)
    assert history["unreadable"] == 2
    assert len(history["steps"]) == 1


def test_a_run_without_examples_has_no_steps(run):
    assert read_previews(run.folder / "examples")["steps"] == []
