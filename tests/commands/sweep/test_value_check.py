"""The values of a sweep are checked before its study begins."""

import pytest
import yaml

from commands.sweep.main import main
from commands.sweep.sweep_settings import Parameter
from commands.sweep.trial_process import option_argument
from commands.sweep.value_check import checked_cases, problem_of
from tests.conftest import REPOSITORY
from tests.support.families.colored_squares import write_config

CONFIG = str(REPOSITORY / "configs/recommender/quickstart.yaml")

SWEEP = """\
metric: val/ndcg@10
direction: maximize
trials: 1
parameters:
  model.init_args.dropout: {type: float, low: 0.0, high: 0.5}
  data.init_args.batch_size: {type: categorical, values: [128, 64, 0]}
"""


def test_each_value_is_checked_beside_the_first_of_the_others():
    cases = checked_cases((Parameter("x", "float", 0.5, 1.0), Parameter("kind", "categorical", values=("a", None, 2))))
    assert [(changed and changed.key, values) for changed, values in cases] == [
        (None, {"x": 0.5, "kind": "a"}),
        ("x", {"x": 1.0, "kind": "a"}),
        ("kind", {"x": 0.5, "kind": None}),
        ("kind", {"x": 0.5, "kind": 2}),
    ]


@pytest.mark.slow
def test_parser_model_and_data_refuse_a_value():
    for words, message in (
        ([], ""),
        (["--model.init_args.attention=nope"], "--model.init_args.attention: expected one of standard, time_interval"),
        (["--data.init_args.batch_size=0"], "data.init_args.batch_size must be at least 1, got 0"),
        (["--model.init_args.dropout=2"], "model.init_args.dropout must be at least 0 and less than 1, got 2.0"),
    ):
        problem = problem_of(["--config", CONFIG, *words])
        assert problem.startswith(message)
        assert bool(problem) == bool(message)


@pytest.mark.slow
def test_old_names_of_groups_and_values_are_read(tmp_path):
    data = {"class_path": "ImageChats", "init_args": {"batch_size": 8, "train": [{"path": "chats.json"}]}}
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"data": data}))
    config = [*write_config(tmp_path), "--config", str(tmp_path / "data.yaml")]
    assert problem_of([*config, option_argument("data.init_args.tiling", "places")]) == ""
    assert problem_of([*config, option_argument("gradients.bucket_mb", 30)]) == ""
    assert problem_of([*config, option_argument("gradients.bucket_mb", -1)]) != ""


@pytest.mark.slow
def test_no_study_begins_with_a_value_that_fit_refuses(tmp_path, capfd):
    (tmp_path / "s.yaml").write_text(SWEEP)
    with pytest.raises(SystemExit) as end:
        main(["--config", CONFIG, "--sweep", str(tmp_path / "s.yaml"), "--runs", str(tmp_path / "runs")])
    assert end.value.code == 2
    assert "s.yaml:6: data.init_args.batch_size must be at least 1, got 0" in capfd.readouterr().err
    assert not (tmp_path / "runs").exists()
