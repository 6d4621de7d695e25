"""train.py accepts every command of every page, and so do the launchers that start it."""

import pytest
from accelerate.commands.launch import launch_command_parser
from torch.distributed.run import get_args_parser

from commands.cli import class_registry
from commands.doctor.main import _parse
from commands.report.main import build_parser as report_parser
from commands.sweep.sweep_arguments import build_parser as sweep_parser
from tests.conftest import REPOSITORY
from tests.docs.pages import PAGES, arguments, commands
from tests.docs.references import HISTORY

QUICKSTART = "configs/recommender/quickstart.yaml"
# The config of a command that names none, by its page or its run.
CONFIGS = {
    "docs/document-qa.md": "configs/document_qa/your_documents.yaml",
    "docs/image-classifier.md": "configs/image_classifier/digits.yaml",
    "docs/temporal.md": "configs/temporal/quickstart.yaml",
    "docs/vision-language.md": "configs/vision_language/pretrain.yaml",
    "pages": "configs/document_qa/retriever.yaml",
    "stage2": "configs/vision_language/quickstart_sft.yaml",
    "no_captions": "configs/vision_language/quickstart_sft.yaml",
}
SKIPPED = ("docs/add-a-family.md", "docs/from-lightning.md", HISTORY)
"""examples/ has tests that run the commands of the first two; the last one names removed options."""
ENDING = ("--help", "--print_config")
"""Options that end the parse; test_references.py checks that they exist."""
GONE = "--data.init_args.group_by_length"
"""An option of a measurement whose commit the page names."""

FOUND = [(page, words) for page in PAGES for words in commands(page) if page not in SKIPPED and arguments(words)]
LAUNCHES = {" ".join(words): words for _, words in FOUND if words[0] in ("torchrun", "accelerate")}


def split(page: str, words: list[str]) -> tuple[str, list[str]]:
    """The experiment of a command, and its other options without placeholders."""
    experiments, options, following = [], [], iter(words)
    for word in following:
        if word == "--config":
            word = next(following)
            if word.startswith("configs/overlays/"):
                options += ["--config", word]
            elif word not in ("...", "configs/FAMILY/X.yaml", "runs/NAME/config.yaml"):
                experiments.append(word)
        elif word in ("--model.help", "--data.help"):
            assert next(following) in class_registry.__all__
        elif word == GONE:
            next(following)
        elif word not in ("...", *ENDING):
            options.append("1" if word == "N" else word)
    run = options[options.index("--run_name") + 1] if "--run_name" in options else ""
    if all("/ablation/" in path for path in experiments):  # laid over the config of the run
        experiments.insert(0, CONFIGS.get(run, CONFIGS.get(page, QUICKSTART)))
    return " ".join(experiments), options


def grouped() -> dict[tuple[str, str], list[str]]:
    """{(command, experiment): options of all commands with both}. A parse checks overridden options, too."""
    groups: dict[tuple[str, str], list[str]] = {}
    for page, words in FOUND:
        command, *options = arguments(words)
        if command == "doctor":  # has a parser of its own, and leaves other options to that of fit
            command, options = "fit", _parse(options)[2]
        if command == "sweep":  # likewise
            own, options = sweep_parser().parse_known_args(options)
            command, options = "fit", [*(word for path in own.config for word in ("--config", path)), *options]
        if command != "report":
            experiment, options = split(page, options)
            groups.setdefault((command, experiment), []).extend(options)
    return groups


GROUPS = grouped()


def parse(parser, command: str, experiment: str, options: list[str]) -> None:
    configs = [word for path in experiment.split() for word in ("--config", path)]
    parser.parse_args([command, *configs, *options])


def test_all_guides_have_commands():
    assert len(FOUND) >= 150
    assert len(GROUPS) >= 40
    assert sum(map(len, GROUPS.values())) >= 200
    assert {words[0] for _, words in FOUND} >= {"python", "torchrun", "accelerate", "sbatch", "srun"}
    expected = {"fit", "validate", "test", "predict", "prepare", "export", "demo", "chat"}
    assert {command for command, _ in GROUPS} == expected


@pytest.mark.parametrize("command, experiment", GROUPS, ids=map(" ".join, GROUPS))
def test_train_accepts_the_options_of_the_guides(command, experiment, command_line, monkeypatch):
    """The real parser parses them to the end."""
    monkeypatch.chdir(REPOSITORY)
    parse(command_line, command, experiment, GROUPS[command, experiment])


@pytest.mark.parametrize(
    "command, wrong",
    [
        ("fit", ["--trainer.max_epoch", "5"]),
        ("fit", ["--trainer.max_epochs", "many", "--trainer.max_epochs", "5"]),
        ("fit", ["--config", "configs/overlays/gpus.yaml"]),
        ("fit", ["--merge"]),
        ("export", []),
    ],
)
def test_wrong_options_are_refused(command, wrong, command_line, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(SystemExit) as end:
        parse(command_line, command, QUICKSTART, wrong)
    assert end.value.code == 2, capsys.readouterr().err


def test_the_report_accepts_its_commands():
    reports = [arguments(words)[1:] for _, words in FOUND if arguments(words)[0] == "report"]
    assert len(reports) >= 5
    assert all(report_parser().parse_args(words).runs for words in reports)


@pytest.mark.parametrize("words", LAUNCHES.values(), ids=LAUNCHES)
def test_the_launcher_accepts_the_command_of_the_guide(words):
    words = [word for word in words if word != "..."]
    if words[0] == "torchrun":
        found = get_args_parser().parse_args(words[1:])
    else:
        found = launch_command_parser().parse_args(words[2:])
    assert found.training_script == "train.py"
