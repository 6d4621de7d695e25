"""Tests the order of a run's configs."""

from commands.runs.run_configs import config_number, numbered_configs


def test_configs_are_listed_in_the_order_of_the_starts(tmp_path):
    assert numbered_configs(tmp_path) == []
    for name in ("config-10.yaml", "config-2.yaml", "config.yaml", "config-b.yaml", "config-3.yaml.old"):
        (tmp_path / name).touch()
    names = ["config.yaml", "config-2.yaml", "config-10.yaml"]
    assert [path.name for path in numbered_configs(tmp_path)] == names
    assert [config_number(tmp_path / name) for name in names] == [1, 2, 10]
    (tmp_path / "config.yaml").unlink()
    assert [path.name for path in numbered_configs(tmp_path)] == names[1:]
