"""Tests that the ONNX graph equals the encoder in onnxruntime, and that a loaded export recommends the same."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from datamodules.recommender.batch import Catalog, History
from engine.export.onnx import export_onnx, run_onnx
from lightning_modules.recommender.export import onnx_graph
from lightning_modules.recommender.export.onnx_export import (
    Recommender,
    add_long_pauses,
    compare_best_items,
    export_recommender,
    graph_inputs,
)
from lightning_modules.recommender.export.onnx_graph import ScoringGraph
from lightning_modules.recommender.export.runtime import ExportedRecommender, load_recommender
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention import time_interval
from tests.support.recommender.encoders import LOG, LONGEST, VARIANTS, V, make_encoder, make_history
from tests.support.recommender.export_inputs import IDS, expected_scores, ranking
from tests.tiers import slow


def recommender(**variant):
    settings = {"hidden_size": 8, "num_heads": 2, "num_blocks": 1, "sinkhorn_iterations": 2, **variant}
    encoder = make_encoder(**settings)
    return Recommender(encoder, ArchitectureSettings(**settings), Catalog(V, LONGEST, IDS, None), 5, True)


@pytest.mark.parametrize("variant", [*VARIANTS, {**LOG, "request_time": True}])
def test_the_graph_is_the_encoder(variant):
    encoder, history = make_encoder(**variant), make_history()
    expected = expected_scores(encoder, history)
    graph_values = history.items, history.times, history.time_scale, history.items, history.request_time
    scores, items, best = ScoringGraph(encoder, 5)(*graph_values)
    torch.testing.assert_close(scores[:3], expected[:3], atol=1e-6, rtol=1e-5)  # the last row has no event
    left = expected.scatter(1, history.items, -torch.inf)
    assert torch.equal(items[:3], left[:3].topk(5).indices)
    assert torch.equal(best, scores.gather(1, items))
    assert torch.equal(expected_scores(encoder, history), expected)  # the encoder itself is as it was


class Exported(NamedTuple):
    """An exported model, its folder and what the export reported."""

    model: Recommender
    folder: Path
    output: str

    def inputs(self, history):
        return {name: value.numpy() for name, value in graph_inputs(ranking(history), self.model).items()}


@pytest.fixture(
    scope="module",
    params=[
        {"attention": "standard", "residual": "plain"},
        slow({"attention": "time_interval", "residual": "mhc", "norm": "post"}),
        slow({"attention": "time_interval", "time_buckets": "log", "request_time": True}),
        slow({"attention": "standard", "residual": "gated_mhc", "feed_forward": "swiglu"}),
        slow({"attention": "hstu", "feed_forward": "none", "request_time": True}),
        slow({"attention": "fuxi", "feed_forward": "swiglu"}),
        slow({"attention": "gru", "feed_forward": "none", "num_heads": 1, "num_blocks": 2}),
    ],
)
def exported(request, tmp_path_factory):
    """An export of each network, for tests that change none of its files: to write one takes seconds."""
    model, folder = recommender(**request.param), tmp_path_factory.mktemp("export")
    return Exported(model, folder, export_recommender(model, folder, ranking(make_history((4, 7, 1)))))


@pytest.fixture(scope="module")
def loaded(exported):
    return load_recommender(exported.folder)


def test_the_export_compares_its_recommendations_and_names_no_source_file(exported):
    assert "the same 5 items to 3 users" in exported.output
    assert b".py" not in (exported.folder / "model.onnx").read_bytes()


@pytest.mark.parametrize(("lengths", "padded"), [((10, 2, 3, 9, 1), 10), ((1,), 1), ((2, 2), 4)])
def test_onnxruntime_computes_the_export_for_any_number_of_rows_and_events(exported, lengths, padded):
    """Also where a padded event's streams are exactly zero, which mHC divides by the root of 1e-20."""
    history = make_history(lengths, padded, seed=3)
    history = history._replace(time_scale=torch.full((len(lengths),), 3))
    ((scores, items, _),) = run_onnx(exported.folder / "model.onnx", exported.inputs(history))
    expected = expected_scores(exported.model.encoder, history)
    np.testing.assert_allclose(scores[:, 1:], expected[:, 1:].numpy(), atol=1e-5)
    unseen = expected.scatter(1, history.items, -torch.inf)
    np.testing.assert_array_equal(items, unseen.topk(5).indices.numpy())


def test_onnxruntime_reads_the_last_events_of_a_long_history(exported):
    history = make_history((LONGEST + 5, 2, LONGEST + 1, LONGEST), LONGEST + 6, seed=4)
    history = history._replace(time_scale=torch.full((4,), 3))
    ((scores, *_),) = run_onnx(exported.folder / "model.onnx", exported.inputs(history))
    for row, length in enumerate(history.lengths.tolist()):
        events = slice(max(length - LONGEST, 0), length)
        counted = torch.tensor([min(length, LONGEST)]), history.time_scale[:1], history.request_time[row : row + 1]
        last = History(history.items[row : row + 1, events], history.times[row : row + 1, events], *counted)
        expected = expected_scores(exported.model.encoder, last)[0, 1:]
        np.testing.assert_allclose(scores[row, 1:], expected.numpy(), atol=1e-5)


def test_a_loaded_export_recommends_the_best_unseen_items(exported, loaded):
    answers = loaded.recommend([*IDS[:3], "unknown"], [10, 10, 17, 30], request_time=35)
    row = torch.tensor([[1, 2, 3]]), torch.tensor([[10, 10, 17]])
    history = History(*row, torch.tensor([3]), torch.tensor([7]), torch.tensor([35]))
    scores = expected_scores(exported.model.encoder, history)[0]
    best = scores.index_fill(0, torch.tensor([1, 2, 3]), -torch.inf).topk(5)
    assert [answer.item for answer in answers] == [IDS[number - 1] for number in best.indices.tolist()]
    assert [answer.score for answer in answers] == pytest.approx(best.values.tolist(), rel=1e-5)
    assert loaded.recommend(["unknown"], [1], request_time=1) == []
    assert len(loaded.recommend(IDS, list(range(V)), top_k=3, request_time=V)) == 0  # all are seen


def test_a_loaded_export_reads_dates_as_seconds(loaded):
    dates = ["1970-01-01", "1970-01-01T00:00:10Z", "1970-01-01 01:00:17+01:00"]
    as_seconds, as_dates = (loaded.recommend(IDS[:3], times, request_time=35) for times in ([0, 10, 17], dates))
    assert as_seconds
    assert as_dates == as_seconds
    assert loaded.recommend(IDS[:3], np.array([0, 10, 17]), request_time="1970-01-01T00:00:35") == as_seconds


def test_a_loaded_export_refuses_wrong_events_times_and_numbers_of_items(loaded):
    with pytest.raises(ValueError, match="2 items and 1 times"):
        loaded.recommend(IDS[:2], [1])
    with pytest.raises(ValueError, match=r"times\[2\]: found 4, earlier than times\[1\], 5; expected the oldest"):
        loaded.recommend(IDS[:3], [5, 5, 4])
    for wrong in (978_300_760_000, "yesterday", float("nan"), -1, True, None):
        with pytest.raises(ValueError, match=r"times\[1\]: found .*, expected seconds since 1970 "):
            loaded.recommend(IDS[:2], [1, wrong])
        if wrong is not None:
            with pytest.raises(ValueError, match="request_time: found .*, expected seconds since 1970"):
                loaded.recommend(IDS[:2], [1, 2], request_time=wrong)
    for top_k in (0, -1):
        with pytest.raises(ValueError, match=f"found top_k {top_k}, expected 1 or more"):
            loaded.recommend(IDS[:2], [1, 2], top_k)


def test_files_of_another_model_are_refused(exported, tmp_path):
    shutil.copytree(exported.folder, tmp_path, dirs_exist_ok=True)
    settings = json.loads((tmp_path / "config.json").read_text())
    other = {**settings["architecture"], "hidden_size": 16}
    for changes, message in (
        ({"num_items": V + 1}, rf"items.json: found {V} ids, expected {V + 1}"),
        ({"architecture": other}, "model.safetensors does not fit config.json"),
        ({"format": 0}, "found format 0, expected 1"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**settings, **changes}))
        with pytest.raises(ValueError, match=message):
            load_recommender(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", lambda data: data[:40], "config.json: not JSON"),
        ("config.json", lambda data: b"[]", "config.json: the file: found .*, expected an object"),
        ("config.json", lambda data: data.replace(b'"top_k": 5', b'"top_k": "5"'), "config.json: top_k: found"),
        ("config.json", lambda data: data.replace(b'"num_heads"', b'"heads"'), "config.json: its settings .*heads"),
        (
            "config.json",
            lambda data: data.replace(b'"hidden_size": 8', b'"hidden_size": 0'),
            "config.json: its settings",
        ),
        ("items.json", lambda data: data[:-4], "items.json: not JSON"),
        ("items.json", lambda data: b"{}", "items.json: ids: found nothing, expected a list of texts"),
        (
            "items.json",
            lambda data: data.replace(b'"titles": null', b'"titles": ["a"]'),
            "items.json: titles: found 1 ",
        ),
        ("items.json", lambda data: data.replace(b'"titles": null', b'"titles": 3'), "items.json: titles: found 3, "),
        ("model.safetensors", lambda data: data[:-40], "model.safetensors: is corrupt"),
        ("model.safetensors", lambda data: b"", "model.safetensors: is corrupt"),
    ],
)
def test_a_corrupt_file_is_named(exported, tmp_path, name, change, message):
    shutil.copytree(exported.folder, tmp_path, dirs_exist_ok=True)
    data = (tmp_path / name).read_bytes()
    changed = change(data)
    assert changed != data
    (tmp_path / name).write_bytes(changed)
    with pytest.raises(ValueError, match=message):
        load_recommender(tmp_path)


def test_the_items_of_another_export_are_refused(exported, tmp_path):
    shutil.copytree(exported.folder, tmp_path, dirs_exist_ok=True)
    items = json.loads((tmp_path / "items.json").read_text())
    (tmp_path / "items.json").write_text(json.dumps({**items, "ids": items["ids"][::-1]}))
    with pytest.raises(ValueError, match="items.json: found other ids than config.json was written with"):
        load_recommender(tmp_path)
    # An export of an earlier version has no checksum.
    settings = json.loads((tmp_path / "config.json").read_text())
    del settings["items"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert load_recommender(tmp_path).item_ids == IDS[::-1]


def test_a_loaded_model_with_request_time_needs_the_time():
    model = recommender(**LOG, request_time=True)
    settings = {"top_k": 3, "remove_seen": False}
    loaded = ExportedRecommender(model.encoder, settings, IDS, None)
    with pytest.raises(ValueError, match="found no `request_time`, and this model reads the time of the request"):
        loaded.recommend(IDS[:2], [10, 20])
    with pytest.raises(ValueError, match="request_time: found 19, earlier than the last of times, 20"):
        loaded.recommend(IDS[:2], [10, 20], request_time=19)
    now, after_a_year = (loaded.recommend(IDS[:2], [10, 20], request_time=at) for at in (20, 32_000_000))
    assert [recommendation.score for recommendation in now] != [recommendation.score for recommendation in after_a_year]


@pytest.mark.slow
def test_a_graph_that_computes_otherwise_is_refused(tmp_path, monkeypatch):
    """Here one whose attention looks into the future."""

    def sees_all(query, key, value, dropout=0.0, relations=None):
        return (query @ key.mT).softmax(-1) @ value

    monkeypatch.setattr(onnx_graph, "causal_attention", sees_all)
    with pytest.raises(ValueError, match="scores by onnxruntime differ from torch's by .* nothing was written"):
        export_recommender(recommender(attention="time_interval"), tmp_path, ranking(make_history((4, 7, 1))))


class Intervals(torch.nn.Module):
    """The intervals alone, of which a graph shows every number."""

    def forward(self, times, time_scale):
        return (time_interval.time_intervals(times, time_scale, 256),)


@pytest.mark.slow
def test_the_graphs_intervals_are_exact_for_decades(tmp_path):
    """torch.div(..., rounding_mode="floor") is exported as a division of float32, wrong from 2**24 s (194 days) on."""
    generator = torch.Generator().manual_seed(0)
    gaps = torch.randint(0, 1000, (200, 30), generator=generator)
    gaps[::2, 1] += torch.randint(2**24, 2**30, (100,), generator=generator)
    scale = torch.randint(1, 60, (200,), generator=generator)
    inputs = {"times": gaps.cumsum(1), "time_scale": scale}
    axes = {"times": {0: torch.export.Dim("rows")}, "time_scale": {0: torch.export.Dim("rows")}}
    export_onnx(tmp_path / "intervals.onnx", Intervals(), inputs, ["intervals"], axes)
    ((actual,),) = run_onnx(tmp_path / "intervals.onnx", {name: value.numpy() for name, value in inputs.items()})
    expected = time_interval.time_intervals(*inputs.values(), 256).numpy()
    np.testing.assert_array_equal(actual, expected)
    assert len(np.unique(expected)) > 100


@pytest.mark.slow
def test_intervals_that_are_wrong_after_a_year_are_refused_whatever_the_users_times_are(tmp_path, monkeypatch):
    def rounded(times, time_scale, time_span, query_times=None):
        scale, elapsed = time_scale.unsqueeze(1), times - times[:, :1]
        units = torch.div(elapsed, scale, rounding_mode="floor")
        rest = elapsed - units * scale
        units += rest >= scale - rest
        return (units.unsqueeze(2) - units.unsqueeze(1)).abs_().clamp_(max=time_span)

    history = make_history((4, 7, 1))
    torch.testing.assert_close(rounded(*history[1:4:2], 16), time_interval.time_intervals(*history[1:4:2], 16))
    monkeypatch.setattr(time_interval, "time_intervals", rounded)
    with pytest.raises(ValueError, match="scores by onnxruntime differ from torch's by"):
        export_recommender(recommender(attention="time_interval"), tmp_path, ranking(history))


def test_the_compared_histories_span_years_by_the_second():
    rows = add_long_pauses(ranking(make_history((4, 7, 1))))
    times, lengths = rows.history.times, rows.history.lengths
    assert rows.history.request_time[:3].equal(make_history((4, 7, 1)).request_time)
    assert len(rows.users) == len(times) == 6
    assert torch.equal(lengths[:3], lengths[3:])
    added = times[3:]
    assert (added[:2].amax(1) - added[:2, 0] > 5 * 365 * 86_400).all()
    assert (added.diff() > 0).all()
    assert added.diff()[:, 1:].max() < 10
    assert (rows.history.time_scale[3:] == 1).all()
    last = added.gather(1, lengths[3:, None] - 1).squeeze(1)
    assert ((rows.history.request_time[3:] - last > 0) & (rows.history.request_time[3:] - last < 10)).all()


def test_items_may_change_ranks_only_where_they_score_alike():
    expected = np.array([[-np.inf, 3.0, 2.0, 2.0, 1.0], [-np.inf, -np.inf, 4.0, -np.inf, -np.inf]], np.float32)
    best = np.array([[3.0, 2.0], [4.0, -np.inf]], np.float32)
    assert compare_best_items(np.array([[1, 2], [2, 0]]), best, expected, 1e-6) == 1.0
    assert compare_best_items(np.array([[1, 3], [2, 1]]), best, expected, 1e-6) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match=r"to history 0 onnxruntime recommends items \[1, 4\], torch \[1, 2\]"):
        compare_best_items(np.array([[1, 4], [2, 0]]), best, expected, 1e-6)
    with pytest.raises(ValueError, match="to history 1"):
        compare_best_items(np.array([[1, 2], [2, 0]]), np.array([[3.0, 2.0], [4.0, 0.0]], np.float32), expected, 1e-6)
