"""Tests the advice for an out-of-memory error: the batch, the peak, and the first setting to change, with its value."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from callbacks.health import oom_advice
from callbacks.health.memory_monitor import GrowthDetector, MemoryMonitor
from callbacks.health.oom_advice import describe_tensors
from engine.data.batch_plan import BatchPlan
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer
from tests.support.faults.memory_faults import memory_fault

SHORT = [*TINY, "--trainer.max_steps", "2"]


def fake_module(name="adamw", *, fused=False, offload=False, tables=()):
    return SimpleNamespace(
        supports_grad_accumulation=True,
        memory_saving_options=list,
        optimizer_name=name,
        optimizer_settings=SimpleNamespace(fused=fused, offload=offload),
        row_tables=list(tables),
    )


def fake_data():
    return SimpleNamespace(plan=BatchPlan.derive(world_size=1, batch_size=16), workers=0)


def out_of_memory(lockstep, *options):
    with pytest.raises(RuntimeError, match="allocate memory"):
        lockstep("fit", *SHORT, *options, name="a")


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_in_a_pass_the_micro_batch_is_the_first_thing_to_change(lockstep, messages, phase):
    out_of_memory(lockstep, *memory_fault("ExhaustAt", phase=phase, step=1))
    (text,) = [line for line in messages if "out of memory" in line]
    lines = text.splitlines()
    assert lines[0].startswith("rank 0 failed at step 1 (training): RuntimeError")
    assert lines[1] == f"out of memory in the {phase} pass"
    assert lines[2] == "batch: global batch 16 = 1 rank x 16 samples x 1 accumulation step"
    assert lines[3].startswith("current micro-batch: ")
    assert "int64" in lines[3]
    assert lines[4].startswith("peak: ")
    assert "GiB resident" in lines[4]
    assert " of " in lines[4]
    first = "--data.init_args.micro_batch_size 8"
    assert lines[5] == f"first change: {first} (keeps the global batch of 16, with 2 accumulation steps)"
    assert lines[6].startswith("then: --model.init_args.activation_checkpointing true (")
    assert "auto_micro_batch" not in text, "it is not possible on a CPU"
    messages.clear()
    then = "--model.init_args.activation_checkpointing true"
    lockstep("fit", *SHORT, *first.split(), *then.split(), name="b")
    assert "global batch 16 = 1 rank x 8 samples x 2 accumulation steps" in messages


def test_on_a_gpu_auto_micro_batch_is_advised_unless_it_is_on(monkeypatch):
    monkeypatch.setattr(oom_advice, "describe_peak_memory", lambda device: "70 GiB")
    module = fake_module(name="adam")
    trainer = fake_trainer(device="cuda", precision="bf16-mixed", datamodule=fake_data())
    advice = "or let the program find the micro-batch size: --trainer.auto_micro_batch true"
    text = oom_advice.oom_message(trainer, module, oom_advice.FORWARD, None)
    assert "first change: --data.init_args.micro_batch_size 8" in text
    assert text.endswith(advice)
    trainer.auto_micro_batch = True
    assert advice not in oom_advice.oom_message(trainer, module, oom_advice.FORWARD, None)


@pytest.mark.parametrize(
    ("options", "tensor_parallel", "is_advised"),
    [
        ({}, 1, True),
        ({"name": "adam"}, 1, False),
        ({"fused": True}, 1, False),
        ({"tables": ["items"]}, 1, False),
        ({"offload": True}, 1, False),
        ({}, 2, False),
    ],
)
def test_8_bit_state_is_advised_where_it_is_accepted_and_saves_memory(
    monkeypatch, options, tensor_parallel, is_advised
):
    monkeypatch.setattr(oom_advice, "describe_peak_memory", lambda device: "70 GiB")
    strategy = SimpleNamespace(root_device=torch.device("cuda"), tensor_parallel=tensor_parallel)
    trainer = fake_trainer(strategy=strategy, datamodule=fake_data())
    text = oom_advice.oom_message(trainer, fake_module(**options), oom_advice.STEP, None)
    assert ("--model.init_args.optimizer adamw_8bit" in text) == is_advised


@pytest.mark.parametrize(
    ("options", "is_advised"), [({}, True), ({"tables": ["items"]}, True), ({"fused": True}, False),
                                ({"offload": True}, False)],
)  # fmt: skip
def test_shards_are_advised_where_they_are_accepted(monkeypatch, options, is_advised):
    monkeypatch.setattr(oom_advice, "describe_peak_memory", lambda device: "70 GiB")
    strategy = DDPStrategy(parallel_devices=[torch.device("cuda", 0)], cluster_environment=LightningEnvironment())
    trainer = fake_trainer(ranks=2, strategy=strategy, datamodule=fake_data())
    text = oom_advice.oom_message(trainer, fake_module(**options), oom_advice.STEP, None)
    assert ("--config configs/overlays/fsdp.yaml" in text) == is_advised


def test_in_the_optimizers_step_a_smaller_micro_batch_would_not_help(lockstep, messages):
    out_of_memory(lockstep, *memory_fault("ExhaustAt", phase="step", step=1))
    (text,) = [line for line in messages if "out of memory" in line]
    assert "out of memory in the optimizer's step" in text
    assert "micro_batch_size" not in text


def test_out_of_memory_in_validation_names_its_batch_size(lockstep, messages, monkeypatch):
    from lightning_modules.recommender.module import SequentialRecommender

    monkeypatch.setattr(SequentialRecommender, "validation_step", lambda self, *batch: torch.empty(1 << 58))
    sizes = ["--data.init_args.evaluation_batch_size", "32"]
    out_of_memory(lockstep, *sizes)
    (text,) = [line for line in messages if "out of memory" in line]
    assert "out of memory in the validation\nbatch: at most 32 samples on each rank\n" in text
    assert "first change: --data.init_args.evaluation_batch_size 16 (metrics do not depend on it)" in text


def test_out_of_memory_before_a_run_is_reported(capsys):
    from commands.cli.console_logging import log_to_console
    from commands.cli.error_reporting import report_error

    log_to_console()
    try:
        torch.empty(1 << 58)
    except RuntimeError as error:
        assert report_error(error) == 1
    assert "error: out of memory: " in capsys.readouterr().err


def test_tensors_are_described_by_name_the_largest_first():
    class Part(NamedTuple):
        tokens: Tensor
        labels: Tensor
        name: str = "x"

    batch = [Part(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)), {"image": torch.zeros(4, 4)}]
    assert describe_tensors(batch) == "1.image [4, 4] float32, 0.tokens [2, 3] float32, 0.labels [2] int64"
    assert describe_tensors([torch.zeros(1)] * 10).endswith(" and 2 more")


def test_uneven_memory_is_named(messages):
    gib = 1 << 30
    assert not MemoryMonitor._warn_uneven([4 * gib, 5 * gib])
    assert not MemoryMonitor._warn_uneven([gib // 8, gib])
    assert MemoryMonitor._warn_uneven([4 * gib, 8 * gib])
    assert len(messages) == 1
    assert "rank 1 has 8.0 GiB, rank 0 has 4.0 GiB" in messages[0]


def test_memory_that_grows_is_named_once(lockstep, messages):
    options = ["--trainer.max_steps", "40", "--trainer.limit_val_batches", "0", "--trainer.max_epochs", "-1"]
    run = lockstep("fit", *SHORT, *options, *memory_fault("Leak"), name="a")
    (line,) = [line for line in messages if "memory grows" in line]
    assert line.startswith("memory grows: that of rank 0 has risen in each of the last ")
    assert "configs/overlays/profile.yaml" in line
    memory = run.series("train/memory_gib")
    assert memory[40] > 1.2 * memory[4]


def test_memory_that_rises_now_and_then_does_not_grow():
    def warned_at(sizes):
        growth = GrowthDetector()
        return [growth.update(size) for size in sizes].count(True)

    assert warned_at(range(1000, 2000, 20)) == 50 - 22, "from the twentieth rise after the start on"
    assert warned_at([1000 + 20 * log - 30 * (log % 19 == 0) for log in range(200)]) == 0
    assert warned_at(range(1000, 1190, 2)) == 0, "less than a fifth"
    assert warned_at([1000] * 200) == 0


def test_memory_is_logged_at_every_step(lockstep):
    run = lockstep("fit", *SHORT, name="a")
    memory = run.series("train/memory_gib")
    assert sorted(memory) == [1, 2]
    assert all(0.05 < gib < 50 for gib in memory.values())
