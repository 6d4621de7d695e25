"""`predict` writes a line for every row of the input, in its order."""

import json
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callbacks.logging.prediction_writer import PredictionWriter
from tests.conftest import REPOSITORY
from tests.support.fake_trainer import fake_trainer

OPTIONS = [
    f"--config={REPOSITORY / 'configs/recommender/sasrec.yaml'}",
    "--data.init_args.dataset=files",
    "--data.init_args.root=ml-small",
    "--data.init_args.min_item_interactions=2",
    "--model.init_args.hidden_size=8",
    "--trainer.max_epochs=1",
    "--trainer.check_val_every_n_epoch=1",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]

MODULE = SimpleNamespace(predicts_at_the_end=False)


@given(st.integers(1, 4), st.lists(st.integers(0, 5), max_size=12))
def test_parts_are_merged_by_row(tmp_path_factory, processes, batches):
    """The file has the rows in order, whichever rank predicts them, and the parts are removed."""
    folder = tmp_path_factory.mktemp("run")
    row, written = 0, [[] for _ in range(processes)]
    for number, size in enumerate(batches):
        written[number % processes].append([(row + i, {"user": f"é{row + i}"}) for i in range(size)])
        row += size
    trainers = [
        SimpleNamespace(
            default_root_dir=str(folder),
            global_rank=process,
            world_size=processes,
            is_global_zero=process == 0,
            strategy=SimpleNamespace(barrier=lambda name: None),
            datamodule=SimpleNamespace(predict_input=None),
            predict_dataloaders=SimpleNamespace(skipped=()),
        )
        for process in range(processes)
    ]
    callbacks = [PredictionWriter() for _ in trainers]
    for callback, trainer, parts in zip(callbacks, trainers, written, strict=True):
        callback.on_predict_start(trainer, MODULE)
        for part in parts:
            callback.write_on_batch_end(trainer, None, part, None, None, 0, 0)
    for callback, trainer in reversed(list(zip(callbacks, trainers, strict=True))):  # rank 0 merges, so it is last
        callback.on_predict_end(trainer, None)
    lines = (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"user": f"é{i}"} for i in range(row)]
    assert [path.name for path in folder.iterdir()] == ["predictions.jsonl"]


def predict(folder, source, answer):
    """Write one prediction for the input `source`."""
    trainer = fake_trainer(
        "predict",
        default_root_dir=str(folder),
        strategy=SimpleNamespace(barrier=lambda name: None),
        datamodule=SimpleNamespace(predict_input=source),
        predict_dataloaders=SimpleNamespace(skipped=()),
    )
    writer = PredictionWriter()
    writer.on_predict_start(trainer, MODULE)
    writer.write_on_batch_end(trainer, None, [(0, {"answer": answer})], None, None, 0, 0)
    writer.on_predict_end(trainer, None)


def test_each_input_has_its_file_and_what_is_replaced_is_named(tmp_path, messages):
    for number, source in enumerate((None, "lists/people.jsonl", "people.v2.jsonl")):
        predict(tmp_path, source, number)
    answers = {path.name: json.loads(path.read_text())["answer"] for path in tmp_path.iterdir()}
    assert answers == {"predictions.jsonl": 0, "predictions-people.jsonl": 1, "predictions-people.v2.jsonl": 2}
    assert not [line for line in messages if line.startswith("replacing")]
    predict(tmp_path, "people.jsonl", 3)
    (line,) = (line for line in messages if line.startswith("replacing"))
    assert f"{tmp_path}/predictions-people.jsonl, the predictions of 20" in line
    assert json.loads((tmp_path / "predictions-people.jsonl").read_text()) == {"answer": 3}


def test_a_directory_at_the_path_of_the_file_is_refused_first(tmp_path):
    (tmp_path / "predictions.jsonl").mkdir()
    with pytest.raises(IsADirectoryError, match="predictions.jsonl is a directory, expected a file to replace or none"):
        predict(tmp_path, None, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.jsonl"]


def test_a_file_name_that_is_not_utf_8_is_written(tmp_path):
    """A row of an image folder names its file, which may be in Latin-1."""
    name = os.fsdecode(b"donn\xe9es.png")
    predict(tmp_path, None, name)
    assert json.loads((tmp_path / "predictions.jsonl").read_text()) == {"answer": name}


@pytest.fixture
def movies(tmp_path):
    """A folder like ml-100k: 12 people, 15 films with titles, film 99 seen once."""
    folder = tmp_path / "ml-small"
    folder.mkdir()
    rows = [f"{u}\t{1 + (u + 2 * s) % 15}\t4\t{1000 + 60 * s}" for u in range(1, 13) for s in range(6)]
    (folder / "u.data").write_text("\n".join([*dict.fromkeys(rows), "1\t99\t3\t5000"]) + "\n")
    titles = [f"{item}|Film {item} (1995)|01-Jan-1995||" + "|0" * 19 for item in [*range(1, 16), 99]]
    (folder / "u.item").write_text("\n".join(titles) + "\n", encoding="latin-1")
    return folder


def test_predict_answers_all_users_and_a_file_of_histories(lockstep, movies, tmp_path, messages):
    lockstep("fit", *OPTIONS, name="a")
    everyone = lockstep("predict", *OPTIONS, "--model.init_args.top_k", "3", name="a").predictions()
    seen = {}
    for line in (movies / "u.data").read_text().splitlines():
        seen.setdefault(line.split("\t")[0], set()).add(line.split("\t")[1])
    assert [row["user"] for row in everyone] == [str(user) for user in range(1, 13)]
    for row in everyone:
        found = row["recommendations"]
        assert len(found) == 3
        assert not {answer["item"] for answer in found} & seen[row["user"]], "what they have seen is not recommended"
        assert all(answer["title"] == f"Film {answer['item']} (1995)" for answer in found)
        assert [answer["score"] for answer in found] == sorted((answer["score"] for answer in found), reverse=True)

    histories = [
        {"user": "anna", "items": [3, 4, 5], "times": [10, 20, 30]},
        {"items": ["7", "no-such-film"], "times": [10, 20]},
        {"user": "nobody", "items": [99], "times": [10]},  # dropped by min_item_interactions
        {"user": "zoe", "items": [1] * 500, "times": list(range(500))},  # longer than max_length
    ]
    (tmp_path / "people.jsonl").write_text("\n".join(map(json.dumps, histories)) + "\n")
    run = lockstep("predict", *OPTIONS, "--data.init_args.predict_histories", "people.jsonl", name="a")
    rows = run.predictions("predictions-people.jsonl")
    assert run.predictions() == everyone, "those of the data are kept"
    assert [row["user"] for row in rows] == ["anna", "2", "nobody", "zoe"]
    assert [len(row["recommendations"]) for row in rows] == [10, 10, 10, 10]
    assert [row.get("fallback") for row in rows] == [None, None, "popularity", None]
    counts = [answer["score"] for answer in rows[2]["recommendations"]]
    assert counts == sorted(counts, reverse=True), "training events of the most popular films"
    assert counts[-1] >= 1, "training events of the most popular films"
    assert not {"3", "4", "5"} & {answer["item"] for answer in rows[0]["recommendations"]}
    assert any("2 of 506 events were dropped" in line and "lines 3" in line for line in messages)


def test_a_user_with_few_items_left_gets_fewer_recommendations(lockstep, movies, tmp_path):
    lockstep("fit", *OPTIONS, name="a")
    (tmp_path / "people.jsonl").write_text(json.dumps({"items": list(range(1, 14)), "times": [5] * 13}))
    run = lockstep("predict", *OPTIONS, "--data.init_args.predict_histories", "people.jsonl", name="a")
    (row,) = run.predictions("predictions-people.jsonl")
    assert {answer["item"] for answer in row["recommendations"]} <= {"14", "15"}
