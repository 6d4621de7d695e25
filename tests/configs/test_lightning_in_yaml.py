"""Lightning's own callbacks, loggers, profilers and strategies work in YAML, or are refused with a reason."""

import csv
import json

import pytest
import yaml

from tests.distributed.conftest import forge, team  # noqa: F401  (fixtures)
from tests.support.families.tiny_linear import TINY_FAMILY

OPTIONS = [*TINY_FAMILY, "--data.init_args.length", "20", "--data.init_args.batch_size", "8"]
EPOCH = 3
"""Optimizer steps of an epoch."""


@pytest.fixture
def fit(lockstep, tmp_path):
    """Trains 3 epochs with `trainer` settings of a YAML file."""

    def run(**trainer):
        path = tmp_path / "user.yaml"
        path.write_text(yaml.safe_dump({"trainer": {"max_epochs": 3, **trainer}}))
        return lockstep("fit", *OPTIONS, "--config", str(path), name="a")

    return run


def given(name, /, **arguments):
    return {"class_path": name, "init_args": arguments}


def steps(run):
    return sorted(run.series("train/loss"))


def test_early_stopping_ends_a_run_that_does_not_improve(fit):
    run = fit(callbacks=[given("EarlyStopping", monitor="val/loss", min_delta=1e9, patience=1)])
    assert steps(run) == list(range(1, 2 * EPOCH + 1)), "the first epoch sets the best value, the second is no better"


def test_model_checkpoint_writes_its_own_files(fit, tmp_path):
    settings = {"monitor": "val/loss", "save_top_k": 2, "save_last": True, "filename": "{step}"}
    fit(callbacks=[given("ModelCheckpoint", dirpath=str(tmp_path / "own"), **settings)])
    names = sorted(path.name for path in (tmp_path / "own").glob("*.ckpt"))
    assert len(names) == 3, names
    assert "last.ckpt" in names, names


def test_learning_rate_monitor_logs_rates(fit):
    run = fit(callbacks=[given("LearningRateMonitor", logging_interval="step")])
    rates = [value for name, value in last_record(run).items() if name.startswith("lr-")]
    assert rates


def last_record(run):
    found = {}
    for line in (run.folder / "metrics.jsonl").read_text().splitlines():
        found |= json.loads(line)
    return found


@pytest.mark.parametrize(
    ("callback", "reason"),
    [
        (
            given("StochasticWeightAveraging", swa_lrs=0.01, swa_epoch_start=1),
            "replaces the learning rate of each step",
        ),
        (given("GradientAccumulationScheduler", scheduling={0: 2}), "accumulation follows from the batch size"),
        (given("BatchSizeFinder"), "changes the global batch"),
        (given("LearningRateFinder"), "trains with a schedule of its own"),
    ],
)
def test_callbacks_that_are_refused(fit, callback, reason):
    with pytest.raises(ValueError, match=f"trainer.callbacks has {callback['class_path']}: .*{reason}.* Remove"):
        fit(callbacks=[callback])


@pytest.mark.parametrize(
    "callback",
    [
        given("DeviceStatsMonitor", cpu_stats=True),
        given("Timer", duration="00:01:00:00"),
        given("ModelSummary", max_depth=2),
    ],
    ids=lambda callback: callback["class_path"],
)
def test_callbacks_that_only_watch_change_no_step(fit, callback):
    assert steps(fit(callbacks=[callback])) == list(range(1, 3 * EPOCH + 1))


def test_timer_ends_the_run(fit):
    """The run ends without a step if no time is left."""
    assert steps(fit(callbacks=[given("Timer", duration="00:00:00:00")])) == []


@pytest.mark.parametrize("bar", ["RichProgressBar", "TQDMProgressBar"])
def test_progress_bars_train_every_step(fit, bar):
    assert len(steps(fit(callbacks=[given(bar)], enable_progress_bar=True))) == 3 * EPOCH


def test_csv_logger_has_the_losses_of_the_run(fit, tmp_path):
    run = fit(logger=given("lightning.pytorch.loggers.CSVLogger", save_dir=str(tmp_path), name="csv", version=""))
    with (tmp_path / "csv/metrics.csv").open() as file:
        found = {int(row["step"]) + 1: float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]}
    assert found == pytest.approx(run.series("train/loss"))


def test_tensorboard_logger_writes_its_events(fit, tmp_path):
    logger = given("lightning.pytorch.loggers.TensorBoardLogger", save_dir=str(tmp_path), name="tb", version="")
    assert len(steps(fit(logger=logger))) == 3 * EPOCH
    assert list((tmp_path / "tb").glob("events.*"))


@pytest.mark.parametrize("profiler", ["SimpleProfiler", "AdvancedProfiler"])
def test_profilers_report_the_optimizer_step(fit, tmp_path, profiler):
    name = f"lightning.pytorch.profilers.{profiler}"
    fit(profiler=given(name, dirpath=str(tmp_path / "profile"), filename="own"), max_epochs=1)
    (report,) = (tmp_path / "profile").iterdir()
    assert "optimizer_step" in report.read_text()


def test_a_ddp_strategy_of_the_yaml_trains_all_steps(team, tmp_path):  # noqa: F811
    options = {"find_unused_parameters": True, "gradient_as_bucket_view": True, "static_graph": False}
    path = tmp_path / "user.yaml"
    path.write_text(yaml.safe_dump({"trainer": {"max_epochs": 1, "strategy": given("DDPStrategy", **options)}}))
    run = team("fit", *OPTIONS, "--config", str(path), name="a", processes=2)
    assert run.end(120) == [0, 0], run.output
    assert steps(run) == list(range(1, EPOCH + 1))
