"""Compares runs on the same samples: recommenders by the ranks of users, other families by the answers of a test.

The first run is the baseline of all others. numpy is imported only if a run has a file of ranks or of answers.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.report.comparison.comparability import answer_problem, rank_problem
from commands.report.comparison.saved_answers import SavedAnswers, read_answers
from commands.report.comparison.saved_ranks import STAGES, SavedRanks, read_ranks
from commands.report.comparison.significance import NOT_COMPARED, Comparison, ScoredRuns, compare_scored
from commands.report.metric_series import OtherSettingsError
from commands.report.settings_diff import read_recorded_settings
from engine.system.installation import PROGRAM
from engine.system.runs_directory import run_options
from engine.telemetry.graded_answers import FILE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lightning_modules.recommender.item_ranks.rank_file import UserRanks

DIFFERING = 20
"""Number of samples that a page shows: the samples on which the runs differ most."""


def compare_runs(folders: Sequence[Path], cutoffs: Sequence[int] = (10,)) -> Comparison:
    """Compare each run with the first, or state why they cannot be compared.

    Args:
        folders: run directories.
        cutoffs: values of k of a recommender's metrics.

    Returns:
        An empty comparison unless there are two runs, of which at least one has a file of ranks or of answers.

    Raises:
        ValueError: a file of ranks or of answers is truncated or has changed.
        OSError: a file cannot be read.
    """
    if len(folders) < 2:
        return NOT_COMPARED
    try:
        ranks = [read_ranks(folder) for folder in folders]
        answers = [read_answers(folder) for folder in folders]
    except OtherSettingsError as error:
        return Comparison([f"no paired test: {error}"])
    if any(ranks):
        return _compare_ranks(folders, ranks, cutoffs)
    return _compare_answers(folders, answers) if any(answers) else NOT_COMPARED


def _names(folders: Sequence[Path]) -> list[str]:
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _missing(folders: Sequence[Path], contents: Sequence[object], what: Sequence[str], remedy: str) -> list[str]:
    """Return for each run without a file the reason: its family writes none, or the run is not tested yet."""
    families = [_family(folder) for folder in folders]
    families_with_file = {family for family, content in zip(families, contents, strict=True) if content}
    return [
        f"is of the family {family}, the others are of {' and '.join(sorted(families_with_file))}"
        if family and "" not in families_with_file and family not in families_with_file
        else f"{state}; {remedy.format(run_options(folder))}"
        for folder, family, state in zip(folders, families, what, strict=True)
    ]


def _family(folder: Path) -> str:
    """Return the package of a run's model, as `recommender`; empty if the run does not have it."""
    parts = str(read_recorded_settings(folder).newest.get("model.class_path", "")).split(".")
    return parts[1] if parts[0] == "lightning_modules" and len(parts) > 2 else ""


# -- recommenders ----------------------------------------------------------------------------------------------------


def _compare_ranks(folders: Sequence[Path], saved_ranks: Sequence[SavedRanks], cutoffs: Sequence[int]) -> Comparison:
    names = _names(folders)
    # The stage that most runs have; of equal stages `max` returns the first, which is the test.
    stage = max(STAGES, key=lambda stage: sum(stage in ranks for ranks in saved_ranks))
    ranks_of_stage = [ranks.get(stage) for ranks in saved_ranks]
    remedy = f"`{PROGRAM} {'test' if stage == 'test' else 'validate'} {{}}` writes ranks-{stage}.npz"
    missing = _missing(folders, saved_ranks, [f"has {_files(ranks)}" for ranks in saved_ranks], remedy)
    indices, runs, remarks = _comparable(names, ranks_of_stage, rank_problem, missing)
    if len(runs) < 2:
        return Comparison(remarks)
    from lightning_modules.recommender.item_ranks.rank_metrics import gains, rank_classes

    table, first = gains(cutoffs), runs[0]
    where = "test" if first.header.stage == "test" else "validation"
    scored = ScoredRuns(
        names=[names[index] for index in indices], positions=indices, what=f"{where}, {len(first.users):,} users",
        classes=[rank_classes(run.rank, table) for run in runs], table=table, test="permutation test",
        prefix=first.header.protocol and f"{first.header.protocol}/",
    )  # fmt: skip
    return compare_scored(scored, remarks, _differing_users(scored.names, runs))


def _files(ranks: SavedRanks) -> str:
    return " and ".join(f"ranks-{stage}.npz" for stage in ranks) or "no ranks"


def _differing_users(names: Sequence[str], runs: Sequence["UserRanks"]) -> dict[str, Any]:
    """Return the users whose discounted gains 1 / log2(rank + 1) differ most between two of the runs."""
    import numpy as np

    rank = np.stack([run.rank for run in runs]).astype(np.float64)
    gain = 1 / np.log2(rank + 1)
    spread = gain.max(0) - gain.min(0)
    first = runs[0]
    rows = [
        [
            first.users[user],
            first.targets[user],
            str(int(first.history[user])),
            *(f"{int(run.rank[user]):,}" for run in runs),
        ]
        for user in _largest(spread)
    ]
    heads = ["user", "held-out item", "events", *(f"rank in {name}" for name in names)]
    return {"count": int(np.count_nonzero(spread)), "heads": heads, "rows": rows}


# -- answers ---------------------------------------------------------------------------------------------------------


def _compare_answers(folders: Sequence[Path], saved_answers: Sequence[SavedAnswers | None]) -> Comparison:
    names, remedy = _names(folders), f"`{PROGRAM} test {{}}` writes {FILE}"
    missing = _missing(folders, saved_answers, ["has no answers"] * len(folders), remedy)
    indices, runs, remarks = _comparable(names, saved_answers, answer_problem, missing)
    if len(runs) < 2:
        return Comparison(remarks)
    import numpy as np

    from engine.statistics.paired_test import ScoreTable

    points = np.array([[answer.points / answer.possible for answer in run.answers] for run in runs])
    # The tests count classes of equal values; answers have few different values.
    values, inverse = np.unique(points, return_inverse=True)
    classes = inverse.reshape(points.shape).astype(np.int64)
    table = ScoreTable((runs[0].metric.removeprefix("test/"),), values[:, None])
    is_binary = set(values.tolist()) <= {0.0, 1.0}
    scored = ScoredRuns(
        [names[index] for index in indices], indices, f"test, {points.shape[1]:,} answers", list(classes), table,
        "exact McNemar test" if is_binary else "permutation test",
    )  # fmt: skip
    spread = points.max(0) - points.min(0)
    rows = [
        [
            str(runs[0].answers[index].sample), runs[0].answers[index].question, runs[0].answers[index].expected,
            *(_mark(run.answers[index].answer, share) for run, share in zip(runs, points[:, index], strict=True)),
        ]
        for index in _largest(spread)
    ]  # fmt: skip
    heads = ["sample", "question", "expected", *scored.names]
    return compare_scored(scored, remarks, {"count": int(np.count_nonzero(spread)), "heads": heads, "rows": rows})


def _mark(answer: str, share: float) -> str:
    return f"{'✓' if share == 1 else '✗' if share == 0 else f'{share:.0%}'} {answer or '(nothing)'}"


# -- both ------------------------------------------------------------------------------------------------------------


def _comparable(
    names: Sequence[str],
    contents: Sequence[Any],
    problem_of: Callable[[Sequence[str], Any, Any], str],
    missing: Sequence[str],
) -> tuple[list[int], list[Any], list[str]]:
    """Return indices and contents of the runs that the first of them can be compared with, and a line on each other."""
    indices: list[int] = []
    remarks = []
    for index, run in enumerate(contents):
        first = contents[indices[0]] if indices else None
        problem = missing[index] if run is None else ""
        if run is None:
            remarks.append(f"no paired test: {names[index]} {problem}")
        elif first is not None and (problem := problem_of((names[indices[0]], names[index]), first, run)):
            remarks.append(f"no paired test: {problem}")
        if not problem:
            indices.append(index)
    return indices, [contents[index] for index in indices], remarks


def _largest(spread: "NDArray[np.float64]") -> list[int]:
    """Return the samples with the largest differences. Samples with equal differences keep their order."""
    import numpy as np

    order = np.argsort(-spread, kind="stable")[:DIFFERING]
    return [int(index) for index in order if spread[index] > 0]
