"""Tests that two ranks recommend the same items from lists as one rank does."""

import json

import pytest

from tests.conftest import TINY


@pytest.mark.slow
def test_two_processes_recommend_the_same_from_lists(lockstep, team, tmp_path):
    lockstep("fit", *TINY, "--trainer.max_steps", "2", name="a")
    (tmp_path / "allow.txt").write_text("".join(f"item-{number}\n" for number in range(1, 25)) + "ghost\n")
    (tmp_path / "deny.txt").write_text("item-3")
    lists = ["--data.init_args.allow_items", "allow.txt", "--data.init_args.deny_items", "deny.txt"]
    answers = (lockstep("predict", *TINY, *lists, name="a").folder / "predictions.jsonl").read_text()
    pair = team("predict", *TINY, *lists, name="a", processes=2)
    assert pair.end() == [0, 0], pair.output
    together = (pair.folder / "predictions.jsonl").read_text()
    assert [json.loads(line) for line in together.splitlines()] == [json.loads(line) for line in answers.splitlines()]
    assert pair.output.count("ids are not items of the model and are ignored: 'ghost'") == 1, "one warning for both"
