"""Checks which settings of an evaluation count as different from the run's settings."""

import pytest
import yaml

from commands.runs.current_names import CLASS_PATHS
from commands.runs.evaluation_settings import changed_evaluation_keys

OWN = {
    "model": {"class_path": "Network", "init_args": {"width": 8}},
    "data": {"class_path": "Rows", "init_args": {"ablate": "none", "num_workers": 4, "parts": [1, 2]}},
    "trainer": {"limit_test_batches": None, "limit_val_batches": 1.0, "devices": "auto"},
    "seed_everything": 1,
}


@pytest.fixture
def run(tmp_path):
    (tmp_path / "config.yaml").write_text("model: {class_path: Other}")
    (tmp_path / "config-2.yaml").write_text(yaml.safe_dump(OWN))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "key", "value", "altered"),
    [
        ("test", "seed_everything", 1, ""),
        ("test", "trainer.devices", 2, ""),
        ("test", "data.init_args.num_workers", 0, ""),
        ("test", "data.init_args.evaluation_batch_size", 8, ""),
        ("test", "trainer.limit_val_batches", 2, ""),
        ("test", "trainer.limit_test_batches", 2, "trainer.limit_test_batches"),
        ("validate", "trainer.limit_val_batches", 1, "trainer.limit_val_batches"),  # one batch, where 1.0 are all
        ("validate", "trainer.fast_dev_run", True, "trainer.fast_dev_run"),
        ("test", "data.init_args.ablate", "figure", "data.init_args.ablate"),
        ("test", "data.init_args.parts", [1], "data.init_args.parts"),
        ("test", "model.init_args.beams", 4, "model.init_args.beams"),
        ("fit", "data.init_args.ablate", "figure", ""),
    ],
)
def test_changed_evaluation_settings_are_listed(run, command, key, value, altered):
    config = yaml.safe_load(yaml.safe_dump(OWN))
    group = config
    *above, name = key.split(".")
    for part in above:
        group = group[part]
    group[name] = value
    assert changed_evaluation_keys(command, yaml.safe_dump(config), run, str(run / "checkpoints/best.ckpt")) == altered


def test_old_names_of_options_and_values_are_no_difference(run):
    names = ("row_tokens", "places"), ("packed_length", "tile_positions")
    old, new = ({**OWN, "data": {"init_args": {option: 64, "tiling": tiling}}} for option, tiling in names)
    (run / "config-3.yaml").write_text(yaml.safe_dump(old))
    checkpoint = str(run / "checkpoints/best.ckpt")
    assert changed_evaluation_keys("test", yaml.safe_dump(new), run, checkpoint) == ""


@pytest.mark.parametrize(("old", "new"), [*CLASS_PATHS.items(), ("TimelineReader", "SeriesLanguageModel")])
def test_the_old_name_of_a_class_is_no_difference(run, old, new):
    (run / "config-3.yaml").write_text(yaml.safe_dump({**OWN, "model": {"class_path": old}}))
    config = yaml.safe_dump({**OWN, "model": {"class_path": new}})
    assert changed_evaluation_keys("test", config, run, str(run / "checkpoints/best.ckpt")) == ""


def test_a_checkpoint_of_another_run_is_a_changed_setting(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("other")
    text = yaml.safe_dump(OWN)
    for checkpoint in (str(elsewhere / "best.ckpt"), None):
        assert changed_evaluation_keys("test", text, run, checkpoint) == "ckpt_path"
    assert changed_evaluation_keys("test", text, elsewhere, str(run / "best.ckpt")) == "config"
