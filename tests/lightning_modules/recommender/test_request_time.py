"""Tests request time from the command line: metric names, predictions for a time, exports."""

import json

import numpy as np
import pytest

from engine.export.onnx import run_onnx
from lightning_modules.recommender.export.runtime import load_recommender
from tests.conftest import REPOSITORY, TINY
from tests.support.recommender import timed_events
from tests.support.recommender.timed_events import HISTORIES, USERS, YEAR, answers, write_table

REQUEST = [
    "--model.init_args.attention=time_interval",
    "--model.init_args.time_buckets=log",
    "--model.init_args.request_time=true",
    "--best_checkpoint.monitor=val/request_time/ndcg@10",
]
SHORT = [*TINY, *REQUEST, "--trainer.max_epochs", "1", "--data.init_args.sampled_100", "true"]


def logged(run, stage):
    return {name for record in run.records for name in record if name.startswith(f"{stage}/")}


def test_no_metric_has_a_name_of_the_blind_clock(lockstep, messages):
    run = lockstep("fit", *SHORT, name="a")
    lockstep("test", name="a")
    for stage in ("val", "test"):
        names = logged(run, stage)
        own = {name for name in names if "/baseline/" not in name}
        assert {name.split("/")[1] for name in own} == {"request_time"}
        assert f"{stage}/request_time/ndcg@10" in own
        assert f"{stage}/request_time/sampled_100/hr@10" in own
        for name in names - own:
            assert name.split("/")[3] == "request_time"
        assert f"{stage}/baseline/popularity/request_time/ndcg@10" in names
    assert (run.folder / "checkpoints/best.ckpt").is_file()
    (model,) = (line for line in messages if line.startswith("test: this model"))
    (popularity,) = (line for line in messages if line.startswith("test: popularity"))
    for row in (model, popularity):
        assert " request_time/hr@10 " in row
        assert " hr@10 " not in row
        assert " ndcg@10 " not in row


def test_the_monitor_of_the_blind_clock_is_refused_before_the_training(lockstep):
    with pytest.raises(Exception, match="monitor is 'val/ndcg@10'.*not logged.*'val/request_time/ndcg@10'"):
        lockstep("fit", *SHORT, "--best_checkpoint.monitor", "val/ndcg@10", name="a")


def test_attention_that_reads_no_times_is_refused(lockstep):
    with pytest.raises(ValueError, match="model.init_args.request_time: found true, and .* standard reads no times"):
        lockstep("fit", *SHORT, "--model.init_args.attention", "standard", name="a")


OWN = [
    f"--config={REPOSITORY / 'configs/recommender/tisasrec_request_time.yaml'}",
    *timed_events.OPTIONS,
    "--trainer.check_val_every_n_epoch=1",
]
LATEST = max(history["times"][-1] for history in HISTORIES)


def predicted(run, name="predictions.jsonl"):
    return answers(run.predictions(name))


def ask(lockstep, tmp_path, lines, name="people.jsonl"):
    (tmp_path / name).write_text("\n".join(map(json.dumps, lines)) + "\n")
    return lockstep("predict", "--data.init_args.predict_histories", name, name="model")


@pytest.mark.slow
def test_every_interface_has_the_same_answer_for_a_time(lockstep, tmp_path):
    write_table(tmp_path)
    run = lockstep("fit", *OWN, name="model")
    by_default = predicted(lockstep("predict", name="model"))
    later = LATEST + 3 * YEAR
    lockstep("predict", "--data.init_args.predict_request_time", str(LATEST), name="model")
    assert predicted(run) == by_default
    lockstep("predict", "--data.init_args.predict_request_time", str(later), name="model")
    in_three_years = predicted(run)
    assert in_three_years != by_default

    ask(lockstep, tmp_path, [{**history, "request_time": later} for history in HISTORIES])
    assert predicted(run, "predictions-people.jsonl") == in_three_years

    lockstep("export", "--output", str(tmp_path / "out"), name="model")
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["inputs"] == ["items", "times", "request_time", "seen"]
    assert settings["architecture"]["request_time"] is True
    loaded = load_recommender(tmp_path / "out")
    items = np.array([[loaded.item_ids.index(item) + 1 for item in history["items"]] for history in HISTORIES])
    times = np.array([history["times"] for history in HISTORIES])
    for at, expected in ((LATEST, by_default), (later, in_three_years)):
        inputs = {"items": items[:, -6:], "times": times[:, -6:], "request_time": np.full(USERS, at), "seen": items}
        ((_, best, scores),) = run_onnx(tmp_path / "out/model.onnx", inputs)
        for row, line in enumerate(expected):
            recommended = loaded.recommend(HISTORIES[row]["items"], HISTORIES[row]["times"], request_time=at)
            by_graph = [(loaded.item_ids[item - 1], score) for item, score in zip(best[row], scores[row], strict=True)]
            for actual in ([(recommendation.item, recommendation.score) for recommendation in recommended], by_graph):
                assert [item for item, _ in actual] == [item for item, _ in line]
                assert [score for _, score in actual] == pytest.approx([score for _, score in line], abs=1e-4)

    card = (tmp_path / "out/README.md").read_text()
    assert "| request_time/ndcg@10 |" in card
    assert "| ndcg@10 |" not in card
    assert "with request time" in card
    assert '"request_time": np.array([' in card
    assert "- `request_time`: int64 [batch]" in card

    with pytest.raises(
        ValueError, match="people.jsonl: line 3: found no key 'request_time', and model.init_args.request_time"
    ):
        ask(lockstep, tmp_path, [{**history, "request_time": later} for history in HISTORIES[:2]] + HISTORIES[2:])
    with pytest.raises(
        ValueError, match="people.jsonl: line 1: key 'request_time': found 5, earlier than the last of 'times'"
    ):
        ask(lockstep, tmp_path, [{**HISTORIES[0], "request_time": 5}])
    with pytest.raises(
        ValueError, match=f"predict_request_time: found {LATEST - 1}, and user u39 has an event at {LATEST}"
    ):
        lockstep("predict", "--data.init_args.predict_request_time", str(LATEST - 1), name="model")
