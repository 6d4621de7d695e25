"""docs/batch-arithmetic.md, docs/from-the-guides.md: every number on them is what the program computes."""

import re
from math import ceil

import pytest
import yaml

from engine.data.batch_plan import BatchPlan
from engine.optim.lr_schedule import scale_lr
from tests.conftest import REPOSITORY
from tests.docs.pages import read, tables

PAGE = read("docs/batch-arithmetic.md")
GUIDES = read("docs/from-the-guides.md")


def rows(*first_cells: str) -> list[list[str]]:
    """The rows of all tables whose head begins with these cells."""
    both = tables(PAGE + GUIDES)
    return [row for head, *rows in both if tuple(head[: len(first_cells)]) == first_cells for row in rows]


BATCHES = rows("the guide", "ranks")
RATES = rows("the guide", "rate, for batch")
KEYS = ("num_users", "max_epochs", "warmup_steps")


def test_all_five_guides_have_batches():
    with_batches = [part for part in GUIDES.split("\n## ") if "\n| the guide | ranks |" in part]
    named = {part.splitlines()[0] for part in with_batches}
    assert named == {"Temporal", "Image classifier", "Recommender", "Document QA", "Vision-language"}
    assert len(BATCHES) >= 25
    assert len(RATES) >= 7


@pytest.mark.parametrize("row", BATCHES, ids=lambda row: row[0][:50])
def test_each_row_prints_the_plan_of_its_settings(row):
    _, ranks, settings, printed = row
    given = {name: int(value) for name, value in re.findall(r"`data\.(\w+) (\d+)`", settings)}
    assert given
    assert f"`{BatchPlan.derive(world_size=int(ranks), **given)}`" == printed


@pytest.mark.parametrize("row", RATES, ids=lambda row: row[0])
def test_rates_of_the_table_are_the_scaled_ones(row):
    _, base, batch, root, linear, theirs = row
    rate, base_batch = base.split(", ")
    for scaling, written in (("sqrt", root), ("linear", linear)):
        ours = scale_lr(float(rate), scaling, int(batch), int(base_batch))
        assert float(written) == pytest.approx(ours, rel=2e-3), scaling
    if row[0] == "vision-language, its batch in total":
        assert float(theirs) == 4 * float(root)  # the text's numbers for it
    elif theirs:
        assert {float(end) for end in re.split(r"(?<=\d)-(?=0)", theirs)} <= {float(root), float(linear)}


def test_the_messages_are_those_of_the_program():
    assert str(BatchPlan.derive(world_size=4, batch_size=512)) in PAGE
    with pytest.raises(ValueError) as refused:
        BatchPlan.derive(world_size=3, batch_size=32)
    assert str(refused.value) in PAGE
    rate = scale_lr(0.001, "sqrt", 512, 128)
    assert f"learning rate {rate:g} = {0.001:g} for batch 128, scaled (sqrt) to batch 512" in PAGE


def test_the_guide_states_the_steps_and_warm_up_of_the_quickstart():
    config = (REPOSITORY / "configs/recommender/quickstart.yaml").read_text(encoding="utf-8")
    setting = {name: int(re.search(rf"\b{name}: (\d+)", config)[1]) for name in KEYS}
    table = rows("`data.batch_size`", "steps in an epoch")
    assert len(table) == 3
    for row in table:
        batch, steps, all_steps, samples, alike = (int(re.search(r"[\d,]+", cell)[0].replace(",", "")) for cell in row)
        assert steps == ceil(setting["num_users"] / batch)  # each shopper is a sequence of the training
        assert all_steps == setting["max_epochs"] * steps
        assert samples == setting["warmup_steps"] * batch
        assert alike == ceil(setting["warmup_steps"] * 128 / batch)


def test_the_guide_states_the_batch_sizes_of_its_configs():
    named = re.findall(r"`(?:configs/temporal/)?(qwen[\w.-]+\.yaml)`\s(?:has\s)?(\d+)", GUIDES)
    assert len(named) == 2
    for name, batch in named:
        config = (REPOSITORY / "configs/temporal" / name).read_text(encoding="utf-8")
        assert f" batch_size: {batch} " in config, name


@pytest.mark.parametrize("page", ["docs/quickstart.md", "docs/tuning.md"])
def test_the_line_of_a_step_has_the_learning_rate_of_the_quickstart(page):
    config = yaml.safe_load((REPOSITORY / "configs/recommender/quickstart.yaml").read_text(encoding="utf-8"))
    settings = config["model"]["init_args"]
    lines = re.findall(r"^ *step (\d+), epoch 0: loss .*, lr ([\d.e-]+), ", read(page), re.MULTILINE)
    assert len(lines) == 1
    for step, rate in lines:
        assert int(step) <= settings["warmup_steps"]  # linear
        assert float(rate) == pytest.approx(settings["learning_rate"] * int(step) / settings["warmup_steps"])
