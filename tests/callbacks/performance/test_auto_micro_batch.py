"""Tests the search for the largest micro-batch that fits, before training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.strategies import FSDPStrategy, SingleDeviceStrategy

from callbacks.performance import auto_micro_batch
from callbacks.performance.auto_micro_batch import AutoMicroBatch
from callbacks.performance.trial_samples import first_samples, largest_samples
from engine.data.batch_plan import BatchPlan
from engine.data.errors import BadSampleError
from engine.distributed.errors import CollectiveError
from tests.conftest import REPOSITORY, TINY
from tests.support.families.tiny_linear import Fault, Numbers, NumberStream
from tests.support.families.tiny_temporal import TINY_TEMPORAL
from tests.support.faults.memory_faults import memory_fault

SHORT = [*TINY, "--trainer.max_steps", "3", "--model.init_args.dropout", "0.2"]
AUTO = ["--trainer.auto_micro_batch", "true"]


@pytest.fixture
def like_gpu(monkeypatch):
    """Let trials run on the CPU. `Hungry` raises the error that a GPU's allocator would."""
    monkeypatch.setattr(auto_micro_batch, "reports_oom", lambda device: True)


def test_training_equals_that_with_the_same_micro_batch_set_by_hand(lockstep, messages, like_gpu):
    auto = lockstep("fit", *SHORT, *AUTO, *memory_fault("Hungry", most=5), name="auto")
    tried = [line.split(" (")[0] for line in messages if line.startswith("auto_micro_batch")]
    assert tried == [
        "auto_micro_batch: 16 samples do not fit",
        "auto_micro_batch: 8 samples do not fit",
        "auto_micro_batch: 4 samples fit",
    ]
    hand = lockstep("fit", *SHORT, "--data.init_args.micro_batch_size", "4", name="hand")
    assert messages.count("global batch 16 = 1 rank x 4 samples x 4 accumulation steps") == 2
    assert auto.series("train/loss") == hand.series("train/loss")
    assert len(auto.series("train/loss")) == 3
    found, by_hand = (torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True) for run in (auto, hand))
    assert found["state_dict"].keys() == by_hand["state_dict"].keys()
    assert all(torch.equal(found["state_dict"][key], weight) for key, weight in by_hand["state_dict"].items())
    assert found["loops"] == by_hand["loops"]


def test_the_state_of_the_optimizer_is_reserved_at_its_size():
    layers = torch.nn.ModuleList([torch.nn.Linear(64, 64, bias=False), torch.nn.Embedding(64, 64)])
    trained = [*layers.parameters()]

    def reserved(optimizer, offload=False):
        settings = SimpleNamespace(offload=offload)
        module = SimpleNamespace(optimizer_name=optimizer, optimizer_settings=settings, modules=layers.modules)
        return [tensor.nbytes for tensor in auto_micro_batch._optimizer_state(module, trained)]

    assert reserved("adamw") == [8 * 4096, 8 * 4096]
    assert reserved("adamw_8bit") == [2 * 4096 + 8 * 16, 8 * 4096], "embeddings keep 32 bits"
    assert reserved("adamw", offload=True) == []
    layers.to(torch.bfloat16)
    assert reserved("adamw") == [4 * 4096, 4 * 4096]


DIGITS = [
    "--config",
    str(REPOSITORY / "configs/image_classifier/digits.yaml"),
    "--trainer.accelerator",
    "cpu",
    "--trainer.enable_progress_bar",
    "false",
]


@pytest.mark.slow
@pytest.mark.parametrize("family", [TINY_TEMPORAL, DIGITS], ids=["temporal", "image_classifier"])
def test_trial_passes_leave_no_trace_in_any_family(lockstep, like_gpu, family):
    """Batch norm statistics, random numbers of mixup and dropout, and the order of samples are unchanged."""
    auto, plain = (
        torch.load(
            lockstep("fit", *family, "--trainer.max_steps", "2", "--trainer.auto_micro_batch", given, name=given).folder
            / "checkpoints/last.ckpt",
            weights_only=True,
        )["state_dict"]
        for given in ("true", "false")
    )
    assert auto.keys() == plain.keys()
    assert all(torch.equal(auto[key], weight) for key, weight in plain.items())


@pytest.mark.slow
def test_if_no_micro_batch_fits_the_error_lists_other_options(fit, like_gpu):
    with pytest.raises(CollectiveError) as failure:
        fit(*SHORT, *AUTO, *memory_fault("Hungry", most=0))
    text = str(failure.value)
    assert text.startswith("auto_micro_batch: not even one sample fits\nout of memory in the forward pass\n")
    assert "x 1 samples x 16 accumulation" in text
    assert "micro_batch_size" not in text
    assert "first change: --model.init_args.activation_checkpointing true" in text


def test_candidates_halve_and_divide_the_share():
    plan, sizes = BatchPlan.derive(world_size=2, batch_size=60), []
    while plan is not None:
        sizes.append((plan.micro_batch_size, plan.accumulation))
        plan = plan.halved()
    assert sizes == [(30, 1), (15, 2), (6, 5), (3, 10), (1, 30)]


def test_the_largest_samples_are_chosen_by_their_costs():
    class WithCosts(Numbers):
        sample_costs = np.array([3, 1, 4, 1, 5, 9, 2, 6])

    data = SimpleNamespace(
        train_set=WithCosts(8), plan=BatchPlan.derive(world_size=1, batch_size=4), skips_bad_samples=False
    )
    assert largest_samples(data, 3).samples.tolist() == [5, 7, 4]
    assert len(largest_samples(data, 20).samples) == 20


def test_without_costs_the_largest_of_the_first_micro_batches_is_chosen():
    class Padded(Numbers):
        def __getitem__(self, request):
            return (np.zeros((len(request.indices), 1 + int(request.indices.max()))),)

    plan = BatchPlan.derive(world_size=1, batch_size=8)
    data = SimpleNamespace(train_set=Padded(16), plan=plan, skips_bad_samples=False)
    assert largest_samples(data, 4)[0].shape == (4, 16)
    data.train_set = NumberStream(10)
    assert len(largest_samples(data, 4).samples) == 4


def a_stream(stream, skip_bad=True):
    return SimpleNamespace(train_set=stream, skips_bad_samples=skip_bad)


@pytest.mark.parametrize("read", [first_samples, largest_samples])
def test_a_short_stream_is_repeated_until_the_micro_batch_is_full(read):
    samples = read(a_stream(NumberStream(3)), 8).samples.tolist()
    assert len(samples) == 8
    assert set(samples) == {0, 1, 2}
    with pytest.raises(ValueError, match="NumberStream: epoch 0 has no records; expected at least one"):
        read(a_stream(NumberStream(0)), 8)


@pytest.mark.parametrize("make", [NumberStream, Numbers], ids=["stream", "sized"])
def test_bad_samples_are_skipped_and_the_micro_batch_is_full(make):
    bad = make(6, Fault("bad", 4))
    data = a_stream(bad)
    data.plan = BatchPlan.derive(world_size=1, batch_size=6)
    for read in (first_samples, largest_samples):
        samples = read(data, 6).samples.tolist()
        assert len(samples) == 6
        assert set(samples) == {0, 1, 2, 3, 5}
    data.skips_bad_samples = False
    with pytest.raises(BadSampleError):
        first_samples(data, 6)


def test_auto_micro_batch_is_refused_where_no_micro_batch_can_be_tried(messages):
    divided = SimpleNamespace(supports_grad_accumulation=True)
    options = [("--model.init_args.encode_at_once 4", "")]
    whole = SimpleNamespace(supports_grad_accumulation=False, memory_saving_options=lambda: options)
    single = SimpleNamespace(strategy=SingleDeviceStrategy("cpu"), is_global_zero=True)
    sharded = SimpleNamespace(strategy=FSDPStrategy.__new__(FSDPStrategy), is_global_zero=True)
    cases = [
        (single, whole, "at once, so the share cannot be split; try --model.init_args.encode_at_once 4$"),
        (sharded, whole, "FSDPStrategy shards the weights, .* set data.init_args.micro_batch_size$"),
        (single, divided, "on a CPU the kernel kills a process .* set data.init_args.micro_batch_size$"),
    ]
    for trainer, module, reason in cases:
        with pytest.raises(ValueError, match=f"trainer.auto_micro_batch is not possible: .*{reason}"):
            AutoMicroBatch().setup(trainer, module, "fit")
        AutoMicroBatch(if_possible=True).setup(trainer, module, "fit")
        assert "trainer.auto_micro_batch has no effect: " in messages[-1]
    assert len(messages) == len(cases)
