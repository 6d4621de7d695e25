"""The tests of a run with something taken from its documents, side by side: a page, and a table for the log."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.document_qa.question import SOURCES
from datamodules.document_qa.reports.ablation_result import WHOLE, Ablated, read_ablated
from datamodules.document_qa.reports.ablation_verdict import TOO_FEW, chance, verdict
from datamodules.multimodal.report import write_report

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
"""Of the table in a log, which is not cut to a screen's."""


class AblationReport(NamedTuple):
    """All results that can be compared to the last one, and those that cannot."""

    results: Sequence[Ablated]  # in the order of Ablation, whole documents first where they are there
    others: Sequence[Ablated]

    @property
    def whole(self) -> Ablated | None:
        return self.results[0] if self.results[0].ablate == WHOLE else None

    @property
    def sources(self) -> list[str]:
        """Sources that were asked about; "" for all questions comes first."""
        asked = {source for result in self.results for source in result.accuracy}
        return [source for source in ("", *SOURCES) if source in asked]

    def verdict(self, result: Ablated) -> str:
        """In a few words, over all sources."""
        if result.ablate == WHOLE:
            return ""
        if self.whole is None:
            return "test whole documents, too: --data.ablate none"
        verdicts = {source: found for source in SOURCES if (found := verdict(self.whole, result, source)) is not None}
        wrong = [f"{source} {found.says}" for source, found in verdicts.items() if found.right is False]
        unclear = [source for source, found in verdicts.items() if found.right is None]
        if not verdicts:
            return "no questions to judge it by"
        if wrong:
            return "not as it should be: " + ", ".join(wrong)
        return f"{TOO_FEW}: {', '.join(unclear)}" if unclear else "as it should be"

    def table(self) -> str:
        """For a log: accuracies in percent, by source, and the verdicts."""
        from rich.console import Console
        from rich.table import Table

        table = Table(title="accuracy in % by what is taken from the documents", title_justify="left")
        for heading in ("", *(source or "all" for source in self.sources), "verdict"):
            table.add_column(heading, justify="left" if heading in ("", "verdict") else "right")
        for result in self.results:
            cells = (_cell(result, source) for source in self.sources)
            table.add_row(_TITLES[result.ablate], *cells, self.verdict(result))
        last = self.results[0]
        table.add_row("chance", *(f"{100 * chance(last, source):.1f}" for source in self.sources), "")
        text = io.StringIO()
        Console(file=text, width=_WIDTH).print(table)
        return text.getvalue().rstrip()

    def content(self) -> dict[str, Any]:
        """What the JSON file holds."""
        return {
            "sources": [source or "all" for source in self.sources],
            "rows": [self._row(result) for result in self.results],
            "chance": [chance(self.results[0], source) for source in self.sources],
            "others": [
                {"title": _TITLES[other.ablate], "differs": _differences(self.results[0].identity, other.identity)}
                for other in self.others
            ],
        }

    def _row(self, result: Ablated) -> dict[str, Any]:
        cells = []
        for source in self.sources:
            figure = result.accuracy.get(source)
            found = None if self.whole is None or figure is None else verdict(self.whole, result, source)
            cells.append({
                "figure": None if figure is None else figure._asdict(),
                "verdict": None if found is None else found._asdict(),
            })  # fmt: skip
        title = _TITLES[result.ablate]
        return {"ablate": result.ablate, "title": title, "cells": cells, "verdict": self.verdict(result)}


def ablation_report(results: Sequence[Ablated], last: str) -> AblationReport:
    """Tells the results of the same checkpoint and questions as the `last` test, named by its ablation, from others."""
    identity = next(result.identity for result in results if result.ablate == last)
    same = [result for result in results if result.identity == identity]
    return AblationReport(same, [result for result in results if result.identity != identity])


def write_ablation_report(folder: Path, results: Path, last: str, about: Mapping[str, str]) -> AblationReport:
    """Writes `ablation.html` and `.json` of all results of a folder.

    Args:
        folder: where to.
        results: the folder of the results, see `write_ablated`.
        last: name of the ablation that was tested last, which decides what can be compared.
        about: run, checkpoint and what else says what these are, shown in this order at the head.

    Raises:
        OSError: the disk did not take it.
        ValueError: a file is no result.
    """
    report = ablation_report(read_ablated(results), last)
    content = {"about": dict(about), **report.content()}
    write_report(folder, "ablation", "Ablation report", content, [PAGES / "ablation.js"], [PAGES / "ablation.css"])
    return report


def _cell(result: Ablated, source: str) -> str:
    figure = result.accuracy.get(source)
    if figure is None:
        return "–"
    assert figure.low is not None and figure.high is not None
    return f"{100 * figure.value:.1f} ({100 * figure.low:.0f}–{100 * figure.high:.0f})"


def _differences(last: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    names = sorted({*last, *other})
    return [f"{name} {other.get(name, '–')}" for name in names if last.get(name) != other.get(name)]
