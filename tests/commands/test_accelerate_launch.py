import pytest

from commands.accelerate_launch import unheeded
from commands.processes import Team, launched_team

ALONE = {"ACCELERATE_MIXED_PRECISION": "no"}
SEVERAL = {**ALONE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_one_process():
    assert launched_team(ALONE) is None
    assert launched_team({"MASTER_PORT": "29500"}) is None, "left over in somebody's shell"
    assert launched_team({**ALONE, "MASTER_PORT": "29500"}) is None


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


@pytest.mark.parametrize(("asked", "names"), [("fp16", ["16", 16, "16-mixed"]), ("bf16", ["bf16", "bf16-mixed"])])
def test_every_name_of_a_precision_is_it(asked, names):
    environ = {"ACCELERATE_MIXED_PRECISION": asked}
    assert [unheeded(environ, name) for name in names] == [[]] * len(names)
    assert len(unheeded(environ, "32")) == 1


def test_numbers_and_devices_without_effect():
    usual = {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1", "ACCELERATE_GRADIENT_CLIPPING": "none"}
    assert unheeded({**usual, "ACCELERATE_USE_CPU": "False"}, None, on_accelerator=True) == []
    found = unheeded({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "8", "ACCELERATE_GRADIENT_CLIPPING": "1.0"}, None)
    assert found == [
        "accelerate's gradient accumulation of 8 is not heeded; --data.init_args.micro_batch_size has that effect",
        "accelerate's gradient clipping of 1.0 is not heeded; --trainer.gradient_clip_val has that effect",
    ]
    cpu = {"ACCELERATE_USE_CPU": "True"}
    (found,) = unheeded(cpu, None, on_accelerator=True)
    assert "--trainer.accelerator cpu" in found and unheeded(cpu, None) == []
