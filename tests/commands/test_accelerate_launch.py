import pytest

from commands.accelerate_launch import unheeded
from commands.processes import Team, launched_team

ALONE = {"ACCELERATE_MIXED_PRECISION": "no"}
SEVERAL = {**ALONE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_one_process():
    assert launched_team(ALONE) is None
    assert launched_team({"MASTER_PORT": "29500"}) is None, "left over in somebody's shell"


def test_several_that_would_each_train_alone():
    with pytest.raises(ValueError, match="give accelerate launch --multi_gpu"):
        launched_team(SEVERAL)


def test_several_as_torchrun_starts_them():
    torchrun = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "RANK": "1"}
    assert launched_team({**SEVERAL, **torchrun}) == Team("torchrun", 2, 1)


def test_children_of_lightnings_launcher():
    assert launched_team({**SEVERAL, "LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0"}) is None


def test_settings_without_effect():
    fp16 = {"ACCELERATE_MIXED_PRECISION": "fp16"}
    assert unheeded({}, None) == unheeded(ALONE, None) == unheeded(fp16, "16-mixed") == []
    assert unheeded(fp16, None) == [
        "accelerate's mixed precision fp16 is not heeded, trainer.precision is 32-true: --trainer.precision 16-mixed "
        "has that effect"
    ]
    (sharding,) = unheeded({"ACCELERATE_USE_FSDP": "true"}, "bf16-mixed")
    assert "configs/overlays/fsdp.yaml" in sharding
