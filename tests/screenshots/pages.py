"""The pages that are shown: how their run is trained, and what a visitor does before the picture is taken."""

from typing import NamedTuple


class ShownPage(NamedTuple):
    """A page of which a picture is taken."""

    name: str  # of the picture, and of the run that is trained if none is given
    trainings: tuple[tuple[str, ...], ...]  # options of `fit`; the last training is that of the page
    steps: tuple[str, ...]  # scripts that the page runs before the question is asked


def _example(number: int) -> str:
    """Return the script that chooses an example, from 0."""
    return f"document.querySelectorAll('.example')[{number}].click()"


PAGES = (
    ShownPage("image_classifier", (("--config", "configs/image_classifier/digits.yaml"),), (_example(0),)),
    ShownPage("recommender", (("--config", "configs/recommender/quickstart.yaml"),), (_example(0),)),
    ShownPage("document_qa", (("--config", "configs/document_qa/quickstart.yaml"),), (_example(5),)),
    ShownPage(
        "vision_language",
        (
            ("--config", "configs/vision_language/quickstart_pretrain.yaml"),
            ("--config", "configs/vision_language/quickstart_sft.yaml"),
        ),
        (
            _example(4),
            "document.querySelector('textarea').value = 'what shape is blue?'",  # blind, the answer is a triangle
            "document.querySelectorAll('select')[1].value = 'yes'",
        ),
    ),
    ShownPage("temporal", (("--config", "configs/temporal/quickstart.yaml"),), (_example(0),)),
    ShownPage("series", (("--config", "configs/temporal/quickstart_series.yaml"),), (_example(0),)),
)

REPORT = "report"
"""Name of the picture of a report, which is that of the recommender's run."""
