"""The table at the end: the model beside its baselines."""

import json
from types import SimpleNamespace

import pytest

from callbacks.best_checkpoint import BestCheckpoint
from callbacks.results_table import ResultsTable, table_rows
from tests.conftest import TINY
from tests.distributed.tiny import TINY_FAMILY


def test_rows_of_a_model_and_its_baselines():
    """The model first, then the baselines; the baselines' metrics are the columns."""
    metrics = {
        "val/hr@1": 0.1, "val/hr@10": 0.5, "val/ndcg@20": 0.4, "train/loss": 3.0, "test/hr@10": 0.9,
        "val/baseline/popularity/hr@10": 0.2, "val/baseline/popularity/sampled_100/hr@10": 0.3,
    }  # fmt: skip
    assert table_rows("val", metrics) == [
        ("this model", {"hr@10": 0.5}),
        ("popularity", {"hr@10": 0.2, "sampled_100/hr@10": 0.3}),
    ]


def test_rows_without_baselines_and_without_anything():
    assert table_rows("test", {"test/loss": 1.0, "test/accuracy": 0.5}) == [
        ("this model", {"loss": 1.0, "accuracy": 0.5})
    ]
    assert table_rows("test", {"val/loss": 1.0}) == []


@pytest.mark.parametrize(("mode", "best"), [("max", 0.6), ("min", 0.2)])
def test_the_best_validation_is_shown(mode, best):
    """Whatever came last, and also after a resume."""
    table = ResultsTable()
    trainer = SimpleNamespace(
        sanity_checking=False, checkpoint_callbacks=[BestCheckpoint("val/x", mode)], state=SimpleNamespace(fn="fit")
    )
    for value in (0.4, 0.6):
        trainer.callback_metrics = {"val/x": value, "val/y": 10 * value, "val/baseline/b/x": 0.1}
        table.on_validation_end(trainer, None)
    resumed = ResultsTable()
    resumed.load_state_dict(table.state_dict())
    trainer.callback_metrics = {"val/x": 0.2, "val/y": 2.0}
    resumed.on_validation_end(trainer, None)
    assert resumed.best == {"val/x": best, "val/y": 10 * best}
    assert resumed.baselines == {"val/baseline/b/x": 0.1}


def test_a_run_that_early_stopping_has_ended_shows_its_best_again(lockstep, said):
    """It ends inside an epoch, so its last checkpoint is saved in the very evaluation that was the best."""
    options = [*TINY_FAMILY, "--trainer.val_check_interval", "2", "--data.init_args.batch_size", "8",
               "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/loss",
               "--trainer.callbacks.patience=1", "--trainer.callbacks.min_delta=1e9"]  # fmt: skip
    run = lockstep("fit", *options, name="a")
    losses = [json.loads(line)["loss"] for line in (run.folder / "figures.jsonl").read_text().splitlines()]
    assert losses[-1] == min(losses) < losses[0]
    shown = [line for line in said if line.startswith("validation, best checkpoint: ")]
    assert len(shown) == 1 and f"{min(losses):.4f}" in shown[0]
    said.clear()
    lockstep("fit", *options, "--ckpt_path", "last", name="a")
    assert "val/loss had not improved for 1 evaluations: done" in said
    assert shown == [line for line in said if line.startswith("validation, best checkpoint: ")]


def test_the_sanity_check_does_not_count():
    table = ResultsTable()
    trainer = SimpleNamespace(sanity_checking=True, callback_metrics={"val/x": 9.0})
    table.on_validation_end(trainer, None)
    assert table.best == {}


def test_the_table_of_a_run(lockstep, done, said, capsys):
    lockstep("test", *TINY, name=done.folder.name)
    shown = capsys.readouterr().out
    for system in ("this model", "popularity", "last-item-transition", "optimum-without-times", "optimum"):
        assert system in shown
    for column in ("hr@10", "ndcg@10"):
        assert column in shown
    (figure,) = done.series("test/ndcg@10").values()
    assert f"{figure:.4f}" in shown
    assert f"files of this run: runs/{done.folder.name}" in said


def test_a_trial_run_claims_no_checkpoint(lockstep, said, capsys):
    lockstep("fit", *TINY, "--trainer.fast_dev_run", "1", name="a")
    shown = capsys.readouterr().out
    assert "this model" in shown and "best checkpoint" not in shown
    assert not [line for line in said if "files of this run" in line]
    assert "fast_dev_run: nothing was saved" in said
