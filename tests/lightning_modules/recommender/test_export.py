"""The graph of plain operations is the encoder, onnxruntime computes it, and what is loaded recommends the same."""

import json

import numpy as np
import pytest
import torch

from datamodules.recommender.batch import Catalog, History, RankingBatch
from engine.onnx_file import run_onnx
from lightning_modules.recommender import scoring_graph
from lightning_modules.recommender.export import Recommender, export, graph_inputs, same_best
from lightning_modules.recommender.exported import load_recommender
from lightning_modules.recommender.scoring_graph import ScoringGraph
from tests.lightning_modules.recommender.test_network import LONGEST, VARIANTS, V, make_encoder, make_history

IDS = [f"id-{number}" for number in range(1, V + 1)]


def ranking(history):
    none = torch.zeros(len(history.lengths), 0, dtype=torch.int64)
    rows = torch.arange(len(history.lengths))
    return RankingBatch(history, torch.zeros_like(history.lengths), history.items, none, rows)


def expected_scores(encoder, history):
    with torch.no_grad():
        states = encoder.eval()(history)
        return encoder.scores(states[torch.arange(len(states)), (history.lengths - 1).clamp_min(0)])


def recommender(**variant):
    settings = {"hidden_size": 8, "num_heads": 2, "num_blocks": 1, "sinkhorn_iterations": 2, **variant}
    return Recommender(make_encoder(**settings), settings, Catalog(V, LONGEST, IDS, None), 5, True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_graph_is_the_encoder(variant):
    encoder, history = make_encoder(**variant), make_history()
    expected = expected_scores(encoder, history)
    scores, items, best = ScoringGraph(encoder, 5)(history.items, history.times, history.time_scale, history.items)
    torch.testing.assert_close(scores[:3], expected[:3], atol=1e-6, rtol=1e-5)  # the last row has no event
    left = expected.scatter(1, history.items, -torch.inf)
    assert torch.equal(items[:3], left[:3].topk(5).indices) and torch.equal(best, scores.gather(1, items))
    assert torch.equal(expected_scores(encoder, history), expected)  # the encoder itself is as it was


@pytest.mark.parametrize(
    "variant",
    [{"attention": "standard", "residual": "plain"}, {"attention": "time_interval", "residual": "mhc", "norm": "post"}],
)
def test_onnxruntime_computes_it_for_any_number_of_rows_and_events(variant, tmp_path):
    """Also where a padded event's streams are exactly zero, which mHC divides by the root of 1e-20."""
    model = recommender(**variant)
    said = export(model, tmp_path, ranking(make_history((4, 7, 1))))
    assert "the same 5 items to 3 users" in said
    for lengths, padded in (((10, 2, 3, 9, 1), 10), ((1,), 1), ((2, 2), 4)):
        history = make_history(lengths, padded, seed=3)
        history = history._replace(time_scale=torch.full((len(lengths),), 3))
        inputs = {name: value.numpy() for name, value in graph_inputs(ranking(history), model).items()}
        ((scores, items, _),) = run_onnx(tmp_path / "model.onnx", inputs)
        expected = expected_scores(model.encoder, history)
        np.testing.assert_allclose(scores[:, 1:], expected[:, 1:].numpy(), atol=1e-5)
        left = expected.scatter(1, history.items, -torch.inf)
        np.testing.assert_array_equal(items, left.topk(5).indices.numpy())

    longer = make_history((LONGEST + 5, 2, LONGEST + 1, LONGEST), LONGEST + 6, seed=4)
    longer = longer._replace(time_scale=torch.full((4,), 3))
    inputs = {name: value.numpy() for name, value in graph_inputs(ranking(longer), model).items()}
    ((scores, *_),) = run_onnx(tmp_path / "model.onnx", inputs)
    for row, length in enumerate(longer.lengths.tolist()):
        events = slice(max(length - LONGEST, 0), length)
        counted = torch.tensor([min(length, LONGEST)]), longer.time_scale[:1]
        last = History(longer.items[row : row + 1, events], longer.times[row : row + 1, events], *counted)
        np.testing.assert_allclose(scores[row, 1:], expected_scores(model.encoder, last)[0, 1:].numpy(), atol=1e-5)

    loaded = load_recommender(tmp_path)
    answers = loaded.recommend([*IDS[:3], "unknown"], [10, 10, 17, 30])
    history = History(torch.tensor([[1, 2, 3]]), torch.tensor([[10, 10, 17]]), torch.tensor([3]), torch.tensor([7]))
    best = expected_scores(model.encoder, history)[0].index_fill(0, torch.tensor([1, 2, 3]), -torch.inf).topk(5)
    assert [answer.item for answer in answers] == [IDS[place - 1] for place in best.indices.tolist()]
    assert [answer.score for answer in answers] == pytest.approx(best.values.tolist(), rel=1e-5)
    assert loaded.recommend(["unknown"], [1]) == []
    assert len(loaded.recommend(IDS, list(range(V)), top_k=3)) == 0  # all are seen
    with pytest.raises(ValueError, match="2 items and 1 times"):
        loaded.recommend(IDS[:2], [1])
    with pytest.raises(ValueError, match=r"times\[2\]: found 4, earlier than times\[1\], 5; expected the oldest"):
        loaded.recommend(IDS[:3], [5, 5, 4])
    for top_k in (0, -1):
        with pytest.raises(ValueError, match=f"found top_k {top_k}, expected 1 or more"):
            loaded.recommend(IDS[:2], [1, 2], top_k)
    assert b".py" not in (tmp_path / "model.onnx").read_bytes()  # no source file of this machine is named
    refuses_what_does_not_belong_together(tmp_path)


def refuses_what_does_not_belong_together(tmp_path):
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "num_items": V + 1}))
    with pytest.raises(ValueError, match=rf"items.json: found {V} ids, expected {V + 1}"):
        load_recommender(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**settings, "max_length": LONGEST + 1}))
    with pytest.raises(ValueError, match="model.safetensors does not fit config.json"):
        load_recommender(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**settings, "format": 0}))
    with pytest.raises(ValueError, match="found format 0, expected 1"):
        load_recommender(tmp_path)


def test_a_graph_that_computes_otherwise_is_refused(tmp_path, monkeypatch):
    """Here one whose attention looks into the future."""

    def sees_all(query, key, value, dropout=0.0, relations=None):
        return (query @ key.mT).softmax(-1) @ value

    monkeypatch.setattr(scoring_graph, "causal_attention", sees_all)
    with pytest.raises(ValueError, match="scores by onnxruntime differ from torch's by .* nothing was written"):
        export(recommender(attention="time_interval"), tmp_path, ranking(make_history((4, 7, 1))))


def test_the_best_may_change_places_where_they_score_alike_and_nowhere_else():
    expected = np.array([[-np.inf, 3.0, 2.0, 2.0, 1.0], [-np.inf, -np.inf, 4.0, -np.inf, -np.inf]], np.float32)
    best = np.array([[3.0, 2.0], [4.0, -np.inf]], np.float32)
    assert same_best(np.array([[1, 2], [2, 0]]), best, expected, 1e-6) == 1.0
    assert same_best(np.array([[1, 3], [2, 1]]), best, expected, 1e-6) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match=r"to history 0 onnxruntime recommends items \[1, 4\], torch \[1, 2\]"):
        same_best(np.array([[1, 4], [2, 0]]), best, expected, 1e-6)
    with pytest.raises(ValueError, match="to history 1"):
        same_best(np.array([[1, 2], [2, 0]]), np.array([[3.0, 2.0], [4.0, 0.0]], np.float32), expected, 1e-6)
