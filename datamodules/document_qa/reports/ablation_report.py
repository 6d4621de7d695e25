"""Compares the tests of a run under different ablations: an HTML page, and a table for the log."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.document_qa.reports.ablation_result import WHOLE, AblationResult, read_results
from datamodules.document_qa.reports.ablation_verdict import TOO_FEW, chance, verdict
from datamodules.document_qa.types.question import SOURCES
from datamodules.multimodal.reports.html_report import write_report

PAGES = Path(__file__).parents[1] / "pages"

_TITLES = {
    "none": "whole documents",
    "figure": "without figures",
    "table": "without tables",
    "text": "without texts",
    "shuffled_figure": "figures of other documents",
    "question_only": "without documents",
}
_WIDTH = 160
"""Width of the table in the log, in characters; it does not depend on the terminal."""


class AblationReport(NamedTuple):
    """Results that are comparable with the last result, and the others."""

    results: Sequence[AblationResult]  # in the order of Ablation; whole documents first, if they were tested
    others: Sequence[AblationResult]

    @property
    def whole(self) -> AblationResult | None:
        """The result of whole documents; None if they were not tested."""
        return self.results[0] if self.results[0].ablate == WHOLE else None

    @property
    def sources(self) -> list[str]:
        """Evidence sources of the questions; "" for all questions comes first."""
        question_set = {source for result in self.results for source in result.accuracy}
        return [source for source in ("", *SOURCES) if source in question_set]

    def verdict(self, result: AblationResult) -> str:
        """Return a short verdict over all sources."""
        if result.ablate == WHOLE:
            return ""
        if self.whole is None:
            return "test whole documents as well: --data.ablate none"
        verdicts = {source: found for source in SOURCES if (found := verdict(self.whole, result, source)) is not None}
        wrong = [f"{source} {found.says}" for source, found in verdicts.items() if found.right is False]
        unclear = [source for source, found in verdicts.items() if found.right is None]
        if not verdicts:
            return "no questions to judge it by"
        if wrong:
            return "not as expected: " + ", ".join(wrong)
        return f"{TOO_FEW}: {', '.join(unclear)}" if unclear else "as expected"

    def table(self) -> str:
        """Return a table of accuracies in percent, by source, and verdicts."""
        from rich.console import Console
        from rich.table import Table

        table = Table(title="accuracy in % by ablation", title_justify="left")
        for heading in ("", *(source or "all" for source in self.sources), "verdict"):
            table.add_column(heading, justify="left" if heading in ("", "verdict") else "right")
        for result in self.results:
            cells = (_format_accuracy(result, source) for source in self.sources)
            table.add_row(_TITLES[result.ablate], *cells, self.verdict(result))
        last = self.results[0]
        table.add_row("chance", *(f"{100 * chance(last, source):.1f}" for source in self.sources), "")
        text = io.StringIO()
        Console(file=text, width=_WIDTH).print(table)
        return text.getvalue().rstrip()

    def content(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        return {
            "sources": [source or "all" for source in self.sources],
            "rows": [self._row(result) for result in self.results],
            "chance": [chance(self.results[0], source) for source in self.sources],
            "others": [
                {"title": _TITLES[other.ablate], "differs": _differences(self.results[0].identity, other.identity)}
                for other in self.others
            ],
        }

    def _row(self, result: AblationResult) -> dict[str, Any]:
        cells = []
        for source in self.sources:
            estimate = result.accuracy.get(source)
            found = None if self.whole is None or estimate is None else verdict(self.whole, result, source)
            cells.append({
                "figure": None if estimate is None else estimate._asdict(),
                "verdict": None if found is None else found._asdict(),
            })  # fmt: skip
        title = _TITLES[result.ablate]
        return {"ablate": result.ablate, "title": title, "cells": cells, "verdict": self.verdict(result)}


def ablation_report(results: Sequence[AblationResult], last: str) -> AblationReport:
    """Group results by whether they have the checkpoint and questions of the `last` test, given by its ablation."""
    identity = next(result.identity for result in results if result.ablate == last)
    same = [result for result in results if result.identity == identity]
    return AblationReport(same, [result for result in results if result.identity != identity])


def write_ablation_report(folder: Path, results: Path, last: str, about: Mapping[str, str]) -> AblationReport:
    """Write `ablation.html` and `.json` of all results of a folder.

    Args:
        folder: target folder.
        results: folder of the results, see `write_result`.
        last: name of the last tested ablation, which determines which results are comparable.
        about: properties of the tests such as run and checkpoint, shown in this order at the top.

    Raises:
        OSError: the files cannot be written.
        ValueError: a result file is invalid.
    """
    report = ablation_report(read_results(results), last)
    content = {"about": dict(about), **report.content()}
    write_report(folder, "ablation", "Ablation report", content, [PAGES / "ablation.js"], [PAGES / "ablation.css"])
    return report


def _format_accuracy(result: AblationResult, source: str) -> str:
    estimate = result.accuracy.get(source)
    if estimate is None:
        return "–"
    assert estimate.low is not None and estimate.high is not None
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.0f}–{100 * estimate.high:.0f})"


def _differences(last: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    names = sorted({*last, *other})
    return [f"{name} {other.get(name, '–')}" for name in names if last.get(name) != other.get(name)]
