"""A step in one line: what it holds, that each logged step has one, and only one process writes it."""

import logging
import re

from lightning.pytorch.callbacks import ProgressBar

from callbacks.progress import TimeLeft, short, show_beside, summary
from tests.conftest import TINY

FIGURES = {
    "train/loss": 1.23456,
    "train/learning_rate": 3e-4,
    "train/gradient_norm": 0.8,
    "train/gradient_norm/encoder": 0.6,
    "train/gradient_norm/projector": 0.53,
    "train/samples_per_second": 1234.5,
    "train/data_wait": 0.034,
    "train/memory_gib": 12.3,
}


def test_the_line_and_the_short_names():
    line = "loss 1.235, lr 3.00e-04, norm 0.8 (encoder 0.6, projector 0.53), samples/s 1234, wait 3%, GiB 12.30"
    assert summary(FIGURES, 300, 2) == f"step 300, epoch 2: {line}"
    assert short(FIGURES)["lr"] == "3.00e-04"
    assert summary({"val/loss": 1.0}, 300, 2) == "" and short({"val/loss": 1.0}) == {}


def test_a_bar_shows_them_beside_its_own():
    class Bar(ProgressBar):
        def get_metrics(self, trainer, pl_module):
            return {"v_num": 0, "train/loss": 1.3, "val/accuracy": 0.5}

    bar, figures = Bar(), {}
    show_beside(bar, lambda: figures)
    assert bar.get_metrics(None, None) == {"val/accuracy": 0.5}
    figures.update(FIGURES)
    assert list(bar.get_metrics(None, None)) == ["loss", "lr", "norm", "samples/s", "wait", "GiB", "val/accuracy"]


def test_every_logged_step_has_its_line_in_train_log(lockstep):
    run = lockstep("fit", *TINY, "--trainer.max_steps", "5", "--trainer.log_every_n_steps", "2", name="a")
    lines = re.findall(r"INFO +(step \d+), epoch 0: (.*)", (run.folder / "train.log").read_text())
    assert [step for step, _ in lines] == ["step 2", "step 4"]
    names = ("loss", "lr", "norm", r"\(matrices", "vectors", "samples/s", "wait", "GiB")
    for _, line in lines:
        assert re.search(" .*".join(names), line), line
    for step in (2, 4):
        parts = [run.series(f"train/gradient_norm/{part}")[step] for part in ("matrices", "vectors")]
        whole = run.series("train/gradient_norm")[step]
        assert abs(sum(part**2 for part in parts) ** 0.5 - whole) < 1e-5 * whole


def test_on_a_screen_with_a_bar_it_is_for_files_alone(monkeypatch):
    import sys

    from commands.console import log_to_console

    log_to_console()
    (console,) = [h for h in logging.getLogger("lockstep").handlers if type(h) is logging.StreamHandler]

    def shown(beside_a_bar, screen):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: screen, raising=False)
        record = logging.makeLogRecord({"levelno": logging.INFO, "beside_a_bar": beside_a_bar})
        return bool(console.filter(record))

    assert [shown(*case) for case in ((True, True), (True, False), (False, True))] == [False, True, True]


def test_the_time_left_is_that_of_all_steps_to_come_as_the_mean_of_this_start():
    now = [100.0]
    left = TimeLeft(lambda: now[0])
    assert left.seconds(5) is None, "before training"
    left.begin(20, 100)
    assert left.seconds(20) is None, "no step of this start yet"
    now[0] += 30
    assert left.seconds(30) == 70 * 3
    assert left.seconds(100) == 0 and left.seconds(101) == 0
    for endless in (float("inf"), -1):
        left.begin(0, endless)
        assert left.seconds(10) is None
