"""Reads series and results from metrics.jsonl."""

import pytest

from commands.report.metric_series import read_metrics, seconds
from tests.commands.report.recorded import BEGAN, Recorded


@pytest.fixture
def run(tmp_path):
    return Recorded(tmp_path / "a")


def read(run, mode="max", monitor="val/ndcg@10", points=100):
    return read_metrics(run.folder / "metrics.jsonl", monitor, mode, points)


def test_the_series_have_the_best_step_the_test_and_the_baselines(run):
    for step, ndcg in ((10, 0.2), (20, 0.6), (30, 0.5)):
        run.metrics(step, train__loss=1 / step)
        run.metrics(step, **{"val__ndcg_at_10": ndcg, "val__loss": -ndcg})
    run.metrics(30, **{"val__baseline__popularity__ndcg_at_10": 0.1})
    metrics = read(run)
    assert set(metrics.series) == {"train/loss", "val/ndcg@10", "val/loss"}
    assert [(point.step, point.mean) for point in metrics.series["val/ndcg@10"].points()] == [
        (10, 0.2),
        (20, 0.6),
        (30, 0.5),
    ]
    assert (metrics.best_step, metrics.best) == (20, {"val/ndcg@10": 0.6, "val/loss": -0.6})
    assert metrics.baselines == {"val/baseline/popularity/ndcg@10": 0.1}
    assert (metrics.last_step, metrics.last_time) == (30, BEGAN.timestamp() + 30)
    assert read(run, "min", "val/loss").best_step == 20
    assert read(run, monitor=None).best_step == 30, "without a monitored metric the last evaluation"


def test_an_evaluation_afterwards_is_not_of_the_course(run):
    """`validate` and `test` add a line at the step of their checkpoint."""
    for step in (10, 20, 30):
        run.metrics(step, **{"val__ndcg_at_10": step / 100})
    run.metrics(20, 500, **{"val__ndcg_at_10": 0.9})
    run.metrics(20, 600, **{"test__ndcg_at_10": 0.7})
    run.metrics(20, 700, **{"test__ndcg_at_10": 0.8})
    metrics = read(run)
    assert len(metrics.series["val/ndcg@10"].points()) == 3
    assert "test/ndcg@10" not in metrics.series
    assert (metrics.best_step, metrics.best["val/ndcg@10"]) == (30, 0.3)
    assert (metrics.test_step, metrics.test) == (20, {"test/ndcg@10": 0.8})
    assert metrics.last_time == BEGAN.timestamp() + 30, "that was not training"


def test_a_line_with_a_metric_twice_is_malformed(run):
    run.metrics(10, train__loss=1.0)
    with (run.folder / "metrics.jsonl").open("a") as lines:
        lines.write('{"step": 11, "time": "2026-01-02T03:04:05Z", "train/loss": 1, "train/loss": null}\n')
    metrics = read(run)
    assert ([point.step for point in metrics.series["train/loss"].points()], metrics.unreadable) == ([10], 1)


def test_an_evaluation_with_other_settings_is_not_the_runs(run):
    run.metrics(20, 600, altered="", **{"test__ndcg_at_10": 0.7})
    run.metrics(20, 700, altered="trainer.limit_test_batches", **{"test__ndcg_at_10": 0.1})
    metrics = read(run)
    assert (metrics.test, metrics.unreadable) == ({"test/ndcg@10": 0.7}, 0)


def test_a_metric_has_its_name_of_today_in_a_run_that_began_with_the_old_one(run):
    run.metrics(10, train__slowest_process=1.0, train__unusable_samples=1.0)
    run.metrics(20, train__slowest_rank=2.0, train__bad_samples=2.0)
    series = read(run).series
    assert set(series) == {"train/slowest_rank", "train/bad_samples"}
    assert [(point.step, point.mean) for point in series["train/slowest_rank"].points()] == [(10, 1.0), (20, 2.0)]


def test_torn_and_foreign_lines_are_counted(run):
    run.metrics(1, train__loss=1.0)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('[1]\nnull\n{"step": "x", "time": "2026-01-01T00:00:00Z"}\n{"step": 2, "ti')
    metrics = read(run)
    assert metrics.unreadable == 4
    assert metrics.last_step == 1


def test_lines_that_no_run_writes_are_counted(run):
    time = '"time": "2026-01-01T00:00:00Z"'
    odd = [
        '"time": 5, "step": 1',
        f'{time}, "step": Infinity',
        f'{time}, "step": 2, "epoch": "x"',
        f'{time}, "step": 3, "train/loss": 1{"0" * 400}',
        f'{time}, "step": {"[" * 100_000}',
    ]
    (run.folder / "metrics.jsonl").write_text("".join(f"{{{line}}}\n" for line in odd))
    metrics = read(run)
    assert (metrics.unreadable, metrics.series) == (5, {})


def test_null_is_a_number_that_is_not_finite(run):
    for step, loss in ((1, 1.0), (2, None), (3, float("nan")), (4, 2.0)):
        run.metrics(step, train__loss=loss)
    (course,) = read(run).series.values()
    assert [(point.step, point.mean) for point in course.points()] == [(1, 1.0), (2, None), (3, None), (4, 2.0)]


def test_a_metric_that_is_not_finite_is_never_the_best(run):
    run.metrics(1, **{"val__ndcg_at_10": float("nan")})
    run.metrics(2, **{"val__ndcg_at_10": 0.1})
    run.metrics(3, **{"val__ndcg_at_10": float("inf")})
    assert read(run).best_step == 2


def test_a_run_without_metrics_has_no_series(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl", None, "max", 10).series == {}


def test_times_with_and_without_offset_are_the_same_moment():
    assert seconds("2026-01-02T03:04:05Z") == seconds("2026-01-02T04:04:05.000+01:00") == BEGAN.timestamp()
