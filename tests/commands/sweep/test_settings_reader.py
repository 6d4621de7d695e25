"""Tests SWEEP.yaml: what is accepted, and the file, line and key in the message of a refusal."""

import subprocess
import sys

import pytest
from jsonargparse import ArgumentParser

from commands.cli.deprecated_names import PARSER_MODE, register_aliases
from commands.sweep.main import main
from commands.sweep.settings_reader import read_sweep
from commands.sweep.sweep_settings import Parameter, Pruner, Sampler
from commands.sweep.trial_process import option_argument
from tests.conftest import REPOSITORY

GOOD = """\
metric: val/loss
direction: minimize
trials: 3
sampler: {type: tpe, startup_trials: 2}
pruner: median
parameters:
  model.init_args.learning_rate: {type: float, low: 1e-4, high: 0.1, log: true}
  model.init_args.width:
    type: int
    low: 8
    high: 16
    step: 4
  model.init_args.norm: {type: categorical, values: [group, null]}
"""


def test_a_file_is_read(tmp_path):
    (tmp_path / "s.yaml").write_text(GOOD)
    settings = read_sweep(tmp_path / "s.yaml")
    assert settings[:4] == ("val/loss", "minimize", 3, 1)
    assert (settings.sampler, settings.pruner) == (Sampler("tpe", 2), Pruner("median"))
    rate, width, norm = settings.parameters
    assert rate == Parameter("model.init_args.learning_rate", "float", 1e-4, 0.1, True, line=7)
    assert width == Parameter("model.init_args.width", "int", 8, 16, step=4, line=8)
    assert norm.values == ("group", None)
    assert settings.best([2.0, 1.0]) == 1.0


@pytest.mark.parametrize(
    "before, after, message",
    [
        ("metric: val/loss\n", "", "s.yaml:1: the key metric is missing"),
        ("metric: val/loss", "metric: loss", "s.yaml:1: metric: found loss, expected a metric of the validation"),
        ("minimize", "down", "s.yaml:2: direction: found down, expected maximize or minimize"),
        ("trials: 3", "trials: many", "s.yaml:3: trials: found many, expected an integer from 1"),
        ("trials: 3", "trails: 3", "s.yaml:3: found the key trails, expected one of metric, direction, trials"),
        ("type: tpe", "type: cma", "s.yaml:4: sampler.type: found cma, expected tpe or random"),
        ("pruner: median", "pruner: mean", "s.yaml:5: pruner: found mean, expected median or none"),
        ("low: 1e-4", "low: 0", "s.yaml:7: parameters.model.init_args.learning_rate.low: found 0, expected more"),
        ("high: 0.1", "high: .inf", "learning_rate.high: found inf, expected a number"),
        ("high: 0.1", "high: 1e-5", "learning_rate.high: found 1e-5, expected more than low, which is 1e-4"),
        ("step: 4", "step: 3", "s.yaml:12: parameters.model.init_args.width.step: found 3, expected a divisor"),
        ("type: int", "type: integer", "s.yaml:9: parameters.model.init_args.width.type: found integer, expected"),
        ("    low: 8\n", "", "s.yaml:8: the key parameters.model.init_args.width.low is missing"),
        ("[group, null]", "[group]", "s.yaml:13: parameters.model.init_args.norm.values: found ['group'], expected"),
        ("[group, null]", "[1, 1]", "norm.values: found 1 and 1, expected different values"),
        ("[group, null]", "[0, false]", "s.yaml:13: parameters.model.init_args.norm.values: found 0 and false,"),
        ("[group, null]", "[1, true]", "norm.values: found 1 and true, expected different values"),
        ("[group, null]", "[null, 'null']", 'norm.values: found null and "null", expected different values'),
        ("[group, null]", f"[{', '.join(map(str, range(1001)))}]", "norm.values: found 1,001 values"),
        ("model.init_args.norm", "model.learning_rate", "found model.learning_rate after model.init"),
        ("model.init_args.norm", "model", "s.yaml:13: parameters.model: found model after model.init"),
        (
            "model.init_args.norm: {type: categorical, values: [group, null]}",
            "data.init_args.tiling: {type: categorical, values: [places, tile_positions]}",
            'tiling.values: found "places" and "tile_positions", expected different values',
        ),
        (
            "model.init_args.norm",
            "gradients.static_graph",
            "s.yaml:13: parameters.gradients.static_graph: found gradients.static_graph, which was removed, expected "
            "another setting: DDPStrategy has the argument static_graph",
        ),
        ("model.init_args.norm", "run_name", "s.yaml:13: parameters.run_name: found run_name, expected a key"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path, capsys, before, after, message):
    assert before in GOOD
    (tmp_path / "s.yaml").write_text(GOOD.replace(before, after))
    with pytest.raises(SystemExit) as end:
        main(["--config", "x.yaml", "--sweep", str(tmp_path / "s.yaml"), "--runs", str(tmp_path / "runs")])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_an_old_name_of_a_group_is_the_same_key():
    for old, new in (("gradients.bucket_mb", "ddp.bucket_mb"), ("ddp.bucket_mb", "gradients.bucket_mb")):
        assert Parameter(old, "int").overrides(new)
    assert not Parameter("gradients.bucket_mb", "int").overrides("ddp.compression")


def test_the_parser_of_fit_reads_a_text_as_the_option_has_it():
    register_aliases()
    parser = ArgumentParser(parser_mode=PARSER_MODE)
    parser.add_argument("--text", type=str)
    for value in ("null", "true", "1", "1e-3", "a: b", "# c", "", "'q'"):
        assert parser.parse_args([option_argument("text", value)]).text == value
    parser.add_argument("--number", type=float | int | bool | None)
    for other in (None, True, 1, 0.25):
        found = parser.parse_args([option_argument("number", other)]).number
        assert (found, type(found) is bool) == (other, type(other) is bool)


def test_options_that_the_sweep_sets_are_refused(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(GOOD)
    arguments = ["--config", "x.yaml", "--sweep", str(tmp_path / "s.yaml"), "--runs", str(tmp_path / "runs")]
    for more, message in (
        (["--ckpt_path=last"], "--ckpt_path=last: the sweep sets it for each trial"),
        (["--run_name", "a/b"], "--run_name is a name, not a path"),
        (["--model.init_args.width", "8"], "s.yaml:8: model.init_args.width is also the option --model.init_args"),
        (["--model.width=8"], "s.yaml:8: model.init_args.width is also the option --model.width of"),
    ):
        with pytest.raises(SystemExit) as end:
            main([*arguments, *more])
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["--config", "x.yaml", "--sweep", str(tmp_path / "s.yaml")])
    assert end.value.code == 2
    assert f"--sweep {tmp_path / 's.yaml'}: No such file or directory" in capsys.readouterr().err


def test_ctrl_c_is_a_line(tmp_path, capsys, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("commands.sweep.settings_reader.read_sweep", interrupted)
    with pytest.raises(SystemExit) as end:
        main(["--config", "x.yaml", "--sweep", str(tmp_path / "s.yaml")])
    assert end.value.code == 130
    assert capsys.readouterr().err == "Ctrl-C: ended at once; the same command continues the study\n"


def test_a_worker_has_no_torch_in_its_memory():
    program = (
        "import sys; import commands.sweep.sweep_session; print(sorted({'torch', 'lightning'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
