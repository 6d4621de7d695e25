"""docs/sweep.md: the file that it shows is accepted, and its parameters are options of the quickstart."""

import re

import yaml

from commands.sweep.settings_reader import read_sweep
from tests.conftest import REPOSITORY
from tests.docs.pages import read

EXAMPLE = re.search(r"```yaml\n(.*?)```", read("docs/sweep.md"), flags=re.DOTALL)[1]


def test_the_file_is_a_part_of_the_shipped_file(tmp_path):
    (tmp_path / "sweep.yaml").write_text(EXAMPLE)
    settings, shown = read_sweep(tmp_path / "sweep.yaml"), yaml.safe_load(EXAMPLE)
    real = yaml.safe_load((REPOSITORY / "configs/recommender/sweep/quickstart.yaml").read_text())
    assert [parameter.key for parameter in settings.parameters] == [*shown["parameters"]]
    assert shown["parameters"].items() <= real["parameters"].items()
    assert settings.metric == real["metric"]
