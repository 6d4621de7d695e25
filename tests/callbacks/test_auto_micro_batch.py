"""The largest micro-batch that fits is found before training, and leaves no trace in it."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.strategies import FSDPStrategy, SingleDeviceStrategy

from callbacks.auto_micro_batch import AutoMicroBatch, _largest
from callbacks.memory_room import memory_room
from engine.batch_plan import BatchPlan
from engine.faults import AgreedFailure
from tests.conftest import REPOSITORY, TINY
from tests.distributed.memory_faults import memory_fault
from tests.distributed.tiny import Numbers, NumberStream
from tests.temporal import TINY_TEMPORAL

SHORT = [*TINY, "--trainer.max_steps", "3", "--model.init_args.dropout", "0.2"]
AUTO = ["--trainer.auto_micro_batch", "true"]


def test_training_is_that_of_the_same_micro_batch_given_by_hand(lockstep, said):
    auto = lockstep("fit", *SHORT, *AUTO, *memory_fault("Hungry", most=5), name="auto")
    tried = [line.split(" (")[0] for line in said if line.startswith("auto_micro_batch")]
    assert tried == [
        "auto_micro_batch: 16 samples do not fit",
        "auto_micro_batch: 8 samples do not fit",
        "auto_micro_batch: 4 samples fit",
    ]
    hand = lockstep("fit", *SHORT, "--data.init_args.micro_batch_size", "4", name="hand")
    assert said.count("global batch 16 = 1 process x 4 samples x 4 accumulation steps") == 2
    assert auto.series("train/loss") == hand.series("train/loss") and len(auto.series("train/loss")) == 3
    found, given = (torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True) for run in (auto, hand))
    assert found["state_dict"].keys() == given["state_dict"].keys()
    assert all(torch.equal(found["state_dict"][key], weight) for key, weight in given["state_dict"].items())
    assert found["loops"] == given["loops"]


DIGITS = [
    "--config", str(REPOSITORY / "configs/image_classifier/digits.yaml"), "--trainer.accelerator", "cpu",
    "--trainer.enable_progress_bar", "false",
]  # fmt: skip


@pytest.mark.parametrize("family", [TINY_TEMPORAL, DIGITS], ids=["temporal", "image_classifier"])
def test_no_family_is_left_a_trace(lockstep, family):
    """Batch norms' statistics, the numbers of mixups and dropout, and the order of the samples are as they would be."""
    auto, plain = (
        torch.load(
            lockstep("fit", *family, "--trainer.max_steps", "2", "--trainer.auto_micro_batch", given, name=given).folder
            / "checkpoints/last.ckpt",
            weights_only=True,
        )["state_dict"]
        for given in ("true", "false")
    )
    assert auto.keys() == plain.keys() and all(torch.equal(auto[key], weight) for key, weight in plain.items())


def test_where_not_even_one_fits_all_end_with_what_else_helps(fit, said):
    with pytest.raises(AgreedFailure) as failure:
        fit(*SHORT, *AUTO, *memory_fault("Hungry", most=0))
    text = str(failure.value)
    assert text.startswith("auto_micro_batch: not even one sample fits\nout of memory in the forward pass\n")
    assert "x 1 samples x 16 accumulation" in text and "micro_batch_size" not in text
    assert "first change: --model.init_args.activation_checkpointing true" in text


def test_what_is_tried_is_half_and_half_of_that_and_divides_the_share():
    plan, sizes = BatchPlan.derive(processes=2, batch_size=60), []
    while plan is not None:
        sizes.append((plan.micro_batch_size, plan.accumulation))
        plan = plan.halved()
    assert sizes == [(30, 1), (15, 2), (6, 5), (3, 10), (1, 30)]


def test_the_samples_are_the_largest_where_the_data_tell():
    class Told(Numbers):
        work = np.array([3, 1, 4, 1, 5, 9, 2, 6])

    data = SimpleNamespace(train_set=Told(8), plan=BatchPlan.derive(processes=1, batch_size=4))
    assert _largest(data, 3).samples.tolist() == [5, 7, 4]
    assert len(_largest(data, 20).samples) == 20


def test_else_those_of_the_first_steps_with_most_numbers():
    class Padded(Numbers):
        def __getitem__(self, draw):
            return (np.zeros((len(draw.indices), 1 + int(draw.indices.max()))),)

    data = SimpleNamespace(train_set=Padded(16), plan=BatchPlan.derive(processes=1, batch_size=8))
    assert _largest(data, 4)[0].shape == (4, 16)
    data.train_set = NumberStream(10)
    assert len(_largest(data, 4).samples) == 4


def test_refused_where_an_attempt_would_say_nothing(said):
    whole = SimpleNamespace(splits_batches=False, memory_savers=lambda: [("--model.init_args.encode_at_once 4", "")])
    single = SimpleNamespace(strategy=SingleDeviceStrategy("cpu"), is_global_zero=True)
    sharded = SimpleNamespace(strategy=FSDPStrategy.__new__(FSDPStrategy), is_global_zero=True)
    with pytest.raises(ValueError, match="nothing to divide; try --model.init_args.encode_at_once 4$"):
        AutoMicroBatch().setup(single, whole, "fit")
    with pytest.raises(ValueError, match="trainer.strategy FSDPStrategy: .* give data.init_args.micro_batch_size"):
        AutoMicroBatch().setup(sharded, whole, "fit")
    for trainer in (single, sharded):
        AutoMicroBatch(if_possible=True).setup(trainer, whole, "fit")
    assert [line.split(": ")[1] for line in said] == ["no micro-batch is looked for"] * 2
    assert "computes a process's share" in said[0] and "FSDPStrategy" in said[1]


ROOM = """
import torch
from callbacks.memory_room import memory_room
from engine import host_memory

host_memory.available_to_all = lambda: 2 * 600 << 20
with memory_room(torch.device("cpu"), 2):
    torch.empty(40 << 20, dtype=torch.uint8)
    try:
        torch.empty(1 << 30, dtype=torch.uint8)
    except RuntimeError as error:
        print("allocate memory" in str(error))
torch.empty(1 << 30, dtype=torch.uint8)
"""


def test_on_linux_the_allocator_says_what_the_kernel_would_kill_for():
    from engine import host_memory

    if not host_memory.status():
        pytest.skip("no /proc/self/status")
    # In a process of its own: one that has run a thousand tests has mapped far more than it holds.
    run = subprocess.run([sys.executable, "-c", ROOM], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout.strip()) == (0, "True"), run.stderr


@pytest.mark.parametrize(("name", "counted"), [("RLIMIT_DATA", "VmData"), ("RLIMIT_AS", "VmSize")])
def test_an_attempt_leaves_a_margin_below_a_ulimit_too(name, counted):
    resource = pytest.importorskip("resource")
    from engine import host_memory

    if not host_memory.status():
        pytest.skip("no /proc/self/status")
    kind, gib = getattr(resource, name), 1 << 30
    before = resource.getrlimit(kind)
    used = host_memory.status()[counted]
    resource.setrlimit(kind, (used + gib, before[1]))
    try:
        assert 0.9 * gib < host_memory.available() <= 1.1 * gib and host_memory.limit().size == used + gib
        with memory_room(torch.device("cpu"), 1):
            assert resource.getrlimit(kind)[0] == pytest.approx(used + 0.9 * gib, abs=gib // 50)
        assert resource.getrlimit(kind) == (used + gib, before[1])
    finally:
        resource.setrlimit(kind, before)
    assert resource.getrlimit(kind) == before
