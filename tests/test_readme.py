"""What the README and the guides without a test of their own say to type exists."""

import re
import shlex

import pytest

from commands.cli import LockstepCLI
from commands.doctor.command import _parse
from commands.report.command import parser as report_parser
from tests.conftest import REPOSITORY
from tests.guide_commands import commands, options

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
GUIDE = (REPOSITORY / "docs/vision-language.md").read_text(encoding="utf-8")
LINE = r"^    python train\.py (.+?)(?:\s+#.*)?$"
# Page -> the config of a command that names none. Other guides have tests of their own.
PAGES = {
    "README.md": "configs/recommender/quickstart.yaml",
    "docs/quickstart.md": "configs/recommender/quickstart.yaml",
    "docs/batch-arithmetic.md": "configs/recommender/quickstart.yaml",
    "docs/performance.md": "configs/recommender/quickstart.yaml",
    "docs/tuning.md": "configs/recommender/quickstart.yaml",
    "docs/monitoring.md": "configs/recommender/quickstart.yaml",
    "docs/recommender.md": "configs/recommender/quickstart.yaml",
    "docs/image-classifier.md": "configs/image_classifier/digits.yaml",
    "docs/temporal.md": "configs/temporal/quickstart.yaml",
}
COMMANDS = {(config, shlex.join(options(command))) for page, config in PAGES.items() for command in commands(page)}
in_the_table = re.findall(r"`python train\.py ([^`]*configs/[^`]*)`", GUIDE)
for command in (*re.findall(LINE, GUIDE, re.MULTILINE), *in_the_table):
    COMMANDS.add(("configs/vision_language/pretrain.yaml", command))


def test_there_are_commands():
    assert len(COMMANDS) >= 40


@pytest.mark.parametrize("config, command", sorted(COMMANDS))
def test_the_command_line_takes_it(config, command, monkeypatch, capsys):
    """Parsed to the end by the real parser, which then prints the config instead of running it."""
    monkeypatch.chdir(REPOSITORY)
    subcommand, *options = shlex.split(command)
    if subcommand == "doctor":  # has a parser of its own, which leaves to the config's checks what it does not know
        assert _parse(options)[2] == options
        return
    if subcommand == "report":
        assert report_parser().parse_args(options).runs
        return
    if "--help" not in options:
        if "--config" not in options or "..." in options:
            options = [option for option in options if option != "..."]
            options = ["--config", config, *_without_bare_config(options)]
        options.append("--print_config")
    with pytest.raises(SystemExit) as end:
        LockstepCLI([subcommand, *options])
    assert end.value.code in (0, None), capsys.readouterr().err


def _without_bare_config(options):
    """`--config ...` stands for any config."""
    kept = []
    for position, option in enumerate(options):
        following = options[position + 1] if position + 1 < len(options) else "--"
        if option != "--config" or not following.startswith("--"):
            kept.append(option)
    return kept


def test_every_file_it_names_is_there():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_every_make_target_is_there():
    targets = set(re.findall(r"make ([a-z]+)", README)) - {"sure"}
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_no_figure_is_missing():
    """A table that somebody meant to put in."""
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")):
        assert re.findall(r"\b[A-Z0-9]+_(?:TABLE|TEXT|FIGURE)\b", page.read_text(encoding="utf-8")) == [], page.name
