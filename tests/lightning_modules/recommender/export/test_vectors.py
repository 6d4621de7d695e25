"""Tests that exported vectors give the model's ranking, and an index's recall against a plain count."""

import logging

import numpy as np
import pytest
import torch

from datamodules.recommender.batch import Catalog
from lightning_modules.recommender.export.faiss_index import empty_index, recall_at, write_index
from lightning_modules.recommender.export.onnx_export import Recommender
from lightning_modules.recommender.export.vectors import SampledUsers, write_vectors
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from tests.support.outputs.jsonl import read_jsonl
from tests.support.recommender.encoders import LOG, LONGEST, VARIANTS, V, make_encoder, make_history
from tests.support.recommender.export_inputs import IDS, expected_scores, ranking

USERS = [f"user {number}" for number in range(6)]


def batches():
    """Two batches of the users, of other lengths."""
    first, second = ranking(make_history((4, 7, 1), 7)), ranking(make_history((2, 9, 3), 9, seed=5))
    return [first, second._replace(users=second.users + 3)]


def recommender(remove_seen=True, **variant):
    settings = ArchitectureSettings(**variant)
    return Recommender(make_encoder(**variant).eval(), settings, Catalog(V, LONGEST, IDS, None), 5, remove_seen)


@pytest.mark.parametrize("variant", [*VARIANTS, {**LOG, "request_time": True}, {"tie_output": False}])
@pytest.mark.parametrize("remove_seen", [True, False])
def test_the_best_items_by_the_files_are_the_models(tmp_path, variant, remove_seen):
    model = recommender(remove_seen, **variant)
    sampled, checked = write_vectors(model, tmp_path, USERS, batches(), sampled=4)
    assert checked.startswith("For 4 users the dot products")
    assert "100.0% of the ranks of the best 5 items" in checked
    users, items = np.load(tmp_path / "user_vectors.npy"), np.load(tmp_path / "item_vectors.npy")
    assert users.dtype == items.dtype == np.float32
    assert len(users) == 6
    assert len(items) == V
    assert read_jsonl(tmp_path / "user_vectors.jsonl") == [{"user": user} for user in USERS]
    assert read_jsonl(tmp_path / "item_vectors.jsonl") == [{"item": item} for item in IDS]
    expected = torch.cat([expected_scores(model.encoder, batch.history) for batch in batches()])[:, 1:]
    np.testing.assert_allclose(users @ items.T, expected, atol=1e-5)
    best = np.argsort(-(users @ items.T), axis=1)[:, :5]
    np.testing.assert_array_equal(best, expected.topk(5).indices)
    assert sampled.rows.tolist() == [0, 1, 3, 5]
    np.testing.assert_array_equal(sampled.vectors, users[sampled.rows])
    seen = [set(np.flatnonzero(row == -np.inf)) - {0} for row in sampled.scores]
    histories = [set(items.tolist()) - {0} for batch in batches() for items in batch.seen]
    assert seen == [histories[row] if remove_seen else set() for row in sampled.rows]


def test_vectors_that_are_not_the_models_are_refused(tmp_path):
    model = recommender()
    scores = model.encoder.scores
    model.encoder.scores = lambda states: scores(states) + torch.arange(V + 1)  # a bias that the files lack
    with pytest.raises(ValueError, match="differ from the model's scores by .* of the largest, expected 1e-04 at most"):
        write_vectors(model, tmp_path, USERS, batches(), sampled=4)


def test_each_user_has_a_vector(tmp_path):
    with pytest.raises(ValueError, match="found 3 histories, expected one for each of 6 users"):
        write_vectors(recommender(), tmp_path, USERS, batches()[:1], sampled=4)


class Rows:
    """An index that finds given rows, as many as are asked for."""

    def __init__(self, rows):
        self.rows = rows

    def search(self, vectors, number):
        return None, np.array([self.rows[:number]])


def test_the_recall_is_the_share_of_the_best_that_is_found():
    scores = np.array([[-np.inf, 5, 4, 3, -np.inf, 1]], np.float32)  # item 4 has been seen
    users = SampledUsers(np.array([0]), np.zeros((1, 2), np.float32), scores)
    assert recall_at(Rows([0, 1, 2, 3, 4]), users, 3) == 1.0
    assert recall_at(Rows([3, 0, 2, 1, 4]), users, 3) == 1.0, "seen items take no rank"
    assert recall_at(Rows([3, 4, 0, 2, 1]), users, 3) == pytest.approx(2 / 3), "four are asked for"
    assert recall_at(Rows([3, -1, -1, -1, -1]), users, 3) == 0.0, "-1 is no item"
    assert recall_at(Rows([0, 1, 2, 4, 3]), users, 5) == 1.0, "four items are left"


def sample(users=20, items=400, size=8):
    generator = np.random.default_rng(0)
    item_vectors = generator.normal(size=(items, size)).astype(np.float32)
    vectors = generator.normal(size=(users, size)).astype(np.float32)
    scores = np.full((users, items + 1), -np.inf, np.float32)
    scores[:, 1:] = vectors @ item_vectors.T
    scores[:, 7] = -np.inf
    return item_vectors, SampledUsers(np.arange(users), vectors, scores)


def test_an_index_is_written_with_its_recall(tmp_path):
    faiss = pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    vectors, users = sample()
    np.save(tmp_path / "item_vectors.npy", vectors)
    recalls = {}
    for description in ("Flat", "IVF16,Flat nprobe=16", "IVF16,Flat", "HNSW16"):
        message = write_index(tmp_path, empty_index(8, description), users, 10, description)
        index = faiss.read_index(str(tmp_path / "items.faiss"))
        recalls[description] = recall_at(index, users, 10)
        assert message == (
            f"The FAISS index {description} has a recall@10 of {recalls[description]:.4f} against the exact ranking "
            "(20 users, 400 items)."
        )
        assert index.ntotal == 400
    assert recalls["Flat"] == recalls["IVF16,Flat nprobe=16"] == 1.0
    assert 0.05 < recalls["IVF16,Flat"] < 0.9, "one of 16 clusters is searched"
    assert recalls["HNSW16"] > 0.8


def test_an_index_that_faiss_cannot_build_is_refused(tmp_path):
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    for wrong in ("Tree", "Flat depth=3"):
        with pytest.raises(ValueError, match=rf"export_index: found '{wrong}', expected a factory string"):
            empty_index(8, wrong)
    vectors, users = sample(items=12)
    np.save(tmp_path / "item_vectors.npy", vectors)
    with pytest.raises(ValueError, match="found 'IVF64,Flat', which FAISS cannot build from 12 items"):
        write_index(tmp_path, empty_index(8, "IVF64,Flat"), users, 10, "IVF64,Flat")


@pytest.mark.slow
def test_export_writes_vectors_whose_ranking_is_that_of_predict(lockstep, done, tmp_path, caplog):
    faiss = pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    caplog.set_level(logging.INFO, "lockstep")
    options = ["--model.init_args.export_index", "HNSW32"]
    lockstep("predict", name=done.folder.name)
    lockstep("export", *options, "--output", str(tmp_path / "out"), name=done.folder.name)
    (recall,) = (line for line in caplog.messages if "recall@10" in line)
    assert recall.startswith("The FAISS index HNSW32 has a recall@10 of ")
    assert "(200 users, 60 items)" in recall
    users, items = (np.load(tmp_path / "out" / f"{name}_vectors.npy") for name in ("user", "item"))
    names, ids = (read_jsonl(tmp_path / "out" / f"{name}_vectors.jsonl") for name in ("user", "item"))
    assert users.shape == (200, 16)
    assert items.shape == (60, 16)
    answers = done.predictions()
    assert [row["user"] for row in answers] == [row["user"] for row in names]
    numbers = {row["item"]: index for index, row in enumerate(ids)}
    for vector, row in zip(users, answers, strict=True):
        for recommendation in row["recommendations"]:
            assert vector @ items[numbers[recommendation["item"]]] == pytest.approx(recommendation["score"], abs=1e-3)
    assert faiss.read_index(str(tmp_path / "out" / "items.faiss")).ntotal == 60
    card = (tmp_path / "out" / "README.md").read_text()
    for text in (recall, "`user_vectors.npy`", "`items.faiss`", "faiss.read_index"):
        assert text in card
