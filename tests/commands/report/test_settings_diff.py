"""Tests configs as flat keys, their differences, and groups of seeds."""

import pytest

from commands.report.settings_diff import differences, flatten, group_name, read_recorded_settings, seed_groups
from tests.commands.report.recorded import Recorded


def test_nested_settings_become_keys():
    config = {"a": {"b": 1e-3, "c": {}}, "list": [1, "x"], "calls": [{"k": None}, {"k": True}], "text": "yes"}
    assert flatten(config) == {
        "a.b": "0.001",
        "a.c": "{}",
        "list": '[1, "x"]',
        "calls.0.k": "null",
        "calls.1.k": "true",
        "text": "yes",
    }


def test_configs_are_read_in_the_order_of_the_starts(tmp_path):
    run = Recorded(tmp_path / "a")
    for number in (10, 2):
        text = (run.folder / "config.yaml").read_text().replace("max_epochs: 4", f"max_epochs: {number}")
        (run.folder / f"config-{number}.yaml").write_text(text)
    files = read_recorded_settings(run.folder).of_files
    assert list(files) == ["config.yaml", "config-2.yaml", "config-10.yaml"]
    assert differences(list(files.values())) == [("trainer.max_epochs", ["4", "2", "10"])]


def test_a_config_that_is_not_yaml_is_named(tmp_path):
    run = Recorded(tmp_path / "a")
    (run.folder / "config.yaml").write_text("a: [1,")
    with pytest.raises(ValueError, match=r"config\.yaml:\d+: no YAML: .*; config\.yaml is written by"):
        read_recorded_settings(run.folder)


@pytest.mark.parametrize(("text", "kind"), [("", "nothing"), ("[a, b]", "a list"), ("a", "a single value")])
def test_a_config_that_is_not_a_mapping_is_a_problem(tmp_path, text, kind):
    run = Recorded(tmp_path / "a")
    (run.folder / "config-2.yaml").write_text(text)
    recorded = read_recorded_settings(run.folder)
    assert list(recorded.of_files) == ["config.yaml"]
    expected = f"found {kind}, expected the settings of a run, KEY: VALUE; skipped"
    assert recorded.problems == [f"{run.folder / 'config-2.yaml'}: {expected}"]


_NINE_TIMES_EACH = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))


@pytest.mark.parametrize("text", ["a: &a [*a]", "a0: &a0 [1]\n" + _NINE_TIMES_EACH])
def test_a_config_that_grows_without_end_is_refused(tmp_path, text):
    run = Recorded(tmp_path / "a")
    (run.folder / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"config\.yaml:\d+: (the alias \*a is inside|found more than 10,000)"):
        read_recorded_settings(run.folder)


def test_option_groups_options_and_values_have_their_current_names(tmp_path):
    old, new = Recorded(tmp_path / "a"), Recorded(tmp_path / "b")
    names = (old, "gradients", "row_tokens", "places"), (new, "ddp", "packed_length", "tile_positions")
    for run, group, option, tiling in names:
        with (run.folder / "config.yaml").open("a") as file:
            file.write(f"{group}: {{bucket_mb: 3}}\ndata.init_args: {{tiling: {tiling}, {option}: 64}}\n")
    assert differences([read_recorded_settings(run.folder).newest for run in (old, new)]) == []


def test_how_a_run_is_watched_does_not_part_it_from_its_seeds():
    def run(seed, **settings):
        return {"seed_everything": seed, "dropout": "0.1"} | settings

    first, second = {"prometheus.port": "8900"}, {"prometheus.port": "8901"}
    watching = "log.level wandb.name mlflow.experiment sample_previews.number watchdog.timeout distributed_debug"
    drawing = "trainer.enable_progress_bar trainer.logger trainer.logger.0.name"
    second |= dict.fromkeys([*watching.split(), *drawing.split()], "else")
    assert seed_groups([run("1", **first), run("2", **second)]) == [[0, 1]]
    for key in ("logs", "trainer.log_every_n_steps", "model.init_args.watchdog", "trainer.precision"):
        assert seed_groups([run("1"), run("2", **{key: "else"})]) == [[0], [1]], key


def test_runs_that_differ_in_the_seed_alone_are_grouped():
    def run(seed, dropout="0.1"):
        return {"seed_everything": seed, "dropout": dropout}

    assert seed_groups([run("1"), run("2", "0.5"), run("2"), run("3")]) == [[0, 2, 3], [1]]
    assert seed_groups([run("1"), run("1"), run("2")]) == [[0, 2], [1]], "the same seed twice has no spread"
    assert seed_groups([{}, {}]) == [[0], [1]], "of what is not known nothing is assumed"
    assert differences([run("1"), {"dropout": "0.1"}]) == [("seed_everything", ["1", None])]


@pytest.mark.parametrize(
    "names, name",
    [
        (["sasrec-seed1", "sasrec-seed2"], "sasrec"),
        (["sasrec-s1", "sasrec-s12"], "sasrec"),
        (["recommender-20260101-120000", "recommender-20260102-120000"], "recommender"),
        (["alone-1"], "alone-1"),
        (["bus1", "bus2"], "bus"),
        (["one", "other two"], "o"),
        (["one", "two"], "one and others"),
        (["small.seed=1", "small.seed=2"], "small"),
    ],
)
def test_a_groups_name_is_what_its_runs_have_in_common(names, name):
    assert group_name(names) == name
