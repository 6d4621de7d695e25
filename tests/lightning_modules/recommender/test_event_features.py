"""Tests event features from the command line: training, predictions and exports."""

import json

import numpy as np
import pytest

from engine.export.onnx import run_onnx
from lightning_modules.recommender.export.runtime import load_recommender
from tests.support.recommender.event_table import EVENTS, FEATURES, HISTORIES, OPTIONS, write_table

pytestmark = pytest.mark.slow


def item_scores(run, file="predictions.jsonl"):
    """Return {item: score} of each prediction."""
    return [
        {recommendation["item"]: recommendation["score"] for recommendation in line["recommendations"]}
        for line in run.predictions(file)
    ]


def ask(lockstep, tmp_path, lines):
    (tmp_path / "people.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    run = lockstep("predict", "--data.init_args.predict_histories", "people.jsonl", name="a")
    return item_scores(run, "predictions-people.jsonl")


def test_features_are_learned_and_every_interface_has_the_same_answer(lockstep, tmp_path):
    write_table(tmp_path)
    run = lockstep("fit", *OPTIONS, *FEATURES, "--trainer.max_epochs", "12", name="a")
    blind = lockstep("fit", *OPTIONS, "--trainer.max_epochs", "12", name="blind")
    ours, theirs = (max(trained.series("val/hr@10").values()) for trained in (run, blind))
    assert ours > theirs + 0.15, (ours, theirs)

    prediction = item_scores(lockstep("predict", name="a"))
    assert ask(lockstep, tmp_path, HISTORIES) == prediction
    without = [
        {key: value for key, value in history.items() if key not in ("device", "stars")} for history in HISTORIES
    ]
    hidden = ask(lockstep, tmp_path, without)
    assert all(line != other for line, other in zip(hidden, prediction, strict=True))

    lockstep("export", "--output", str(tmp_path / "out"), name="a")  # the graph is compared with the model
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["inputs"] == ["items", "event_codes", "event_numbers", "seen"]
    encoding = settings["event_features"]
    assert encoding["categories"] == {"device": ["phone", "web"]}
    assert encoding["largest_number"] == 5
    loaded = load_recommender(tmp_path / "out")
    for one, expected, alone in zip(HISTORIES[:9], prediction, hidden, strict=False):
        spaced = [f" {name} " for name in one["device"]]  # tables are read without white space around a category
        for features, line in (({"device": spaced, "stars": one["stars"]}, expected), (None, alone)):
            actual = loaded.recommend(one["items"], one["times"], features=features)
            assert [row.item for row in actual] == list(line)
            assert [row.score for row in actual] == pytest.approx(list(line.values()), abs=2e-4)
        items = np.array([[loaded.item_ids.index(item) + 1 for item in one["items"]]])
        codes = np.array([[[encoding["categories"]["device"].index(name) + 1] for name in one["device"]]])
        stars = np.array([[[np.nan if star is None else star] for star in one["stars"]]], np.float32)
        number = encoding["numbers"]["stars"]
        inputs = {"items": items, "event_codes": codes, "seen": items}
        inputs["event_numbers"] = ((stars - number["mean"]) / number["deviation"]).clip(-5, 5).astype(np.float32)
        ((_, best, scores),) = run_onnx(tmp_path / "out/model.onnx", inputs)
        graph = [score for score in scores[0] if score > -np.inf]
        assert graph == pytest.approx(list(expected.values()), abs=1e-3)
        assert [loaded.item_ids[item - 1] for item in best[0][: len(graph)]] == list(expected)
    for features, message in (
        ({"colour": []}, "features: found the key 'colour', expected some of device, stars"),
        ({"stars": [1]}, "'stars'.: found 1 values and 9 items"),
        ({"stars": ["x"] * EVENTS}, "'stars'.: found 'x', expected a finite number"),
        ({"stars": [10**400] * EVENTS}, "'stars'.: found '10{59}', expected a finite number"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded.recommend(HISTORIES[0]["items"], HISTORIES[0]["times"], features=features)
    card = (tmp_path / "out/README.md").read_text()
    assert "reads features of the events: device, stars" in card
    assert "- `event_codes`: int64" in card
