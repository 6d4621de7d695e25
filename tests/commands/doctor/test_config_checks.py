"""Tests each finding about a config with a real config, folder or file that causes it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands.doctor.config_checks import config_checks
from commands.doctor.launch_plan import plan_launch
from commands.doctor.training.config_errors import config_errors
from tests.conftest import REPOSITORY
from tests.support.families.tiny_linear import TINY_FAMILY

TINY = [*TINY_FAMILY, "--data.init_args.batch_size", "8"]
QUICKSTART = ["--config", str(REPOSITORY / "configs/recommender/quickstart.yaml"), "--trainer.accelerator", "cpu"]


def status(findings):
    return {check: [finding.status for finding in found] for check, found in findings.items()}


def test_all_is_well_and_nothing_is_left_of_the_trial(doctor, tmp_path):
    findings = doctor(*TINY, "--trainer.devices", "2", "--data.init_args.micro_batch_size", "2")
    assert set(map(tuple, status(findings).values())) == {("ok",)}, findings
    assert findings["batch"][0].found == "global batch 8 = 2 ranks x 2 samples x 2 accumulation steps"
    assert findings["data"][0].found == "50 samples to train on"
    assert "2 samples on cpu: loss" in findings["micro batch"][0].found
    assert "4 checkpoints of" in findings["checkpoint folder"][0].found
    assert list(tmp_path.iterdir()) == []


def test_a_warm_up_that_is_longer_than_the_probe_is_no_finding(doctor):
    findings = doctor(*TINY, "--model.schedule", "cosine", "--model.warmup_steps", "50")
    assert status(findings)["micro batch"] == ["ok"], findings


def test_without_a_config_there_is_nothing_to_check():
    assert config_checks(["--trainer.devices", "2"], plan_launch([], {}), {}, Path("runs")) == []


def test_all_errors_of_all_files_are_reported_with_their_lines(doctor, tmp_path):
    (tmp_path / "one.yaml").write_text(
        "model:\n"
        "  init_args:\n"
        "    hidden_sze: 64\n"
        "    attention: time_intervall\n"
        "trainer:\n"
        "  max_epochz: 3\n"
        "  callbacks:\n"
        "    - class_path: EarlyStopping\n"
        "      init_args: {monitor: val/x, patienze: 3}\n"
    )
    (tmp_path / "two.yaml").write_text("trainer:\n  max_steps: ten\ndata: {init_args: {batch_size: 12.5}}\n")
    (tmp_path / "broken.yaml").write_text("model: [1\n")
    files = [word for name in ("one", "two", "broken", "absent") for word in ("--config", f"{name}.yaml")]
    found = [finding.found for finding in doctor(*QUICKSTART, *files)["config"]]
    assert sorted(text.partition(": ")[0] for text in found) == [
        "absent.yaml",
        "broken.yaml:2",
        "one.yaml:3",
        "one.yaml:4",
        "one.yaml:6",
        "one.yaml:9",
        "two.yaml:2",
        "two.yaml:3",
    ]
    text = "\n".join(found)
    kinds = "standard, time_interval, hstu, fuxi, gru"
    assert f"one.yaml:4: model.init_args.attention: expected one of {kinds}; found" in text
    assert "two.yaml:3: data.init_args.batch_size: Expected an int or null, found 12.5" in text
    assert "one.yaml:6: trainer.max_epochz: there is no such setting" in text


def test_a_mistake_on_the_command_line_and_settings_that_do_not_fit_together(doctor):
    (error,) = doctor(*TINY, "--trainer.max_stepz", "3")["config"]
    assert error.found.startswith("command line: unrecognized arguments: --trainer.max_stepz 3; did you mean")
    (error,) = doctor(*QUICKSTART, "--data.init_args.dataset", "files")["config"]
    assert error.found.startswith("data: data.init_args.root: found null, expected the folder")


def test_an_error_that_persists_ends_the_search(tmp_path):
    (tmp_path / "a.yaml").write_text("a: 1\n")

    def parse(texts):
        raise ValueError('Parser key "b": cannot be')

    (error,) = config_errors([tmp_path / "a.yaml"], parse, parse)
    assert error.found == "config: b: cannot be"
    (error,) = config_errors([tmp_path / "a.yaml"], parse, lambda texts: None)
    assert error.found == "command line: b: cannot be"


def test_a_batch_that_does_not_divide(doctor):
    findings = doctor(*TINY, "--trainer.devices", "3")
    (error,) = findings["batch"]
    assert error.status == "fail"
    assert "does not split evenly over 3 ranks" in error.found
    assert "micro batch" not in findings  # the other checks still run
    (warning,) = findings["checkpoint folder"]
    assert warning.status == "warn"
    assert warning.found.endswith("a checkpoint's size is not known")


def test_a_launcher_that_starts_another_number_than_the_config_wants_is_reported(doctor):
    launched = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    (error,) = doctor(*TINY, "--trainer.devices", "2", only=["config", "batch"], **launched)["batch"]
    assert "started 4 process(es) on each of 1 node(s), but the config has trainer.devices 2" in error.found
    (fine,) = doctor(*TINY, only=["config", "batch"], **launched)["batch"]
    assert fine.found == "global batch 8 = 4 ranks x 2 samples x 1 accumulation step"


def test_data_that_are_missing_and_data_that_are_not_prepared(doctor, tmp_path):
    (error,) = doctor(*QUICKSTART, "--data.init_args.dataset", "ml-1m")["data"]
    assert error.status == "fail"
    assert "data/ml-1m does not exist" in error.found
    assert error.remedy.startswith("python train.py prepare --config ")
    findings = doctor(*QUICKSTART)
    (untried,) = findings["micro batch"]
    assert untried.remedy.startswith("python train.py prepare --config ")
    assert (untried.status, untried.found) == ("warn", "not run: data are to be prepared first")
    assert status(findings)["checkpoint folder"] == ["warn"]
    (warning,) = findings["data"]
    assert warning.status == "warn"
    assert warning.found == "data/synthetic must be converted to a store of sequences"
    (own,) = doctor(*QUICKSTART, "--data.init_args.dataset", "files", "--data.init_args.root", "mine.csv")["data"]
    assert own.found == "data.init_args.root: mine.csv does not exist; set it to your file or folder"
    assert own.remedy == "correct the path in the config, or make the file"
    named = ("--data.init_args.dataset", "files", "--data.init_args.root", "prepared/mine.csv")
    (own,) = doctor(*QUICKSTART, *named)["data"]
    assert own.remedy == "correct the path in the config, or make the file"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_data_that_open_and_give_nothing_and_a_step_that_fails(doctor):
    (error,) = doctor(*TINY, "--data.init_args.length", "0")["data"]
    assert error.status == "fail"
    (error,) = doctor(*TINY, "--model", "tests.commands.doctor.broken_models.OutOfMemory")["micro batch"]
    assert "OutOfMemoryError: CUDA out of memory" in error.found
    assert error.remedy == "--data.init_args.micro_batch_size 4  # the global batch stays as it is"
    (error,) = doctor(*TINY, "--model", "tests.commands.doctor.broken_models.NotFinite")["micro batch"]
    assert error.status == "fail"
    assert "loss nan" in error.found


def test_missing_weights_and_tokenizers_are_reported(doctor, tmp_path, monkeypatch):
    config = ["--config", str(REPOSITORY / "configs/temporal/qwen2.5-0.5b.yaml"), "--trainer.accelerator", "cpu"]
    name = ["--model.init_args.language_model.path", "--data.init_args.tokenizer"]
    cache = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    weight_findings = doctor(*config)["weights"]
    assert [finding.status for finding in weight_findings] == ["fail", "fail"]
    assert "Qwen/Qwen2.5-0.5B-Instruct is not in" in weight_findings[0].found
    assert "HF_HUB_OFFLINE is set" in weight_findings[0].found
    assert weight_findings[0].remedy.startswith("hf download Qwen/Qwen2.5-0.5B-Instruct")

    shards, tokenizer = tmp_path / "shards", tmp_path / "tokenizer"
    for folder, files in {shards: ("config.json", "a.safetensors"), tokenizer: ("tokenizer.json",)}.items():
        folder.mkdir()
        for file in files:
            (folder / file).write_text("{}")
    here = [name[0], str(shards), name[1], str(tokenizer)]
    assert status(doctor(*config, *here, only=["config", "weights"]))["weights"] == ["ok", "ok"]
    (shards / "model.safetensors.index.json").write_text('{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}')
    (tokenizer / "tokenizer.json").unlink()
    torn, empty = doctor(*config, *here)["weights"]
    assert (
        "shards has no b.safetensors, named by model.safetensors.index.json; found a.safetensors, config.json"
        in torn.found
    )
    assert "tokenizer has no tokenizer.json; found nothing" in empty.found
    gone = doctor(*config, name[0], "./gone", name[1], str(tokenizer))["weights"]
    assert "there is no directory ./gone" in gone[0].found


@pytest.mark.slow
def test_an_earlier_stage_that_is_not_there(doctor):
    config = str(REPOSITORY / "configs/vision_language/quickstart_sft.yaml")
    findings = doctor("--config", config, "--trainer.accelerator", "cpu")
    assert [f.status for f in findings["weights"]] == ["fail"]
    assert "no trained run" in findings["weights"][0].found
    # With new weights the step takes the same memory. A loaded machine may warn, for example of the wait for data.
    assert status(findings)["micro batch"][-1] == "ok", findings["micro batch"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounting takes Linux and root")
def test_a_folder_that_is_read_only_too_small_or_full(doctor, tmp_path):
    small = tmp_path / "runs"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "lockstep", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip(mounted.stderr.decode())
    wide = ["--model", "tests.commands.doctor.broken_models.Wide"]
    try:
        (error,) = doctor(*TINY, *wide)["checkpoint folder"]
        assert error.status == "fail"
        assert "64.0 MiB free; 4 checkpoints of 24.0 MiB need 96.0 MiB" in error.found
        (small / "others").write_bytes(bytes(64 * 2**20 - 8192))
        (error,) = doctor(*TINY)["checkpoint folder"]
        assert error.status == "fail"
        assert "No space left on device" in error.found
        (small / "others").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        (error,) = doctor(*TINY)["checkpoint folder"]
        assert error.status == "fail"
        assert "Read-only file system" in error.found
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_one_process_of_a_run_measures_the_disk_and_the_others_try_whether_they_can_write(doctor, tmp_path):
    two = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    only = ["config", "checkpoint folder"]
    (first,) = doctor(*TINY, only=only, RANK="0", LOCAL_RANK="0", **two)["checkpoint folder"]
    (second,) = doctor(*TINY, only=only, RANK="1", LOCAL_RANK="1", **two)["checkpoint folder"]
    assert "/s with fsync" in first.found
    assert second.status == "ok"
    assert second.found.startswith(f"{tmp_path} can be written to; ")
    (tmp_path / "runs").write_text("no folder\n")
    (error,) = doctor(*TINY, only=only, RANK="1", LOCAL_RANK="1", **two)["checkpoint folder"]
    assert error.status == "fail"
    assert "cannot be written to: Not a directory" in error.found


def test_a_disk_that_is_slower_than_the_training(tmp_path):
    from commands.doctor.training.checkpoint_storage import checkpoint_findings

    free = shutil.disk_usage(tmp_path).free
    (warning,) = checkpoint_findings(tmp_path / "runs", free // 8, 4, step=1e-6, steps_between=10)
    assert warning.status == "warn"
    assert "10 steps between two take 0.0 s" in warning.found
    assert list(Path(tmp_path).iterdir()) == []
