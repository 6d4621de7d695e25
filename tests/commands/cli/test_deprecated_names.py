"""Configs, command lines and run directories of version 0.1.0 are read, with a deprecation line for each old name."""

import importlib

import pytest
import yaml
from jsonargparse import get_loader

from commands.cli import deprecated_names
from commands.cli.deprecated_names import PARSER_MODE, register_aliases, replace_aliases
from commands.cli.main import main
from commands.runs.current_names import CLASS_PATHS, DISTINCT_OPTIONS, OPTION_GROUPS, OPTIONS
from tests.conftest import REPOSITORY, TINY
from tests.support.fit_parser import printed_config

CONFIG = REPOSITORY / "tests/commands/cli/config_0_1_0.yaml"
STRATEGY = "engine.sharded_strategy.ShardedStrategy"


def deprecations(lines):
    return [line for line in lines if line.startswith("deprecated: ")]


@pytest.mark.parametrize("path", CLASS_PATHS.values())
def test_a_new_class_path_exists(path):
    module, _, name = path.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), name), type)


def test_no_alias_hides_a_class():
    for path in CLASS_PATHS:
        module, _, name = path.rpartition(".")
        try:
            assert not hasattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            continue


def test_a_config_with_old_class_paths_is_read_with_the_new_ones(capsys, messages):
    config = printed_config(capsys, "--config", str(CONFIG))
    assert config["trainer"]["strategy"]["class_path"] == CLASS_PATHS[STRATEGY]
    callback = {"class_path": "callbacks.performance.stragglers.Stragglers"}
    callback["init_args"] = {"every_n_steps": 50, "warn_over_median": 2.0}
    assert config["trainer"]["callbacks"] == [callback]
    assert deprecations(messages) == [
        f"deprecated: {old} is now {CLASS_PATHS[old]}; version 0.3.0 will not accept the old path"
        for old in (STRATEGY, "callbacks.stragglers.Stragglers")
    ] + ["deprecated: decay_share is now decay_fraction; version 0.3.0 will not accept the old name"] + [
        f"deprecated: {old} is now {OPTION_GROUPS[old]}; version 0.3.0 will not accept the old name"
        for old in ("example_log", "metrics_endpoint", "gradients", "gradient_coverage", "replica_parity")
    ]
    text = yaml.safe_load(CONFIG.read_text())
    assert all(config[new].items() <= text[old].items() for old, new in OPTION_GROUPS.items())


@pytest.mark.parametrize(
    "options",
    [
        ["--trainer.strategy", f'{{"class_path": "{STRATEGY}"}}'],
        ["--trainer.strategy", STRATEGY, "--trainer.strategy.state_dict_type", "full"],
        [f"--trainer.strategy={STRATEGY}", "--trainer.strategy.state_dict_type=full"],
    ],
)
def test_an_old_class_path_on_the_command_line_is_replaced(capsys, messages, options):
    config = printed_config(capsys, *TINY, *options)
    assert config["trainer"]["strategy"]["class_path"] == CLASS_PATHS[STRATEGY]
    assert len(deprecations(messages)) == 1


def test_an_old_group_on_the_command_line_is_replaced(messages):
    arguments = ["fit", "--gradients.bucket_mb", "5", "--gradients.compression=bf16", "--example_log", '{"number": 2}']
    assert replace_aliases([*arguments, "--gradients_of", "gradients.bucket_mb"]) == [
        "fit",
        "--ddp.bucket_mb",
        "5",
        "--ddp.compression=bf16",
        "--sample_previews",
        '{"number": 2}',
        "--gradients_of",
        "gradients.bucket_mb",
    ]
    assert [line.split(";")[0] for line in deprecations(messages)] == [
        "deprecated: gradients is now ddp",
        "deprecated: example_log is now sample_previews",
    ]


def test_an_old_group_in_a_file_is_merged_with_its_new_name_on_the_command_line(capsys, messages, tmp_path):
    file = tmp_path / "old.yaml"
    file.write_text("gradients: {bucket_mb: 3}\nreplica_parity: {every_n_steps: 7}\nddp: {compression: bf16}\n")
    config = printed_config(capsys, *TINY, "--config", str(file), "--replica_consistency.every_n_steps", "8")
    assert config["ddp"] == {"compression": "bf16", "bucket_mb": 3}
    assert config["replica_consistency"] == {"every_n_steps": 8}
    assert len(deprecations(messages)) == 2


@pytest.mark.parametrize(("old", "new"), DISTINCT_OPTIONS.items())
def test_an_old_option_is_replaced_on_the_command_line_and_in_yaml(messages, old, new):
    arguments = ["fit", f"--data.{old}", "5", f"--data.init_args.{old}=6", "--run_name", old]
    assert replace_aliases(arguments) == ["fit", f"--data.{new}", "5", f"--data.init_args.{new}=6", "--run_name", old]
    register_aliases()
    config = get_loader(PARSER_MODE)(f"data: {{init_args: {{{old}: 5}}}}\ndata.{old}: 6\n")
    assert config == {"data": {"init_args": {new: 5}}, f"data.{new}": 6}
    line = f"deprecated: {old} is now {new}; version 0.3.0 will not accept the old name"
    assert deprecations(messages) == [line] * 2, "each reader of options logs it once"


@pytest.mark.parametrize("old", OPTIONS)
def test_a_users_own_key_of_that_name_keeps_it(messages, old):
    """Only options of the model and the data were renamed: a file or a callback of the user may be called so."""
    register_aliases()
    config = {"data": {"init_args": {"files": {old: 5}, "tables": [{old: 1}]}}, "trainer": {old: 2}}
    for own in (config, {old: 5}):  # the value of an option on the command line is read as a text of its own
        assert get_loader(PARSER_MODE)(yaml.safe_dump(own)) == own
    arguments = ["fit", f"--data.init_args.files.{old}", "5", f"--trainer.{old}=6"]
    assert replace_aliases(arguments) == arguments
    assert deprecations(messages) == []


@pytest.mark.parametrize("old", sorted(OPTIONS.keys() - DISTINCT_OPTIONS.keys()))
def test_a_class_of_the_user_may_have_an_option_of_that_name(messages, old):
    register_aliases()
    config = {"data": {"class_path": "mine.Data", "init_args": {old: 5}}}
    assert get_loader(PARSER_MODE)(yaml.safe_dump(config)) == config
    arguments = ["fit", "--data", "mine.Data", f"--data.{old}", "5"]
    assert replace_aliases(arguments) == arguments
    assert deprecations(messages) == []


@pytest.mark.parametrize(("old", "new"), DISTINCT_OPTIONS.items())
def test_a_class_of_the_user_inherits_renamed_options(old, new):
    register_aliases()
    config = get_loader(PARSER_MODE)(f"model: {{class_path: mine.Model, init_args: {{{old}: 5}}}}")
    assert config["model"]["init_args"] == {new: 5}


def test_an_error_names_the_line_of_an_old_option(tmp_path, capsys):
    file = tmp_path / "old.yaml"
    file.write_text("model:\n  init_args:\n    decay_share: much\n")
    with pytest.raises(SystemExit) as end:
        main(["fit", *TINY, "--config", str(file), "--print_config"])
    assert end.value.code == 2
    assert f"{file}:3: " in capsys.readouterr().err


def test_an_old_class_name_is_replaced_on_the_command_line_and_in_yaml(messages):
    arguments = ["fit", "--model", "TimelineReader", "--run_name", "TimelineReader", "--model=TimelineReader"]
    assert replace_aliases(arguments) == [
        "fit", "--model", "SeriesLanguageModel", "--run_name", "TimelineReader", "--model=SeriesLanguageModel"
    ]  # fmt: skip
    register_aliases()
    config = get_loader(PARSER_MODE)("model: {class_path: TimelineReader}\nrun_name: TimelineReader")
    assert config == {"model": {"class_path": "SeriesLanguageModel"}, "run_name": "TimelineReader"}
    assert [line.split(";")[0] for line in deprecations(messages)] == [
        f"deprecated: {option} TimelineReader is now {option} SeriesLanguageModel" for option in ("model", "class_path")
    ]


def test_an_old_value_is_replaced_on_the_command_line_and_in_yaml(messages):
    arguments = ["fit", "--data.tiling", "places", "--data.init_args.tiling=places", "--run_name", "places"]
    assert replace_aliases(arguments) == [
        "fit", "--data.tiling", "tile_positions", "--data.init_args.tiling=tile_positions", "--run_name", "places"
    ]  # fmt: skip
    register_aliases()
    config = get_loader(PARSER_MODE)("data: {init_args: {tiling: places, root: places}}")
    assert config == {"data": {"init_args": {"tiling": "tile_positions", "root": "places"}}}
    line = "deprecated: tiling places is now tiling tile_positions; version 0.3.0 will not accept the old name"
    assert deprecations(messages) == [line] * 2, "each reader of options logs it once"


def test_removed_options_are_dropped_with_a_message(capsys, messages, monkeypatch, tmp_path):
    monkeypatch.setattr(
        deprecated_names, "REMOVED_OPTIONS", {"stragglers.window": "stragglers.every_n_steps", "gone": "nothing"}
    )
    assert replace_aliases(["fit", "--gone", "5", "--gone=6", "--gone", "--log.level", "info"]) == [
        "fit",
        "--log.level",
        "info",
    ]
    assert deprecations(messages) == ["deprecated: gone was removed and has no effect: nothing"]
    messages.clear()
    file = tmp_path / "old.yaml"
    file.write_text("stragglers: {window: 3, every_n_steps: 7}\ngone: false\n")
    config = printed_config(capsys, *TINY, "--config", str(file))
    assert config["stragglers"]["every_n_steps"] == 7
    assert deprecations(messages) == [
        "deprecated: stragglers.window was removed and has no effect: stragglers.every_n_steps"
    ], "false is what every config has"


def test_a_run_of_0_1_0(lockstep, done, messages):
    """Its config has class paths of 0.1.0; test, predict and a resumed training read it."""
    path = done.folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["trainer"]["callbacks"] = [{"class_path": "callbacks.stragglers.Stragglers"}]
    for old, new in OPTION_GROUPS.items():
        config[old] = config.pop(new)
    path.write_text(yaml.safe_dump(config))
    name = done.folder.name
    lockstep("test", name=name)
    assert len(deprecations(messages)) == 1 + len(OPTION_GROUPS)
    lockstep("predict", name=name)
    lockstep("fit", "--ckpt_path", "last", "--trainer.max_epochs", "3", name=name)
    assert max(done.series("train/loss")) == 39
    resumed = yaml.safe_load((done.folder / "config-2.yaml").read_text())
    assert resumed["trainer"]["callbacks"][0]["class_path"] == "callbacks.performance.stragglers.Stragglers"
    assert set(OPTION_GROUPS.values()) <= set(resumed)
    assert not set(OPTION_GROUPS) & set(resumed)
