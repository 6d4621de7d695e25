"""Reports and previews of questions about timelines, as the DataModule writes them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from datamodules.temporal.timelines.channels import Format
from datamodules.temporal.timelines.dataset import TimelineQuestions
from datamodules.temporal.timelines.reports.html_report import write_data_report, write_test_report
from datamodules.temporal.timelines.reports.plot import draw_timeline
from datamodules.temporal.timelines.reports.sample_records import answer_metrics, answer_record, question_record
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from engine.telemetry.image_grid import encode_png_grid
from engine.telemetry.sample_previews import SamplePreview

_REPORTED = 5000
"""Samples of the data report."""


def report_training_data(
    folder: Path, source: TimelineQuestions, synthesis: SyntheticTimelines, count_tokens: Callable[[str], int]
) -> Path:
    """Write the report on the first training samples, and return the path of its page.

    Args:
        folder: destination.
        source: the training samples.
        synthesis: settings that they are drawn with.
        count_tokens: returns the number of tokens of a text.
    """
    samples = [source.sample(0, index) for index in range(min(_REPORTED, len(source)))]
    views = [question_record(index, sample, synthesis.notation) for index, sample in enumerate(samples)]
    about = {
        "split": "training",
        "format": Format(synthesis.format).value,
        "seed": str(synthesis.seed),
        "samples": f"the first {len(samples):,} of {len(source):,} in an epoch",
    }
    return write_data_report(folder, views, about, count_tokens)


def report_test(
    folder: Path,
    source: TimelineQuestions,
    answers: Sequence[tuple[int, str, str]],
    about: Mapping[str, str],
    timelines: str | None,
) -> Path:
    """Write the report on a test, each question with its curve, the reference and the answers; return its path.

    Args:
        folder: folder of the run.
        source: the questions.
        answers: (sample, answer, answer without the series), in the order of the samples.
        about: see `write_test_report`.
        timelines: see `write_test_report`.
    """
    notation = source.timelines.notation
    samples = [source.sample(0, sample) for sample, _, _ in answers]
    texts = [(text, blind) for _, text, blind in answers]
    views = [
        answer_record(number, sample, notation, text, blind)
        for (number, text, blind), sample in zip(answers, samples, strict=True)
    ]
    return write_test_report(folder, views, answer_metrics(samples, texts, notation), about, timelines)


def timeline_preview(source: TimelineQuestions, sample: int, text: str, blind: str) -> SamplePreview:
    """Return a preview of a question with the model's answer, and its answer without the series."""
    view = answer_record(sample, source.sample(0, sample), source.timelines.notation, text, blind)
    return SamplePreview(
        name=f"{sample} {view.task}",
        question=view.question,
        expected=view.truth,
        answer=text,
        right=not view.errors,
        picture=encode_png_grid(draw_timeline(view)),
        blind=blind,
    )
