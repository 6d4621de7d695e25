"""Tests the table at the end of a run: the model and its baselines."""

import pytest

from callbacks.checkpointing.best_checkpoint import BestCheckpoint
from callbacks.logging.results_table import ResultsTable, better_baselines, table_rows
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.outputs.jsonl import read_jsonl


def test_the_table_has_a_row_for_the_model_and_for_each_baseline():
    """The model first, then the baselines; the baselines' metrics are the columns."""
    metrics = {
        "val/hr@1": 0.1,
        "val/hr@10": 0.5,
        "val/ndcg@20": 0.4,
        "train/loss": 3.0,
        "test/hr@10": 0.9,
        "val/baseline/popularity/hr@10": 0.2,
        "val/baseline/popularity/sampled_100/hr@10": 0.3,
    }
    assert table_rows("val", metrics) == [
        ("this model", {"hr@10": 0.5}),
        ("popularity", {"hr@10": 0.2, "sampled_100/hr@10": 0.3}),
    ]


def test_the_table_needs_no_baselines_and_is_empty_without_metrics():
    assert table_rows("test", {"test/loss": 1.0, "test/accuracy": 0.5}) == [
        ("this model", {"loss": 1.0, "accuracy": 0.5})
    ]
    assert table_rows("test", {"val/loss": 1.0}) == []


ROWS = [
    ("this model", {"x": 0.3, "y": 1.0}),
    ("popularity", {"x": 0.4, "y": 0.0}),
    ("last item", {"x": 0.2}),
    ("other", {"y": 2.0}),
    ("optimum", {"x": 0.9}),
]


@pytest.mark.parametrize(
    ("monitor", "mode", "remark"),
    [
        ("val/x", "max", "by x (0.3000) this model is worse than popularity (0.4000)"),
        ("val/x", "min", "by x (0.3000) this model is worse than last item (0.2000)"),
        ("val/y", "max", "by y (1.0000) this model is worse than other (2.0000)"),
        ("val/z", "max", ""),
    ],
)
def test_better_baselines_are_named_and_the_optimum_is_none(monitor, mode, remark):
    found = better_baselines(ROWS, BestCheckpoint(monitor, mode))
    assert found == remark
    assert (
        better_baselines(ROWS[:1], BestCheckpoint(monitor, mode)) == better_baselines([], BestCheckpoint("val/x")) == ""
    )


def test_the_remark_is_below_the_table_and_in_the_log(messages, capsys):
    table = ResultsTable()
    metrics = {"val/x": 0.1, "val/baseline/b/x": 0.5}
    trainer = fake_trainer(
        "validate",
        checkpoint_callbacks=[BestCheckpoint("val/x")],
        callback_metrics=metrics,
        default_root_dir="runs/a",
    )
    table.on_validation_end(trainer, None)
    table.show(trainer)
    remark = "by x (0.1000) this model is worse than b (0.5000)"
    assert capsys.readouterr().out.splitlines()[-1] == remark
    assert f"validation: {remark}" in messages


@pytest.mark.parametrize("more", [{}, {"val/baseline/blind/[/x]/right": 0.2}])
def test_brackets_in_the_name_of_a_metric_are_printed(more, capsys):
    """Kinds of the user's questions are parts of metrics, such as `[/x]`, a closing tag of rich's markup."""
    table = ResultsTable()
    metrics = {"val/[/x]/right": 0.1, "val/[red]/right": 0.3, **more}
    trainer = fake_trainer("validate", checkpoint_callbacks=[], callback_metrics=metrics, default_root_dir="runs/a")
    table.on_validation_end(trainer, None)
    table.show(trainer)
    printed = capsys.readouterr().out
    assert "[/x]/right" in printed
    assert more or "[red]/right" in printed


@pytest.mark.parametrize(("mode", "best"), [("max", 0.6), ("min", 0.2)])
def test_the_best_validation_is_shown(mode, best):
    """The best validation is printed, not the last, also after a resume."""
    table = ResultsTable()
    trainer = fake_trainer(checkpoint_callbacks=[BestCheckpoint("val/x", mode)])
    for value in (0.4, 0.6):
        trainer.callback_metrics = {"val/x": value, "val/y": 10 * value, "val/baseline/b/x": 0.1}
        table.on_validation_end(trainer, None)
    resumed = ResultsTable()
    resumed.load_state_dict(table.state_dict())
    trainer.callback_metrics = {"val/x": 0.2, "val/y": 2.0}
    resumed.on_validation_end(trainer, None)
    assert resumed.best == {"val/x": best, "val/y": 10 * best}
    assert resumed.baselines == {"val/baseline/b/x": 0.1}


def test_a_run_that_early_stopping_ended_prints_its_best_again(lockstep, messages):
    """It ends inside an epoch, so its last checkpoint is saved in the evaluation that was the best."""
    options = [
        *TINY_FAMILY,
        "--trainer.val_check_interval",
        "2",
        "--data.init_args.batch_size",
        "8",
        "--trainer.callbacks+=EarlyStopping",
        "--trainer.callbacks.monitor=val/loss",
        "--trainer.callbacks.patience=1",
        "--trainer.callbacks.min_delta=1e9",
    ]
    run = lockstep("fit", *options, name="a")
    losses = [record["loss"] for record in read_jsonl(run.folder / "evaluations.jsonl")]
    assert losses[-1] == min(losses) < losses[0]
    printed = [line for line in messages if line.startswith("validation, best checkpoint: ")]
    assert len(printed) == 1
    assert f"{min(losses):.4f}" in printed[0]
    messages.clear()
    lockstep("fit", *options, "--ckpt_path", "last", name="a")
    assert "val/loss had not improved for 1 evaluations: done" in messages
    assert printed == [line for line in messages if line.startswith("validation, best checkpoint: ")]


def test_the_sanity_check_does_not_count():
    table = ResultsTable()
    trainer = fake_trainer(sanity_checking=True, callback_metrics={"val/x": 9.0})
    table.on_validation_end(trainer, None)
    assert table.best == {}


def test_a_test_prints_a_table_of_the_model_and_its_baselines(lockstep, done, messages, capsys):
    lockstep("test", *TINY, name=done.folder.name)
    printed = capsys.readouterr().out
    for system in ("this model", "popularity", "last-item-transition", "optimum-without-times", "optimum"):
        assert system in printed
    for column in ("hr@10", "ndcg@10"):
        assert column in printed
    (value,) = done.series("test/ndcg@10").values()
    assert f"{value:.4f}" in printed
    assert f"files of this run: runs/{done.folder.name}" in messages


def test_fast_dev_run_mentions_no_checkpoint(lockstep, messages, capsys):
    lockstep("fit", *TINY, "--trainer.fast_dev_run", "1", name="a")
    printed = capsys.readouterr().out
    assert "this model" in printed
    assert "best checkpoint" not in printed
    assert not [line for line in messages if "files of this run" in line]
    assert "fast_dev_run: nothing was saved" in messages
