"""Checks the processes and nodes that a command line requests, also if its config is broken."""

import pytest

from commands.doctor.launch_plan import LaunchPlan, plan_launch


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "base.yaml"
    file.write_text("trainer: {devices: 2, accelerator: cpu}\ndata: {class_path: X, init_args: {num_workers: 3}}\n")
    return str(file)


def test_later_configs_and_then_options_count(config, tmp_path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("trainer: {num_nodes: 2, accelerator: gpu}\n")
    arguments = ["--config", config, f"--config={overlay}", "--trainer.devices", "4"]
    assert plan_launch(["--config", config], {}) == LaunchPlan(2, None, "cpu", 3)
    assert plan_launch(arguments, {}) == LaunchPlan(4, 2, "gpu", 3)
    assert plan_launch([*arguments, "--data.init_args.num_workers=auto"], {}).workers == "auto"


def test_the_last_stated_number_of_threads_counts(config, tmp_path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("threads: 4\n")
    assert plan_launch(["--config", config], {}).threads is None
    assert plan_launch(["--config", config, "--config", str(overlay)], {}).threads == 4
    assert plan_launch(["--config", str(overlay), "--threads", "2"], {}).threads == 2
    assert plan_launch(["--config", str(overlay), "--threads=auto"], {}).threads is None


@pytest.mark.parametrize(
    ("devices", "count"), [("2", 2), ("[0, 3]", 2), ("'0,1,2'", 3), ("auto", None), ("-1", None), ("'5'", 5)]
)
def test_devices_are_counted_as_lightning_counts_them(tmp_path, devices, count):
    (tmp_path / "c.yaml").write_text(f"trainer: {{devices: {devices}}}\n")
    assert plan_launch(["--config", str(tmp_path / "c.yaml")], {}).devices == count


def test_the_launcher_completes_the_config(config):
    torchrun = {"LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "32"}
    assert plan_launch([], torchrun)[:2] == (8, 4)
    assert plan_launch(["--config", config], torchrun)[:2] == (2, 4)
    assert plan_launch([], {"SLURM_NTASKS_PER_NODE": "4", "SLURM_NNODES": "2"})[:2] == (4, 2)


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"SLURM_NTASKS": "1"}, 1),
        ({"SLURM_NTASKS": "8", "SLURM_NNODES": "4"}, 2),
        ({"RANK": "3", "WORLD_SIZE": "4"}, 1),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}, 4),
        ({}, None),
    ],
)
def test_a_launcher_without_a_number_per_node_is_understood(variables, count):
    assert plan_launch([], variables).devices == count


def test_default_plan_has_a_rank_for_each_gpu_and_loaders_by_the_cores(tmp_path):
    threads = {1: 16, 2: 8}.get
    assert LaunchPlan().resolve(8, 64.0, threads) == LaunchPlan(8)
    assert LaunchPlan(accelerator="cpu").resolve(8, 64.0, threads) == LaunchPlan(accelerator="cpu")
    assert LaunchPlan(2, accelerator="gpu", workers="auto").resolve(8, 16.0, threads).loaders() == 7  # of 8 cores each
    assert LaunchPlan(2, accelerator="cpu", workers="auto").resolve(8, 32.0, threads).loaders() == 8
    assert LaunchPlan(1, accelerator="cpu", workers="auto").resolve(8, 16.0, threads).loaders() == 0  # all 16 compute
    assert LaunchPlan(1, workers=3).resolve(0, 16.0, threads) == LaunchPlan(1, workers=3)


def test_a_config_that_is_missing_or_broken_is_the_business_of_another_check(config, tmp_path):
    (tmp_path / "broken.yaml").write_text("trainer: [")
    (tmp_path / "list.yaml").write_text("- 1\n")
    arguments = [word for name in ("broken", "list", "none") for word in ("--config", str(tmp_path / f"{name}.yaml"))]
    assert plan_launch(["--config", config, *arguments], {}) == LaunchPlan(2, None, "cpu", 3)
