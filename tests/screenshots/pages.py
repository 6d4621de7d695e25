"""The pages that are shown: how their run is trained, and what a visitor does before the picture is taken."""

from typing import NamedTuple


class ShownPage(NamedTuple):
    """A page of which a picture is taken."""

    name: str  # of the picture
    trainings: tuple[tuple[str, ...], ...]  # options of `fit`; the last training is that of the page
    steps: tuple[str, ...]  # scripts that the page runs before the question is asked
    report: str | None = None  # name of the picture of its report; the run is then tested
    run_name: str | None = None  # of the run that is trained if none is given; None: `name`
    beside: str | None = None  # name of the run that answers beside it, which a page before it has trained

    @property
    def run(self) -> str:
        """Name of the run that is trained if none is given."""
        return self.run_name or self.name


def _example(number: int) -> str:
    """Return the script that chooses an example, from 0."""
    return f"document.querySelectorAll('.example')[{number}].click()"


_RECOMMENDER = ("--config", "configs/recommender/quickstart.yaml")

PAGES = (
    ShownPage("image_classifier", (("--config", "configs/image_classifier/digits.yaml"),), (_example(0),)),
    ShownPage("recommender", (_RECOMMENDER,), (_example(0),), report="report"),
    ShownPage(
        "compared",
        ((*_RECOMMENDER, "--model.init_args.attention", "standard"),),
        (_example(0),),
        report="report-compared",
        run_name="without_times",
        beside="recommender",
    ),
    ShownPage("document_qa", (("--config", "configs/document_qa/quickstart.yaml"),), (_example(5),)),
    ShownPage(
        "vision_language",
        (
            ("--config", "configs/vision_language/quickstart_pretrain.yaml"),
            ("--config", "configs/vision_language/quickstart_sft.yaml"),
        ),
        (
            _example(5),  # what shape is blue? A circle; blind, the answer is a square
            "document.querySelectorAll('select')[1].value = 'yes'",
        ),
    ),
    ShownPage(
        "temporal", (("--config", "configs/temporal/quickstart.yaml"),), (_example(2),)
    ),  # four points on the curve
    ShownPage("series", (("--config", "configs/temporal/quickstart_series.yaml"),), (_example(0),)),
)

SWEEP = "sweep"
"""Name that selects the picture of the report of a search."""

SEARCHED = (
    *_RECOMMENDER,
    "--sweep",
    "configs/recommender/sweep/quickstart.yaml",
    "--data.init_args.marketplace.num_users",
    "192",
    "--data.init_args.marketplace.num_items",
    "100",
    "--data.init_args.batch_size",
    "8",
    "--model.init_args.num_blocks",
    "1",
    "--trainer.max_epochs",
    "6",
)
"""Options of that search: the quickstart's, with trials of seconds."""

PICTURES = {
    f"report-{SWEEP}",
    *(f"demo-{page.name}" for page in PAGES),
    *(page.report for page in PAGES if page.report),
}
"""Names of all pictures."""
