"""A real training of a small marketplace is measured from outside, and ends of stand-ins for it are reported."""

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.recommender import time_to_quality
from benchmarks.recommender.__main__ import main
from benchmarks.recommender.time_to_quality import Missed, measure, table

_QUICKSTART = Path(__file__).resolve().parents[3] / "configs/recommender/quickstart.yaml"
_SMALL = [
    "--trainer.accelerator=cpu",
    "--data.init_args.marketplace.num_users=300",
    "--trainer.max_epochs=2",
    "--trainer.check_val_every_n_epoch=1",
    "--model.init_args.hidden_size=16",
    "--model.init_args.feed_forward_size=16",
]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ends_at_the_first_validation_that_reaches_the_target(tmp_path: Path) -> None:
    measured = measure(tmp_path, 0.001, _QUICKSTART, _SMALL)

    (only,) = measured["course"]
    assert only["epoch"] in (0, 1)
    assert only["step"] == 3
    assert only["value"] >= 0.001
    assert only["cpu"] > 0
    assert only["wall"] > 0
    assert only["memory"] > 1 << 26
    assert 0 < measured["test"]["test/ndcg@10"] < 1
    out = Console(width=140, record=True)
    out.print(table(measured))
    assert "time to val/ndcg@10 0.001" in out.export_text()


_ENDED = """
from pathlib import Path
Path("runs/run").mkdir(parents=True)
Path("runs/run/metrics.jsonl").write_text('{"epoch": 0, "step": 3, "val/ndcg@10": 0.25}\\n')
"""
_REFUSED = "raise SystemExit('/absent does not exist')"


def _stand_in(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace train.py by a program that imports nothing."""
    (folder / "train.py").write_text(program)
    monkeypatch.setattr(time_to_quality, "_ROOT", folder)


def test_reports_what_was_reached_when_the_target_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(_ENDED, tmp_path, monkeypatch)
    with pytest.raises(Missed, match=r"ended with 0 before 1; val/ndcg@10 was at most 0\.25"):
        measure(tmp_path, 1.0)


def test_a_refused_training_is_reported_without_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(_REFUSED, tmp_path, monkeypatch)
    with pytest.raises(SystemExit, match=r"ended with 1 before 0\.17(.|\n)*absent does not exist"):
        main(["--only", "time-to-quality", "--root", str(tmp_path)])
