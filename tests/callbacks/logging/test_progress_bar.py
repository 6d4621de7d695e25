"""Tests a step's metrics in one line, in train.log and beside the progress bar."""

import logging
import re
from types import SimpleNamespace

import pytest
from lightning.pytorch.callbacks import Timer, TQDMProgressBar

from callbacks.logging.progress_bar import RunProgressBar, TimeLeft, format_metrics, step_summary
from commands.cli.default_callbacks import with_progress_bar
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer

METRICS = {
    "train/loss": 1.23456,
    "train/learning_rate": 3e-4,
    "train/gradient_norm": 0.8,
    "train/gradient_norm/encoder": 0.6,
    "train/gradient_norm/projector": 0.53,
    "train/samples_per_second": 1234.5,
    "train/data_wait": 0.034,
    "train/memory_gib": 12.3,
}


def test_a_summary_has_short_names_and_rounded_values():
    line = "loss 1.235, lr 3.00e-04, norm 0.8 (encoder 0.6, projector 0.53), samples/s 1234, wait 3%, GiB 12.30"
    assert step_summary(METRICS, 300, 2) == f"step 300, epoch 2: {line}"
    assert format_metrics(METRICS)["lr"] == "3.00e-04"
    assert step_summary({"val/loss": 1.0}, 300, 2) == ""
    assert format_metrics({"val/loss": 1.0}) == {}


def test_the_bar_shows_short_names_beside_lightnings_metrics():
    trainer = fake_trainer(progress_bar_metrics={"train/loss": 1.3, "val/accuracy": 0.5})
    bar, metrics = RunProgressBar(), {}
    bar.latest_metrics = lambda: metrics
    assert bar.get_metrics(trainer, None) == {"val/accuracy": 0.5}
    metrics.update(METRICS)
    assert list(bar.get_metrics(trainer, None)) == ["loss", "lr", "norm", "samples/s", "wait", "GiB", "val/accuracy"]


def test_every_logged_step_has_a_line_in_train_log(lockstep):
    run = lockstep("fit", *TINY, "--trainer.max_steps", "5", "--trainer.log_every_n_steps", "2", name="a")
    lines = re.findall(r"INFO +(step \d+), epoch 0: (loss.*)", (run.folder / "train.log").read_text())
    assert [step for step, _ in lines] == ["step 2", "step 4"]
    names = ("loss", "lr", "norm", r"\(matrices", "vectors", "samples/s", "wait", "GiB")
    for _, line in lines:
        assert re.search(" .*".join(names), line), line
    for step in (2, 4):
        parts = [run.series(f"train/gradient_norm/{part}")[step] for part in ("matrices", "vectors")]
        whole = run.series("train/gradient_norm")[step]
        assert abs(sum(part**2 for part in parts) ** 0.5 - whole) < 1e-5 * whole


def test_a_terminal_with_a_bar_does_not_print_the_line(monkeypatch):
    import sys

    from commands.cli.console_logging import log_to_console

    log_to_console()
    (console,) = [h for h in logging.getLogger("lockstep").handlers if type(h) is logging.StreamHandler]

    def is_printed(progress_bar_visible, screen):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: screen, raising=False)
        record = logging.makeLogRecord({"levelno": logging.INFO, "progress_bar_visible": progress_bar_visible})
        return bool(console.filter(record))

    assert [is_printed(*case) for case in ((True, True), (True, False), (False, True))] == [False, True, True]


def test_time_left_is_the_mean_step_of_this_start_times_the_remaining_steps():
    now = [100.0]
    left = TimeLeft(lambda: now[0])
    assert left.seconds(5) is None, "before training"
    left.begin(20, 100)
    assert left.seconds(20) is None, "no step of this start yet"
    now[0] += 30
    assert left.seconds(30) == 70 * 3
    assert left.seconds(100) == 0
    assert left.seconds(101) == 0
    for endless in (float("inf"), -1):
        left.begin(0, endless)
        assert left.seconds(10) is None


def test_the_bar_shows_the_time_left_of_the_run_in_the_training_row():
    bar, now = RunProgressBar(), [0.0]
    bar.train_progress_bar_id, bar.time_left = 3, TimeLeft(lambda: now[0])
    *_, column = bar.configure_columns(SimpleNamespace(global_step=10))
    bar.time_left.begin(0, 100)
    now[0] = 40.0
    assert column.render(SimpleNamespace(id=3)).plain == "run left 0:06:00"
    assert column.render(SimpleNamespace(id=4)).plain == ""


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"callbacks": None}, [RunProgressBar]),
        ({"callbacks": Timer(), "enable_progress_bar": None}, [Timer, RunProgressBar]),
        ({"callbacks": [TQDMProgressBar()]}, [TQDMProgressBar]),
        ({"callbacks": [], "enable_progress_bar": False}, []),
    ],
)
def test_a_run_has_the_bar_unless_the_user_gives_or_disables_one(settings, kinds):
    assert [type(callback) for callback in with_progress_bar(settings)] == kinds
