"""A compiled step has the loss and gradients of the plain step, for any batch, in one graph."""

import pytest
import torch

from lightning_modules.recommender.compiled_step.compiled_loss import CompiledTrainingLoss
from lightning_modules.recommender.compiled_step.fixed_shape import fixed_shape
from lightning_modules.recommender.features.training_vectors import TrainingVectors
from lightning_modules.recommender.losses.next_item import NextItemLoss
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.training_loss import TrainingLoss
from tests.conftest import TINY
from tests.support.faults.number_faults import number_fault
from tests.support.recommender.bare_module import LONGEST, V, make_batch

# Dynamo reads every tensor's gradient and filters the warnings, but pytest resets the filters.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]

ROWS = 12  # of a micro-batch
TOLERANCE = 1e-5
"""Largest difference of a loss or gradient, absolute and relative: sums have another order."""


def losses(loss, **network):
    """Return the plain and the compiled loss, each with its encoder of equal weights."""
    made = []
    for kind, rows in ((TrainingLoss, ()), (CompiledTrainingLoss, (lambda: ROWS,))):
        torch.manual_seed(0)
        encoder = SequenceEncoder(
            V, LONGEST, ArchitectureSettings(hidden_size=8, num_heads=2, time_span=16, dropout=0.3, **network)
        ).train()
        vectors = TrainingVectors(encoder, None, [], True, 0.0)
        made.append(kind(encoder, vectors, NextItemLoss(loss, 0.75), True, *rows))
    return made


def outcome(loss, batch, step):
    """Loss, number of terms, and gradients by name."""
    loss.encoder.zero_grad()
    found = loss(batch, step)
    found.total.backward()
    return found.total.detach(), found.real, {name: p.grad for name, p in loss.encoder.named_parameters()}


def check(loss, negatives=0, shared=False, **network):
    plain, compiled = losses(loss, **network)
    parts = make_batch(4, negatives, shared)
    # Other lengths, another number of parts, and an incomplete batch as the last of an epoch.
    for step, batch in enumerate([parts, make_batch(1, negatives, shared), parts[1:2], parts[:3]]):
        expected, actual = outcome(plain, batch, step), outcome(compiled, batch, step)
        torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "negatives", "shared", "network"),
    [
        ("cross_entropy", 0, False, {"attention": "time_interval"}),
        ("cross_entropy", 0, False, {"residual": "gated", "feed_forward": "swiglu", "tie_output": False}),
        ("sampled_softmax", 3, False, {"attention": "hstu", "feed_forward": "none"}),
        ("gbce", 3, True, {"attention": "time_interval", "time_buckets": "log", "request_time": True}),
        ("bce", 1, False, {"attention": "fuxi", "norm": "post"}),
    ],
)
def test_any_batch_has_the_loss_and_gradients_of_the_plain_step(graphs, loss, negatives, shared, network):
    check(loss, negatives, shared, **network)
    assert len(graphs) == 1, "not one for each length or number of rows"


@pytest.mark.slow
@pytest.mark.timeout(900)  # a C++ compiler takes minutes where others run
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler about torch
def test_the_code_that_torch_writes_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    check("cross_entropy", num_blocks=1, feed_forward="none")
    assert list(tmp_path.rglob("*.so")), "nothing was compiled"


def test_the_first_step_takes_no_number_of_torchs_generator():
    """Masks of a GPU come from it, and a resumed run begins with any step."""
    _, compiled = losses("cross_entropy")
    before = torch.get_rng_state()
    with torch.no_grad():
        compiled._prepare(fixed_shape(make_batch(4), ROWS, LONGEST), None)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_gradients_have_memory_of_their_own(graphs):
    """A CUDA graph writes every step's into the same memory, while those of a step accumulate."""
    _, compiled = losses("cross_entropy")
    returned = {}
    for name, weight in compiled.encoder.named_parameters():
        weight.register_hook(lambda gradient, name=name: returned.update({name: gradient}))
    _, _, gradients = outcome(compiled, make_batch(4), 0)
    assert returned.keys() == gradients.keys()
    assert [name for name in returned if returned[name].data_ptr() == gradients[name].data_ptr()] == []


OPTIONS = [
    *TINY,
    "--model.init_args.dropout",
    "0.2",
    "--data.init_args.micro_batch_size",
    "4",
    "--threads",
    "1",
    "--trainer.limit_val_batches",
    "0",
    "--trainer.max_epochs",
    "-1",
]
COMPILED = ["--model.init_args.compile_step", "true"]


@pytest.mark.slow
def test_a_training_has_the_losses_of_the_plain_one_and_resumes_to_the_bit(graphs, lockstep):
    """Four micro-batches a step, of which the 13th is incomplete; the guard skips the third."""
    nan = [*number_fault("NonFiniteLoss", steps="[2]"), "--finite_guard.policy", "skip"]
    steps = ["--trainer.max_steps", "16"]
    plain = lockstep("fit", *OPTIONS, *nan, *steps, name="plain").series("train/loss")
    through = lockstep("fit", *OPTIONS, *COMPILED, *nan, *steps, name="through").series("train/loss")
    assert len(graphs) == 1
    assert list(plain) == list(through) == list(range(1, 17))
    torch.testing.assert_close(list(through.values()), list(plain.values()), atol=1e-4, rtol=1e-4, equal_nan=True)
    lockstep("fit", *OPTIONS, *COMPILED, *nan, "--trainer.max_steps", "7", name="stopped")
    resumed = lockstep("fit", *OPTIONS, *COMPILED, *nan, *steps, "--ckpt_path", "last", name="stopped")
    assert repr(resumed.series("train/loss")) == repr(through)
