"""A config that comes with the program is found from any folder; a file of the user's comes first."""

import pytest

from commands.cli.main import main
from commands.cli.shipped_configs import resolve_shipped_configs
from tests.conftest import REPOSITORY, TINY

QUICKSTART = "configs/recommender/quickstart.yaml"


@pytest.mark.parametrize("words", [["--config", "{}"], ["-c", "{}"], ["--config={}"]], ids=" ".join)
def test_a_shipped_config_is_found_unless_a_file_of_the_user_has_its_path(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    here, there = (["fit", *(word.format(path) for word in words)] for path in (QUICKSTART, REPOSITORY / QUICKSTART))
    assert resolve_shipped_configs(here) == there
    (tmp_path / QUICKSTART).parent.mkdir(parents=True)
    (tmp_path / QUICKSTART).write_text("seed_everything: 2\n")
    assert resolve_shipped_configs(here) == here


def test_arguments_that_name_no_shipped_config_are_unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inline = "configs/overlays/gpu.yaml\ntrainer: {}"
    arguments = ["fit", "--config", "configs/mine.yaml", "--config", "README.md", "--config", inline]
    arguments += ["--output", QUICKSTART, "--config", str(REPOSITORY / QUICKSTART), "--config"]
    assert resolve_shipped_configs(arguments) == arguments


def test_shipped_configs_are_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, *small = TINY
    main(["fit", "--config", QUICKSTART, "--config", "configs/overlays/debug.yaml", *small, "--trainer.max_steps", "1"])
    (run,) = (tmp_path / "runs").glob("[!.]*")
    assert run.name.startswith("recommender-quickstart-")
