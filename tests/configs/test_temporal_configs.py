"""The temporal configs run with smaller sizes; an ablation changes only the settings that it names."""

import json
import math
import re
import shlex

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.docs.pages import read
from tests.support.families.tiny_series import TINY_SERIES_MODEL, write_series_folder
from tests.support.families.tiny_temporal import QUICKSTART, SMALL_RUN, write_qwen2
from tests.tiers import slow

FOLDER = REPOSITORY / "configs/temporal"
PRETRAINED = sorted(FOLDER.glob("qwen*.yaml"))
ABLATIONS = sorted((FOLDER / "ablation").glob("*.yaml"))


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen2")
    write_qwen2(folder)
    return folder


@pytest.mark.parametrize("path", [PRETRAINED[0], *map(slow, PRETRAINED[1:])], ids=lambda path: path.stem)
def test_every_config_trains_two_steps_with_a_tiny_model(lockstep, path, qwen2):
    """Two steps of each, validated and saved, with a Qwen2 of 32 channels instead of Qwen2.5."""
    config = yaml.safe_load(path.read_text())
    name = config["model"]["init_args"]["language_model"]["path"]
    assert name == config["data"]["init_args"]["tokenizer"]
    assert name.startswith("Qwen/Qwen2.5-")
    where = ["--model.init_args.language_model.path", str(qwen2), "--data.init_args.tokenizer", str(qwen2)]
    small = [*SMALL_RUN, "--data.init_args.num_samples", "32", "--data.init_args.micro_batch_size", "8"]
    run = lockstep(
        "fit",
        "--config",
        str(path),
        *small,
        *where,
        "--trainer.max_epochs",
        "1",
        "--trainer.check_val_every_n_epoch",
        "1",
        name="a",
    )
    losses = run.series("train/loss")
    assert sorted(losses) == [1, 2]
    assert all(map(math.isfinite, losses.values()))
    assert 0 <= run.series(config["best_checkpoint"]["monitor"])[2] <= 1
    assert {file.name for file in (run.folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.slow
def test_the_quickstart_of_series_runs(lockstep, tmp_path):
    """Two steps, validated and saved; every kind of question has its metric. It answers questions of the user."""
    small = [*TINY_SERIES_MODEL, "--data.init_args.num_samples", "16", "--data.init_args.validation_size", "24"]
    run = lockstep("fit", *small, "--trainer.max_epochs", "1", "--trainer.check_val_every_n_epoch", "1", name="a")
    assert sorted(run.series("train/loss")) == [1, 2]
    assert 0 <= run.series("val/accuracy")[2] <= 1
    for kind, chance in {"trend": 1 / 3, "season": 1 / 4, "outlier": 1 / 4, "lag": 1 / 3, "comparison": 1 / 2}.items():
        assert run.series(f"val/baseline/chance/{kind}/right")[2] == pytest.approx(chance)
    (tmp_path / "asked.csv").write_text('question,series,options\n"Which, a or b?","[[1,2],[3]]",a|b\n')
    run = lockstep("predict", *small, "--data.init_args.questions", "asked.csv", name="a")
    assert json.loads((run.folder / "predictions-asked.jsonl").read_text())["answer"] in ("a", "b")


@pytest.mark.slow
def test_your_series_trains_two_steps(lockstep, qwen2, tmp_path):
    write_series_folder(tmp_path / "series", train=10)
    where = ["--model.init_args.language_model.path", str(qwen2), "--data.init_args.tokenizer", str(qwen2)]
    sizes = {"path": str(tmp_path / "series"), "batch_size": "5", "micro_batch_size": "5", "num_workers": "0"}
    small = [word for key, value in sizes.items() for word in (f"--data.init_args.{key}", value)]
    small += [
        "--model.init_args.max_new_tokens",
        "4",
        "--trainer.accelerator",
        "cpu",
        "--trainer.log_every_n_steps",
        "1",
    ]
    path = FOLDER / "your_series.yaml"
    run = lockstep("fit", "--config", str(path), *where, *small, "--trainer.max_epochs", "1", name="a")
    assert sorted(run.series("train/loss")) == [1, 2]
    assert 0 <= run.series("val/right")[2] <= 1


@pytest.mark.parametrize("path", ABLATIONS, ids=lambda path: path.stem)
def test_ablations_change_what_they_say(parser, path):
    """An ablation changes at least one config; a config may already have what it sets."""
    output = flat(yaml.safe_load(path.read_text()))
    for base in (QUICKSTART, PRETRAINED[0]):
        alone = flat(parser.parse_args(["--config", str(base)]).as_dict())
        both = flat(parser.parse_args(["--config", str(base), "--config", str(path)]).as_dict())
        changed = {key for key in both if both[key] != alone.get(key) and key != "config"}
        if changed:
            break
    assert changed
    assert changed <= {key for key in both if any(key.startswith(prefix) for prefix in output)}
    for key, value in output.items():
        assert (tuple(both[key]) if isinstance(value, list) else both[key]) == (
            tuple(value) if isinstance(value, list) else value
        ), key


@pytest.mark.parametrize("base", [QUICKSTART, *map(slow, PRETRAINED)], ids=lambda path: path.stem)
def test_ablations_can_be_laid_over_every_config(parser, base):
    """What contradicts the config below is refused when data module and module are made; nothing is loaded yet."""
    for path in ABLATIONS:
        built = parser.instantiate(parser.parse_args(["--config", str(base), "--config", str(path)]))
        assert built.data.num_workers >= 0, path
        assert built.model.max_new_tokens, path


def test_the_ablations_of_the_page_are_options(parser):
    """The commands of the table in docs/temporal.md change the quickstart."""
    row = re.compile(r"^\| .* \| `(--(?:data|model)\.init_args.*?)`", re.MULTILINE)
    commands = row.findall(read("docs/temporal.md"))
    assert len(commands) == 4
    alone = parser.parse_args(["--config", str(QUICKSTART)]).as_dict()
    for command in commands:
        changed = parser.parse_args(["--config", str(QUICKSTART), *shlex.split(command)]).as_dict()
        assert {key for key in alone if changed[key] != alone[key]} <= {"model", "data"}
        assert changed != alone, command


@pytest.mark.slow
@pytest.mark.parametrize(
    "ablation",
    [
        ["--config", str(FOLDER / "ablation/pooled_max.yaml")],
        ["--model.init_args.kernel_sizes", "[3, 5, 7, 7]"],
        ["--data.init_args.synthesis.series_position", "series_first"],
    ],
    ids=["pooled_max", "kernel_sizes", "series_first"],
)
def test_an_ablation_trains_two_steps(lockstep, ablation):
    run = lockstep("fit", "--config", str(QUICKSTART), *ablation, *SMALL_RUN, "--trainer.max_steps", "2", name="a")
    assert sorted(run.series("train/loss")) == [1, 2]


def flat(config, prefix=""):
    """{dotted key: value}"""
    found = {}
    for key, value in config.items():
        if isinstance(value, dict) and value and key != "task_mix":
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
