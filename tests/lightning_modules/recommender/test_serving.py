"""Tests that a final model, trained on all events, gives a history the same answer through every interface."""

import json

import numpy as np
import pytest

from engine.export.onnx import run_onnx
from lightning_modules.recommender.export.runtime import load_recommender
from tests.conftest import REPOSITORY, TINY
from tests.support.recommender import timed_events
from tests.support.recommender.timed_events import HISTORIES, ITEMS, answers, write_table

OPTIONS = [
    f"--config={REPOSITORY / 'configs/recommender/tisasrec.yaml'}",
    "--data.init_args.split=none",
    *timed_events.OPTIONS,
]


@pytest.mark.slow
def test_a_final_model_gives_one_history_one_answer(lockstep, tmp_path, messages):
    write_table(tmp_path)
    run = lockstep("fit", *OPTIONS, name="final")
    checkpoints = {path.name for path in (run.folder / "checkpoints").iterdir()}
    assert checkpoints == {"last.ckpt", "last-1.ckpt"}
    assert not run.series("val/ndcg@10")
    assert any("no validation and no best.ckpt" in line for line in messages)

    table = lockstep("predict", name="final").predictions()
    assert any("best.ckpt does not exist" in line and "using last.ckpt" in line for line in messages)
    assert [row["user"] for row in table] == [history["user"] for history in HISTORIES]
    requests = [*HISTORIES, {"user": "stranger", "items": ["no-such-sku"], "times": [5]}]
    (tmp_path / "people.jsonl").write_text("\n".join(map(json.dumps, requests)) + "\n")
    before = (run.folder / "predictions.jsonl").read_bytes()
    lockstep("predict", "--data.init_args.predict_histories", "people.jsonl", name="final")
    *file, stranger = run.predictions("predictions-people.jsonl")
    assert (run.folder / "predictions.jsonl").read_bytes() == before
    assert file == table

    lockstep("export", "--output", str(tmp_path / "out"), name="final")
    loaded = load_recommender(tmp_path / "out")
    recommended = [loaded.recommend(history["items"], history["times"]) for history in HISTORIES]
    items, times = (
        np.array([[convert(value) for value in history[key]] for history in HISTORIES])
        for key, convert in (("items", lambda item: loaded.item_ids.index(item) + 1), ("times", int))
    )
    gaps = np.diff(times, axis=1).min(1)
    inputs = {"items": items[:, -6:], "times": times[:, -6:], "time_scale": gaps, "seen": items}
    ((_, best, scores),) = run_onnx(tmp_path / "out" / "model.onnx", inputs)
    for row, line in enumerate(answers(table)):
        by_graph = [(loaded.item_ids[item - 1], score) for item, score in zip(best[row], scores[row], strict=True)]
        for found in ([(recommendation.item, recommendation.score) for recommendation in recommended[row]], by_graph):
            assert [item for item, _ in found] == [item for item, _ in line]
            assert [score for _, score in found] == pytest.approx([score for _, score in line], abs=1e-4)
    assert all(recommendation.fallback is None for recommendation in recommended[0])

    assert stranger["user"] == "stranger"
    assert stranger["fallback"] == "popularity"
    popular = loaded.recommend(["no-such-sku"], [5])
    assert [(recommendation.item, recommendation.score) for recommendation in popular] == answers([stranger])[0]
    assert {recommendation.fallback for recommendation in popular} == {"popularity"}
    counts = [sum(history["items"].count(f"sku-{number}") for history in HISTORIES) for number in range(ITEMS)]
    assert [recommendation.score for recommendation in popular] == sorted(counts, reverse=True)[:4]

    for command in ("validate", "test"):
        with pytest.raises(ValueError, match=f"split is none: all events train, so there is none to {command} with"):
            lockstep(command, name="final")


def test_a_loss_with_negatives_is_refused_without_negatives(lockstep):
    with pytest.raises(
        ValueError, match=r"model.init_args.loss gbce needs negatives: set data.init_args.num_negatives"
    ):
        lockstep("fit", *TINY, "--model.init_args.loss", "gbce", name="a")


def test_histories_and_exports_that_are_not_there(lockstep, tmp_path):
    lockstep("fit", *TINY, "--trainer.max_steps", "1", name="a")
    with pytest.raises(FileNotFoundError, match="data.init_args.predict_histories: absent.jsonl does not exist"):
        lockstep("predict", "--data.init_args.predict_histories", "absent.jsonl", name="a")
    with pytest.raises(FileNotFoundError, match="has no config.json: expected the folder that `train.py export` wrote"):
        load_recommender(tmp_path)
