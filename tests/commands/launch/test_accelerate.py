"""Tests starts under `accelerate launch`: accepted launches, refused ones, and settings without effect."""

import pytest

from commands.launch.accelerate import ignored_options
from commands.launch.launched_processes import LaunchedProcesses, launched_processes

ALONE = {"ACCELERATE_MIXED_PRECISION": "no"}
SEVERAL = {**ALONE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_a_single_process_counts_as_not_launched():
    assert launched_processes(ALONE) is None
    assert launched_processes({"MASTER_PORT": "29500"}) is None, "left over in somebody's shell"
    assert launched_processes({**ALONE, "MASTER_PORT": "29500"}) is None


def test_accelerate_processes_that_would_each_train_alone_are_refused():
    with pytest.raises(ValueError, match="give accelerate launch --multi_gpu"):
        launched_processes(SEVERAL)


def test_accelerate_processes_with_torchruns_variables_are_torchruns():
    torchrun = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "RANK": "1"}
    assert launched_processes({**SEVERAL, **torchrun}) == LaunchedProcesses("torchrun", 2, 1)


def test_children_of_lightnings_launcher_are_no_launched_processes():
    assert launched_processes({**SEVERAL, "LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0"}) is None


def test_settings_of_accelerate_without_effect_are_named():
    fp16 = {"ACCELERATE_MIXED_PRECISION": "fp16"}
    assert ignored_options({}, None) == ignored_options(ALONE, None) == ignored_options(fp16, "16-mixed") == []
    assert ignored_options(fp16, None) == [
        "accelerate's mixed precision fp16 is ignored, trainer.precision is 32-true: --trainer.precision 16-mixed "
        "has that effect"
    ]
    (sharding,) = ignored_options({"ACCELERATE_USE_FSDP": "true"}, "bf16-mixed")
    assert "configs/overlays/fsdp.yaml" in sharding


@pytest.mark.parametrize(("precision", "names"), [("fp16", ["16", 16, "16-mixed"]), ("bf16", ["bf16", "bf16-mixed"])])
def test_every_name_of_a_precision_is_accepted(precision, names):
    environ = {"ACCELERATE_MIXED_PRECISION": precision}
    assert [ignored_options(environ, name) for name in names] == [[]] * len(names)
    assert len(ignored_options(environ, "32")) == 1


def test_options_of_accelerate_without_effect_are_named():
    usual = {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1", "ACCELERATE_GRADIENT_CLIPPING": "none"}
    assert ignored_options({**usual, "ACCELERATE_USE_CPU": "False"}, None, on_accelerator=True) == []
    ignored = ignored_options(
        {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "8", "ACCELERATE_GRADIENT_CLIPPING": "1.0"}, None
    )
    assert ignored == [
        "accelerate's gradient accumulation of 8 is ignored; --data.init_args.micro_batch_size has that effect",
        "accelerate's gradient clipping of 1.0 is ignored; --trainer.gradient_clip_val has that effect",
    ]
    cpu = {"ACCELERATE_USE_CPU": "True"}
    (ignored,) = ignored_options(cpu, None, on_accelerator=True)
    assert "--trainer.accelerator cpu" in ignored
    assert ignored_options(cpu, None) == []
