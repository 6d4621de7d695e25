"""Tests events without times: the order of the file counts, and options that read times refuse them."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.reading.predict_histories import read_histories
from datamodules.recommender.store.interaction_store import InteractionStore
from datamodules.recommender.store.prepare import prepare_store
from engine.data.samplers import MicroBatchRequest
from tests.conftest import REPOSITORY
from tests.tiers import slow

ROWS = [(user, 1 + (3 * user + 2 * event) % 7) for event in range(6) for user in (2, 1, 3, 4, 5)]
PAPERS = "".join(f"{user} {item}\n" for user, item in ROWS)


def data_of(path: Path, **settings: Any) -> InteractionSequences:
    return InteractionSequences(root=str(path), min_item_interactions=1, max_length=5, batch_size=4, **settings)


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    (tmp_path / "papers.txt").write_text(PAPERS)
    return tmp_path / "papers.txt"


@pytest.mark.parametrize(
    ("name", "text", "time_column"),
    [
        ("papers.txt", PAPERS, None),
        ("papers.txt", PAPERS.replace(" ", "\t"), None),
        ("table.csv", "user,item\n" + PAPERS.replace(" ", ","), None),
        ("table.csv", "item,tags,user\n" + "".join(f"{i},x,{u}\n" for u, i in ROWS), None),
        ("table.csv", "user,item,bought_at\n" + "".join(f"{u},{i},{-u}\n" for u, i in ROWS), ""),
        ("table.inter", "user_id:token\titem_id:token\n" + PAPERS.replace(" ", "\t"), None),
    ],
)
def test_the_order_of_the_file_is_the_order_of_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, text: str, time_column: str | None
) -> None:
    caplog.set_level(logging.INFO, "lockstep")
    (tmp_path / name).write_text(text)
    store = prepare_store(tmp_path / name, min_item_interactions=1, time_column=time_column)
    assert not store.has_times
    assert not InteractionStore.open(store.root).has_times
    assert not np.any(store.times)
    for row, user in enumerate(store.user_ids):
        items = [store.item_ids[item - 1] for item in store.items[store.offsets[row] : store.offsets[row + 1]]]
        assert items == [str(item) for other, item in ROWS if str(other) == user]
    assert any("the order of the rows is the order of each user's events" in line for line in caplog.messages)


def test_the_ratings_of_tisasrec_have_times(tmp_path: Path) -> None:
    (tmp_path / "ratings.txt").write_text("1\t7\t5.0\t1600000005\n1\t8\t3\t1600000001\n")
    store = prepare_store(tmp_path / "ratings.txt", min_item_interactions=1)
    assert store.has_times
    assert store.times.tolist() == [1_600_000_001, 1_600_000_005]
    assert store.item_ids == ["8", "7"]


@pytest.mark.parametrize("column", ["bought_at", "tstamp", "order date", "createdAt", "eventTime", "timestmp"])
def test_a_column_that_looks_like_a_time_must_be_named_or_declined(tmp_path: Path, column: str) -> None:
    (tmp_path / "a.csv").write_text(f"user,item,{column}\na,x,5\na,y,4\n")
    with pytest.raises(ValueError, match=f"no time column.*is it '{column}'.*time_column"):
        prepare_store(tmp_path / "a.csv", min_item_interactions=1)
    named = prepare_store(tmp_path / "a.csv", min_item_interactions=1, time_column=column)
    declined = prepare_store(tmp_path / "a.csv", min_item_interactions=1, time_column="")
    assert (named.item_ids, declined.item_ids) == (["y", "x"], ["x", "y"])


def test_data_without_times_train_and_predict_in_the_order_of_the_file(papers: Path, tmp_path: Path) -> None:
    lines = [{"items": [1, 3]}, {"items": [5, 2], "times": ["2014-07-23", 1_600_000_000]}]
    (tmp_path / "people.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = data_of(papers, predict_histories=str(tmp_path / "people.jsonl"))
    data.setup("fit")
    data.setup("predict")
    predict_set: Any = data.predict_set
    batch = predict_set[MicroBatchRequest(0, np.arange(2))]
    assert batch.history.times.tolist() == [[0, 0], [1_406_073_600, 1_600_000_000]]
    assert read_histories(tmp_path / "people.jsonl", data.events.item_ids).untimed == 1
    assert "without times, in the order of the file" in data.dataset_card().content


def test_time_intervals_need_a_time_column(papers: Path) -> None:
    data = data_of(papers)
    data.setup("fit")
    with pytest.raises(ValueError, match=r"papers.txt: found no time column, and TiSASRec reads times; name.*time_col"):
        data.require_times("TiSASRec")
    with pytest.raises(ValueError, match="events without times, and data.init_args.split temporal cuts them by time"):
        data_of(papers, split="temporal").setup("fit")


def test_time_intervals_need_times_in_histories(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{n}\n" for n, (u, i) in enumerate(ROWS)))
    (tmp_path / "people.jsonl").write_text('{"items": [1], "times": [1]}\n{"items": [1]}\n')
    data = data_of(tmp_path / "a.csv", predict_histories=str(tmp_path / "people.jsonl"))
    data.setup("fit")
    data.require_times("TiSASRec")
    data.setup("predict")
    with pytest.raises(ValueError, match="people.jsonl: line 2: found no key 'times', and TiSASRec reads times"):
        data.require_times("TiSASRec")


@pytest.mark.parametrize("attention", [slow("standard"), "time_interval"])
def test_only_a_model_that_reads_no_times_trains(lockstep: Callable[..., Any], papers: Path, attention: str) -> None:
    options = [
        f"--config={REPOSITORY / 'configs/recommender/sasrec.yaml'}",
        "--data.init_args.dataset=files",
        f"--data.init_args.root={papers}",
        "--data.init_args.min_item_interactions=1",
        "--data.init_args.batch_size=5",
        "--data.init_args.evaluation_batch_size=5",
        "--model.init_args.hidden_size=8",
        "--model.init_args.num_blocks=1",
        "--trainer.max_epochs=3",
        "--trainer.accelerator=cpu",
        "--trainer.enable_progress_bar=false",
        "--trainer.log_every_n_steps=1",
        "--model.init_args.attention",
        attention,
    ]
    if attention == "standard":
        assert (lockstep("fit", *options, name="a").folder / "checkpoints" / "best.ckpt").is_file()
    else:
        with pytest.raises(ValueError, match="model.init_args.attention time_interval reads times"):
            lockstep("fit", *options, name="a")
