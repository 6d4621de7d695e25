"""Tests items without a training event: ranked, recommended and exported by their features."""

import json

import numpy as np
import polars as pl
import pytest

from lightning_modules.recommender.export.runtime import load_recommender
from tests.conftest import REPOSITORY
from tests.support.outputs.jsonl import read_jsonl
from tests.support.recommender.timed_events import answers

GROUPS, USERS, EVENTS = 6, 120, 6
KNOWN, HELD_OUT = 8, 2  # items of a group: in the training, and as test targets alone

pytestmark = pytest.mark.slow

OPTIONS = [
    f"--config={REPOSITORY / 'configs/recommender/sasrec.yaml'}",
    "--data.init_args.dataset=files",
    "--data.init_args.root=events.csv",
    "--data.init_args.min_item_interactions=1",
    "--data.init_args.batch_size=16",
    "--model.init_args.hidden_size=16",
    "--model.init_args.num_heads=1",
    "--model.init_args.num_blocks=1",
    "--model.init_args.learning_rate=0.01",
    "--model.init_args.baselines=false",
    "--trainer.max_epochs=8",
    "--trainer.callbacks=null",
    "--trainer.check_val_every_n_epoch=8",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]
FEATURES = [
    "--data.init_args.item_features.path=items.parquet",
    "--data.init_args.item_features.categories=[maker]",
    "--data.init_args.item_features.numbers=[price]",
    "--data.init_args.item_features.vector=text",
]


@pytest.fixture
def shop(tmp_path):
    """A user's items are of a group; the last one, which is tested, is in no training event."""
    random = np.random.default_rng(0)
    rows = []
    for user in range(USERS):
        group = user % GROUPS
        items = [f"g{group}-{item}" for item in random.permutation(KNOWN)[:EVENTS]]
        items.append(f"g{group}-{KNOWN + user // GROUPS % HELD_OUT}")
        rows += [f"u{user},{item},{1000 + event}" for event, item in enumerate(items)]
    (tmp_path / "events.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    centres = random.normal(size=(GROUPS, 8))
    write_items(
        tmp_path,
        {
            f"g{group}-{item}": centres[group] + 0.3 * random.normal(size=8)
            for item in [*range(KNOWN + HELD_OUT), "new"]
            for group in range(GROUPS)
        },
    )
    return centres


def write_items(folder, vectors, price=1.0):
    frame = {"item_id": list(vectors), "text": [vector.tolist() for vector in vectors.values()]}
    frame["maker"] = [f"maker-{row % 3}" if row % 5 else None for row in range(len(vectors))]
    frame["price"] = [price * row if row % 4 else None for row in range(len(vectors))]
    pl.DataFrame(frame).write_parquet(folder / "items.parquet")


def test_items_without_a_training_event_are_recommended_by_their_features(lockstep, shop, tmp_path, messages):
    fit = lockstep("fit", *OPTIONS, *FEATURES, name="a")
    assert any("features of 60 of 60 items of the data, and of 6 items without an interaction" in m for m in messages)
    chance = 10 / (GROUPS * (KNOWN + HELD_OUT) - EVENTS)
    without = lockstep("fit", *OPTIONS, name="without")
    series, blind = (lockstep("test", name=run.folder.name).series("test/hr@10") for run in (fit, without))
    assert max(series.values()) > 4 * chance, "features alone"
    assert max(blind.values()) < chance, "vectors that are negatives in every step, and a target in none"

    histories = [
        {"items": ["g2-0", "g2-3", "g2-5"], "times": [1, 2, 3]},
        {"items": ["g4-new"], "times": [9]},  # in no interaction
        {"items": ["g1-8", "g1-9"], "times": [4, 5]},  # in no training event
    ]
    (tmp_path / "people.jsonl").write_text("".join(json.dumps(history) + "\n" for history in histories))
    ask = ["--data.init_args.predict_histories", "people.jsonl"]
    lockstep("predict", *ask, name="a")
    recommended = answers(fit.predictions("predictions-people.jsonl"))
    for group, line in zip((2, 4, 1), recommended, strict=True):
        assert sum(item.startswith(f"g{group}-") for item, _ in line) >= 6, line
    assert any(item == "g2-new" for item, _ in recommended[0])

    vectors = ["--model.init_args.export_vectors", "true"]
    lockstep("export", "--output", str(tmp_path / "out"), *vectors, name="a")  # the graph is compared with the model
    loaded = load_recommender(tmp_path / "out")
    assert len(loaded.item_ids) == 66
    assert loaded.popularity[-6:] == [0] * 6
    for history, line in zip(histories, recommended, strict=True):
        ours = loaded.recommend(history["items"], history["times"])
        assert [recommendation.item for recommendation in ours] == [item for item, _ in line]
        assert [recommendation.score for recommendation in ours] == pytest.approx(
            [score for _, score in line], abs=2e-4
        )
    rows = [record["item"] for record in read_jsonl(tmp_path / "out/item_vectors.jsonl")]
    assert rows == loaded.item_ids
    assert np.load(tmp_path / "out/item_vectors.npy").shape == (66, 16)
    assert "6 of the items" in (tmp_path / "out/README.md").read_text()

    items = pl.read_parquet(tmp_path / "items.parquet")
    newer = items.filter(pl.col("item_id") == "g3-0").with_columns(item_id=pl.lit("newest"))
    pl.concat([items, newer]).write_parquet(tmp_path / "items.parquet")
    (tmp_path / "people.jsonl").write_text('{"items": ["g3-1"], "times": [1]}\n')
    (tmp_path / "deny.txt").write_text("g3-new\n")
    lockstep("predict", *ask, "--data.init_args.deny_items", "deny.txt", name="a")
    series = {item for item, _ in answers(fit.predictions("predictions-people.jsonl"))[0]}
    assert "newest" in series, "without a new training"
    assert "g3-new" not in series, "without a new training"
    lockstep("predict", *ask, "--data.init_args.item_features.cold_items", "false", name="a")
    first = answers(fit.predictions("predictions-people.jsonl"))[0]
    assert not any(item.endswith(("new", "newest")) for item, _ in first)
    items.with_columns(price=pl.col("price") + 1).write_parquet(tmp_path / "items.parquet")
    with pytest.raises(ValueError, match="item_features differ from those of the checkpoint in rows of the data's it"):
        lockstep("predict", *ask, name="a")
