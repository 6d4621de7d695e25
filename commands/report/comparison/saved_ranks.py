"""Reads the ranks that evaluations of a run have saved, and checks that they match the metrics in metrics.jsonl."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from commands.report.metric_series import OtherSettingsError, latest_value
from engine.system.installation import PROGRAM
from engine.system.runs_directory import run_options

if TYPE_CHECKING:
    from lightning_modules.recommender.item_ranks.rank_file import UserRanks

STAGES = ("test", "val")
"""Evaluations whose ranks are saved, in order of preference."""

SavedRanks = Mapping[str, "UserRanks"]
"""{`test`: ranks of ranks-test.npz}"""

_ROUNDING = 1e-5
"""Difference of a metric that was rounded to float32 and to the digits of metrics.jsonl, with a margin."""


def read_ranks(folder: Path) -> SavedRanks:
    """Read the ranks of a run; empty without a file.

    Raises:
        OtherSettingsError: the ranks of the test do not match the metrics.
        ValueError: a file is truncated or has changed.
        OSError: a file cannot be read.
    """
    stages = [stage for stage in STAGES if (folder / f"ranks-{stage}.npz").is_file()]
    if not stages:
        return {}
    from lightning_modules.recommender.item_ranks.rank_file import rank_file, read_ranks

    ranks = {stage: read_ranks(rank_file(folder, stage)) for stage in stages}
    if "test" in ranks:
        _check_metrics(folder, ranks["test"])
    return ranks


def _check_metrics(folder: Path, ranks: "UserRanks") -> None:
    """Raise OtherSettingsError if the ranks do not match the latest test with the run's own settings."""
    name = f"{ranks.header.prefix}ndcg@10"
    logged = latest_value(folder / "metrics.jsonl", name)
    if logged is None:
        return
    from lightning_modules.recommender.item_ranks.rank_metrics import gains, rank_classes

    table = gains((10,))
    value = float(table.values[rank_classes(ranks.rank, table), table.names.index("ndcg@10")].mean())
    if abs(value - logged) > _ROUNDING:
        raise OtherSettingsError(
            f"{folder}/ranks-test.npz has {name} {value:.4f} and metrics.jsonl {logged:.4f}, because the latest test "
            f"had other settings than the run; `{PROGRAM} test {run_options(folder)}` writes the ranks again"
        )
