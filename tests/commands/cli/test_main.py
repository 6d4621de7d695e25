"""Tests the command line: what is accepted or refused, with which message; which run and checkpoint are used."""

import json
import re
import shutil

import pytest
import torch
import yaml

from commands.cli.arguments import add_run_config
from commands.cli.main import main
from tests.conftest import REPOSITORY, TINY
from tests.support.fit_parser import printed_config

QUICKSTART = str(REPOSITORY / "configs/recommender/quickstart.yaml")


def refusal(capsys, *options):
    """Return the message with which the command line refuses the options."""
    with pytest.raises(SystemExit) as end:
        main([*options])
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict", "prepare", "export", "demo", "chat"])
def test_help_names_the_common_options(capsys, command):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for option in ("--config", "--run_name", "--model", "--data", "--trainer.max_epochs", "--best_checkpoint.monitor"):
        assert option in text
    assert f"train.py {command} --config FILE" in text


def test_later_configs_and_the_command_line_override_earlier_configs(capsys, tmp_path):
    """Later files win over earlier ones, the command line over all; classes are known by their short names."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("model: {init_args: {hidden_size: 24, num_blocks: 3, dropout: 0.3}}")
    second.write_text("model: {init_args: {num_blocks: 4, dropout: 0.4}}")
    files = [f"--config={path}" for path in (QUICKSTART, first, second)]
    config = printed_config(
        capsys,
        *files,
        "--model.init_args.dropout",
        "0.5",
        "--trainer.callbacks+",
        "EarlyStopping",
        "--trainer.callbacks.monitor",
        "val/ndcg@10",
    )
    assert config["model"]["class_path"] == "lightning_modules.recommender.module.SequentialRecommender"
    assert config["data"]["class_path"] == "datamodules.recommender.datamodule.InteractionSequences"
    model = config["model"]["init_args"]
    assert (model["hidden_size"], model["num_blocks"], model["dropout"]) == (24, 4, 0.5)
    assert config["trainer"]["callbacks"][0]["class_path"].endswith("EarlyStopping")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--trainer.max_epoch", "2"], ["--trainer.max_epoch", "did you mean --trainer.max_epochs?"]),
        (["--model.init_args.hiden_size", "2"], ["SequentialRecommender", "did you mean hidden_size?"]),
        (["--data.init_args.marketplace.num_user", "2"], ["Marketplace", "did you mean num_users?"]),
        (["--data.init_args.split", "leave_two_out"], ["split", "leave_one_out, temporal", "leave_two_out"]),
        (["--model.init_args.num_blocks", "two"], ["num_blocks", "two"]),
        (["--config", "absent.yaml"], ["absent.yaml"]),
    ],
)
def test_a_wrong_option_is_refused_in_three_lines(capsys, options, words):
    message = refusal(capsys, "fit", "--config", QUICKSTART, *options)
    for word in words:
        assert word in message
    assert len(message.splitlines()) <= 3, "the mistake must not drown in a list of all options"


def test_an_unknown_key_of_a_file_is_refused_by_name(capsys, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("trainer: {max_epoch: 3}")
    message = refusal(capsys, "fit", "--config", QUICKSTART, "--config", str(file))
    assert "max_epoch" in message


def test_an_unknown_command_and_one_without_a_config_are_refused(capsys):
    assert "invalid choice: 'train'" in refusal(capsys, "train")
    output = refusal(capsys, "fit")
    assert re.search(r"required: .*; a config gives them: --config configs/", output)
    assert output.startswith("usage: python train.py fit --config FILE")
    assert "run: python train.py fit --help\n" in output


def test_settings_that_are_a_lone_value(capsys, tmp_path):
    (tmp_path / "lone.yaml").write_text("trainer: 5\n")
    output = refusal(capsys, "fit", *TINY, "--config", str(tmp_path / "lone.yaml"))
    assert f"{tmp_path / 'lone.yaml'}:1: trainer: expected settings, KEY: VALUE; found 5" in output


@pytest.mark.parametrize("command", [["test"], ["fit", "--ckpt_path", "last"]])
def test_a_run_that_is_not_there(lockstep, done, messages, monkeypatch, command):
    monkeypatch.delenv("LOCKSTEP_DEBUG")
    with pytest.raises(SystemExit) as end:
        main([*command, "--run_name", "absent"])
    assert end.value.code == 2
    assert messages[-2] == f"error: runs/absent is not a run with a config.yaml; existing runs: {done.folder.name}"


def test_errors_of_users_are_messages_without_a_traceback(lockstep, messages, monkeypatch):
    """Errors that the user can fix have no traceback, unless it is requested."""
    with pytest.raises(ValueError, match=r"--run_name is a name, not a path; got 'a/b'"):
        lockstep("fit", *TINY, name="a/b")
    monkeypatch.delenv("LOCKSTEP_DEBUG")
    with pytest.raises(SystemExit) as end:
        lockstep("fit", *TINY, name="a/b")
    assert end.value.code == 2
    assert messages[-2].startswith("error: --run_name is a name")


def test_last_of_a_run_that_has_not_begun(lockstep, messages):
    without = ["--trainer.limit_val_batches", "0"]
    run = lockstep("fit", *TINY, *without, "--trainer.max_steps", "2", "--ckpt_path", "last", name="new")
    assert sorted(run.series("train/loss")) == [1, 2]
    assert any("no checkpoint yet: starting at step 0" in line for line in messages)
    assert not any("held-out test data" in line for line in messages), "there is no best checkpoint to test"


def test_an_occupied_run_is_refused(lockstep, done):
    before = {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError, match=r"already holds a run.*--ckpt_path last.*another --run_name"):
        lockstep("fit", *TINY, name=done.folder.name)
    assert {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()} == before


def test_a_changed_config_of_a_resumed_run_takes_effect_and_gets_its_own_file(lockstep, done):
    """An equal config is kept as it is; a different config gets a file of its own and takes effect."""
    options = [*TINY, "--ckpt_path", "last"]
    original = (done.folder / "config.yaml").read_text()
    lockstep("fit", *options, "--trainer.max_epochs", "2", name=done.folder.name)
    assert [path.name for path in done.folder.glob("config*")] == ["config.yaml"]
    changes = ["--model.init_args.learning_rate", "0.5", "--model.init_args.betas", "[0.1, 0.2]"]
    cli = main(["fit", *options, *changes, "--trainer.max_steps", "28", "--run_name", done.folder.name])
    assert (done.folder / "config.yaml").read_text() == original
    changed = yaml.safe_load((done.folder / "config-2.yaml").read_text())
    assert changed["model"]["init_args"]["learning_rate"] == 0.5
    assert changed.get("run_name") is changed.get("ckpt_path") is None, "run again, it is a new run"
    # Neither the module's hyper-parameters nor the optimizer's come from the checkpoint; the progress does.
    group = cli.trainer.optimizers[0].param_groups[0]
    assert (group["betas"], cli.trainer.global_step) == ((0.1, 0.2), 28)
    assert group["lr"] == pytest.approx(0.5 * 29 / 50), "the next step is the 29th of 50 that warm up"
    assert cli.model.learning_rate == 0.5


@pytest.mark.filterwarnings("ignore:The dirpath has changed:UserWarning")
def test_a_checkpoint_file_does_not_change_the_config(lockstep, done):
    """LightningCLI lays the hyper-parameters of a checkpoint file over the command line."""
    last = done.folder / "checkpoints/last.ckpt"
    checkpoint = torch.load(last, weights_only=True)
    checkpoint["hyper_parameters"] = {"hidden_size": 8, "learning_rate": 7.0, "_class_path": "SequentialRecommender"}
    torch.save(checkpoint, last.with_name("foreign.ckpt"))
    options = ["--model.init_args.learning_rate", "0.25", "--ckpt_path", str(last.with_name("foreign.ckpt"))]
    run = lockstep("fit", *TINY, *options, "--trainer.max_steps", "27", name="other")
    written = yaml.safe_load((run.folder / "config.yaml").read_text())["model"]["init_args"]
    assert (written["learning_rate"], written["hidden_size"]) == (0.25, 16)
    assert sorted(run.series("train/loss")) == [27]


def test_evaluation_finds_run_and_checkpoint(lockstep, done, messages):
    """`test --config X`: the newest run of that config, its best checkpoint; `test --run_name X`: that run's config."""
    older = done.folder.with_name("recommender-quickstart-job2")
    shutil.copytree(done.folder, older)
    for path in older.rglob("*.ckpt"):
        torch.save({"saved_at": 0.0}, path)  # written later, but saved earlier; taking this run would be an error
    shutil.copytree(done.folder, done.folder.with_name("recommender-sasrec-newer"))

    cli = main(["test", *TINY])
    assert "using the newest run of this config: recommender-quickstart-job1" in messages
    assert cli.config.test.ckpt_path == "runs/recommender-quickstart-job1/checkpoints/best.ckpt"
    with_config = done.records[-1]
    best = torch.load(done.folder / "checkpoints/best.ckpt", weights_only=True)["global_step"]
    assert with_config["step"] == best

    lockstep("test", name=done.folder.name)
    without_config = done.records[-1]
    del with_config["time"], without_config["time"]
    assert without_config == with_config
    assert 0 < with_config["test/ndcg@10"] < 1


def test_the_weights_that_are_tested_are_the_best_ones(lockstep):
    """The best weights differ from the last here: the first validation of a learning model is its worst."""
    worst = ["--best_checkpoint.monitor", "val/ndcg@10", "--best_checkpoint.mode", "min"]
    run = lockstep("fit", *TINY, *worst, "--trainer.max_epochs", "2", name="a")
    validated = run.series("val/ndcg@10")
    assert min(validated, key=validated.get) < max(validated)

    def tested(*checkpoint):
        lockstep("test", *checkpoint, name="a")
        record = run.records[-1]
        return {name: value for name, value in record.items() if name.startswith("test/")}

    found = tested()
    assert found == tested("--ckpt_path", str(run.folder / "checkpoints/best.ckpt"))
    assert found != tested("--ckpt_path", "last")


def test_a_test_without_a_trained_run_is_refused(done, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no trained run of this config.*recommender-quickstart-TIME"):
        shutil.rmtree(tmp_path / "runs")
        main(["test", *TINY])


def test_the_last_is_evaluated_where_no_validation_has_chosen_a_best(lockstep, messages):
    lockstep("fit", *TINY, "--trainer.max_steps", "1", "--trainer.limit_val_batches", "0", name="short")
    run = lockstep("test", *TINY, name="short")
    assert list(run.series("test/ndcg@10")) == [1]
    assert any("best.ckpt does not exist" in line and "using last.ckpt" in line for line in messages)


def test_commands_after_fit_use_the_config_of_the_run(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/config.yaml").touch()
    expected = ["test", "--config", str(tmp_path / "a/config.yaml"), "--run_name"]
    assert add_run_config(["test", "--run_name", "a"], tmp_path) == [*expected, "a"]
    assert add_run_config(["test", "--run_name=a"], tmp_path) == [*expected[:3], "--run_name=a"]
    overlay = ["fit", "--run_name", "a", "--config", "configs/overlays/gpu.yaml"]
    assert add_run_config(overlay, tmp_path) == ["fit", *expected[1:3], *overlay[1:]], "the overlay comes last"
    ablation = ["test", "--run_name", "a", "--config", str(REPOSITORY / "configs/temporal/ablation/blind.yaml")]
    assert add_run_config(ablation, tmp_path) == ["test", *expected[1:3], *ablation[1:]], "so does the ablation config"
    (tmp_path / "ablation").mkdir()
    (tmp_path / "ablation/whole.yaml").write_text("model:\n  class_path: SequentialRecommender\n")
    (tmp_path / "a/config-2.yaml").touch()
    assert add_run_config(["fit", "--run_name", "a"], tmp_path)[2] == str(tmp_path / "a/config-2.yaml")
    for untouched in (
        ["test", "--config", "x", "--run_name", "a"],
        ["test", "--config", str(tmp_path / "ablation/whole.yaml"), "--run_name", "a"],
        ["test", "--config", str(tmp_path / "ablation/absent.yaml"), "--run_name", "a"],
        ["fit", "--run_name", "b"],
        ["fit"],
        [],
        ["test", "--run_name", "b", "--model", "X"],
        ["test", "--run_name", "b", "--help"],
    ):
        assert add_run_config(untouched, tmp_path) == untouched
    with pytest.raises(FileNotFoundError, match=r"b is not a run with a config.yaml; existing runs: a$"):
        add_run_config(["test", "--run_name", "b"], tmp_path)


def test_a_checkpoint_of_other_data_is_refused(lockstep, done):
    with pytest.raises(ValueError, match=r"60 items.*the data have 50.*Use the data"):
        lockstep("test", *TINY, "--data.init_args.marketplace.num_items", "50", name=done.folder.name)


@pytest.mark.filterwarnings("ignore:You passed .*but AMP with fp16 is not supported on CPU:UserWarning")
def test_the_precision_in_force_is_reported(lockstep, messages):
    """Lightning uses bf16 where the CPU has no fp16; environment.json has the precision in force."""
    run = lockstep("fit", *TINY, "--trainer.precision", "16-mixed", "--trainer.max_steps", "2", name="half")
    assert json.loads((run.folder / "environment.json").read_text())["precision"] == "bf16-mixed"
    assert any("precision bf16-mixed" in line for line in messages)


def test_prepare_converts_once_and_makes_no_run(lockstep, tmp_path):
    """Converts once; without a trainer, a model or a run."""
    data = tmp_path / "shop.csv"
    rows = [f"user-{user},item-{(user + step) % 9},{1_700_000_000 + step}" for user in range(20) for step in range(6)]
    data.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    options = ["--config", str(REPOSITORY / "configs/recommender/your_data.yaml"), "--data.init_args.root", str(data)]

    def files():
        paths = (path for path in tmp_path.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in paths}

    main(["prepare", *options])
    first = files()
    assert any(path.name == "meta.json" for path in first)
    main(["prepare", *options])
    assert files() == first
    assert not (tmp_path / "runs").exists()


def test_a_setting_without_a_value_keeps_none(lockstep):
    """`null` where the default is not: validations follow steps alone, also in a run of the run's config."""
    steps = ["--trainer.val_check_interval", "3", "--trainer.max_steps", "6", "--trainer.max_epochs", "-1"]
    run = lockstep("fit", *TINY, *steps, "--trainer.check_val_every_n_epoch", "null", name="a")
    again = lockstep("fit", "--config", str(run.folder / "config.yaml"), name="b")
    assert list(run.series("val/ndcg@10")) == list(again.series("val/ndcg@10")) == [3, 6]


def test_the_config_of_a_run_runs_it_again(lockstep, done):
    cli = main(["fit", "--config", str(done.folder / "config.yaml"), "--trainer.max_steps", "1"])
    assert re.fullmatch(r"recommender-quickstart-\d{8}-\d{6}", cli.trainer.default_root_dir.split("/")[-1])


def test_last_without_a_run_name_is_refused(lockstep):
    with pytest.raises(ValueError, match="--ckpt_path last: of which run"):
        main(["fit", *TINY, "--ckpt_path", "last"])
