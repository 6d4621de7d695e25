"""Config files are checked before they are parsed: their names, their links and their form."""

import sys
from pathlib import Path

import pytest

from commands.cli.configs.config_files import check_arguments
from commands.cli.main import main
from tests.commands.cli.configs.refusals import answer


@pytest.mark.parametrize(
    ("text", "message"), [("", "nothing"), ("# none\n", "nothing"), ("- a\n", "a list"), ("a\n", "a text")]
)
def test_a_file_without_settings_is_refused(parser, tmp_path, text, message):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ValueError, match=f"x.yaml:1: found {message}, expected settings, KEY: VALUE"):
        parser.parse_args(["--config", str(tmp_path / "x.yaml")])


@pytest.mark.parametrize(
    "arguments", [["--config", ""], ["--config="], ["--config"], ["--config", "--trainer.devices"]]
)
def test_a_config_without_a_name_is_refused(arguments):
    with pytest.raises(ValueError, match="^--config: found nothing, expected a YAML file"):
        check_arguments(["fit", *arguments])


@pytest.mark.parametrize("target", ["x.yaml", "absent.yaml"])
def test_a_config_that_is_a_link_to_no_file_is_refused(tmp_path, target):
    (tmp_path / "x.yaml").symlink_to(tmp_path / target)
    with pytest.raises(FileNotFoundError, match="x.yaml: the symbolic link leads to no file; expected a YAML file"):
        check_arguments(["fit", "--config", str(tmp_path / "x.yaml")])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--config", "x.yaml:3: the key trainer stands twice, first in line 1"),
        ("-c", "x.yaml:3: the key trainer stands twice, first in line 1"),
        ("--model", "x.yaml:3: the key trainer stands twice, first in line 1"),
        ("--trainer.callbacks", "--trainer.callbacks:1: found more than 50 levels"),
    ],
)
def test_files_and_values_are_checked_before_they_are_parsed(messages, tmp_path, monkeypatch, option, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    Path("x.yaml").write_text("trainer:\n  gradient_clip_val: 1\ntrainer:\n  max_epochs: 1\n")
    value = "[" * 3000 if option == "--trainer.callbacks" else "x.yaml"
    with pytest.raises(SystemExit) as end:
        main(["fit", option, value])
    assert end.value.code == 2
    assert messages[0].startswith(f"error: {message}")
    assert len(messages) == 2


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("configs/recommender/quikstart.yaml", "did you mean configs/recommender/quickstart.yaml"),
        ("configs/recomender/esasrec.yaml", "did you mean configs/recommender/esasrec.yaml?"),
        ("esasrec.yaml", "did you mean configs/recommender/esasrec.yaml?"),
        ("mine/fisrt.yaml", "did you mean mine/first.yaml?"),
        ("mine/zzz.yaml", ""),
    ],
)
def test_a_misspelt_config_names_the_closest_file(parser, capsys, messages, tmp_path, monkeypatch, name, meant):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/first.yaml").write_text("seed_everything: 1\n")
    code, lines = answer(parser, ["--config", name], capsys, messages)
    assert code == 2
    assert "File does not exist" in lines[-1]
    assert meant in lines[-1]
    assert bool(meant) == ("did you mean" in lines[-1])
