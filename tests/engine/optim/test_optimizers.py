"""Tests optimizers by name: the state of the 8-bit optimizer, resuming from states, and refusals."""

import logging
from typing import get_args

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, SingleDeviceStrategy

from engine.checkpointing.cpu_snapshot import Snapshot
from engine.optim.optimizer_checks import check_state, check_strategy
from engine.optim.optimizers import OPTIMIZERS, OptimizerName, build_optimizer, state_size
from engine.strategies.fsdp import VerifiedFSDPStrategy
from tests.support.word_model import BETAS, Words


def make(model, name="adamw_8bit"):
    return build_optimizer(name, model.groups(), 1e-3, BETAS, {model.embedding.weight}, {model.linear.weight})


def test_groups_rates_and_what_keeps_32_bits(messages, caplog):
    model = Words()
    with caplog.at_level(logging.INFO, "lockstep"):
        optimizer = make(model)
    assert "adamw_8bit: the state of 8,192 of 14,720 trained parameters in 8 bits; embeddings and" in messages[0]
    assert [(group["lr"], group["weight_decay"], group["name"]) for group in optimizer.param_groups] == [
        (3e-3, 0.1, "matrices"),
        (1e-3, 0.0, "vectors"),
    ]
    model.train_with(optimizer, 2)
    formats = {name: optimizer.state[parameter]["state1"].dtype for name, parameter in model.named_parameters()}
    assert formats == {"embedding.weight": torch.float32, "linear.weight": torch.uint8, "linear.bias": torch.float32}


def test_the_paged_form_is_logged_by_its_name(messages, caplog):
    with caplog.at_level(logging.INFO, "lockstep"):
        make(Words(), "paged_adamw_8bit")
    assert messages[0].startswith("paged_adamw_8bit: the state of 8,192 of 14,720 trained parameters in 8 bits;")


def test_a_step_of_each_optimizer_is_near_that_of_adamw():
    """One step from the same weights is equal where the state has 32 bits, and close where it has 8."""
    ours, plain = Words(), Words()
    ours.train_with(make(ours), 1)
    plain.train_with(make(plain, "adamw"), 1)
    begin = Words()
    for name, weight in plain.named_parameters():
        mine, start = ours.get_parameter(name), begin.get_parameter(name)
        moved = (weight - start).norm()
        assert moved > 0
        assert (mine - weight).norm() < (0.05 if name == "linear.weight" else 1e-4) * moved, name


@pytest.mark.parametrize("name", ["adamw_8bit", "muon"])
@pytest.mark.parametrize("rollback", [False, True])
def test_saved_state_resumes_bit_identically(tmp_path, rollback, name):
    """Another process, or further training, resumes from a state saved from a copy, as the writer thread saves it."""
    through = Words()
    optimizer = make(through, name)
    through.train_with(optimizer, 5)
    copy = Snapshot().copy_to_cpu({"model": through.state_dict(), "optimizer": optimizer.state_dict()})
    through.train_with(optimizer, 5, begin=5)
    torch.save(copy, tmp_path / "state.pt")

    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = Words()
    again = make(resumed, name)
    if rollback:
        resumed.train_with(again, 3, begin=100)
    resumed.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    resumed.train_with(again, 5, begin=5)
    for name, weight in through.named_parameters():
        assert torch.equal(resumed.get_parameter(name), weight), name
        mine, theirs = again.state[resumed.get_parameter(name)], optimizer.state[weight]
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine if torch.is_tensor(mine[key])), name


@pytest.mark.parametrize(
    ("saved", "name"),
    [
        ("adamw", "adamw_8bit"),
        ("adamw_8bit", "adamw"),
        ("adamw_8bit", "adam"),
        ("muon", "adamw"),
        ("muon", "adamw_8bit"),
        ("adamw", "muon"),
        ("adamw_8bit", "muon"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(saved, name):
    model = Words()
    optimizer = make(model, saved)
    check_state(name, optimizer.state_dict())  # the state is empty before the first step
    model.train_with(optimizer, 1)
    check_state(saved, optimizer.state_dict())
    with pytest.raises(ValueError, match=f"is of {saved}.*, and {name} cannot resume from it: use --model.init_a"):
        check_state(name, optimizer.state_dict())


def test_adam_and_adamw_have_the_same_state():
    model = Words()
    optimizer = make(model, "adam")
    model.train_with(optimizer, 1)
    check_state("adamw", optimizer.state_dict())


def test_which_optimizers_are_sharded():
    for name in ("adamw", "muon", "adamw_8bit"):
        check_strategy(name, VerifiedFSDPStrategy())
        check_strategy(name, DDPStrategy())


def test_paged_states_are_refused_with_shards(monkeypatch):
    strategy = VerifiedFSDPStrategy()
    monkeypatch.setattr(VerifiedFSDPStrategy, "root_device", torch.device("cuda"))
    with pytest.raises(ValueError, match="paged_adamw_8bit with trainer.strategy VerifiedFSDPStrategy: .*cpu_offload"):
        check_strategy("paged_adamw_8bit", strategy)


def test_a_loss_scale_is_refused_with_shards():
    """Ranks would disagree about an overflow, which each of them finds in its own shards."""
    strategy = VerifiedFSDPStrategy()
    strategy.precision_plugin = MixedPrecision("16-mixed", "cpu")
    with pytest.raises(ValueError, match="16-mixed with trainer.strategy VerifiedFSDPStrategy: use bf16-mixed"):
        check_strategy("adamw", strategy)


def test_fsdp1_is_refused():
    with pytest.raises(ValueError, match="FSDPStrategy of Lightning, which is FSDP1.*configs/overlays/fsdp.yaml"):
        check_strategy("adamw", FSDPStrategy())


def test_muon_logs_what_it_optimizes(messages, caplog):
    with caplog.at_level(logging.INFO, "lockstep"):
        make(Words(), "muon")
    assert messages == ["muon: 1 matrices with 8,192 of 14,720 trained parameters; AdamW trains the rest"]
    with pytest.raises(ValueError, match="no trained parameter is a hidden matrix.*Use adamw"):
        build_optimizer("muon", Words().groups(), 1e-3, BETAS)


def test_the_table_has_every_name():
    assert [*OPTIMIZERS] == [*get_args(OptimizerName)]


def test_an_unknown_name_lists_the_optimizers():
    with pytest.raises(ValueError, match="'sgd', expected one of adamw, adam, adamw_8bit, paged_adamw_8bit, muon"):
        make(Words(), "sgd")


@pytest.mark.parametrize("name", ["adamw", "adam"])
@pytest.mark.parametrize("offload", [False, True])
def test_a_fused_kernel_computes_the_same_steps(name, offload):
    plain, fused = Words(), Words()
    plain.train_with(make(plain, name), 20)
    optimizer = build_optimizer(name, fused.groups(), 1e-3, BETAS, offload=offload, fused=True)
    fused.train_with(optimizer, 20)
    assert all(group["fused"] for group in optimizer.state_dict()["param_groups"])
    for expected, actual in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_fused_run_is_not_resumed_without_the_kernel():
    states = {}
    for fused in (False, True):
        model = Words()
        optimizer = build_optimizer("adamw", model.groups(), 1e-3, BETAS, fused=fused)
        model.train_with(optimizer, 1)
        states[fused] = optimizer.state_dict()
        check_state("adam", states[fused], fused)
    with pytest.raises(ValueError, match=r"trained with optimizer_fused false: use --model\S+ false, or start"):
        check_state("adamw", states[False], fused=True)
    with pytest.raises(ValueError, match=r"trained with optimizer_fused true: use --model\S+ true, or start"):
        check_state("adamw", states[True])


def test_a_fused_optimizer_is_refused_where_no_kernel_works():
    half = SingleDeviceStrategy("cpu", precision_plugin=MixedPrecision("16-mixed", "cpu"))
    check_strategy("adamw", DDPStrategy(), fused=True)
    for strategy, problem in ((VerifiedFSDPStrategy(), "VerifiedFSDPStrategy"), (half, "16-mixed: use bf16-mixed")):
        with pytest.raises(ValueError, match=f"optimizer_fused true with trainer.*{problem}"):
            check_strategy("adamw", strategy, fused=True)
    with pytest.raises(ValueError, match="optimizer_fused true, but optimizer muon has no fused kernel: use"):
        build_optimizer("muon", Words().groups(), 1e-3, BETAS, fused=True)


def test_two_bytes_of_state_are_quantized_only_in_blocks():
    """An optimizer with a moment in bfloat16 has two bytes, too."""
    assert state_size(4096, 2, in_blocks=False, is_embedding=True) == 2 * 4096
    assert state_size(4096, 2, in_blocks=True, is_embedding=True) == 8 * 4096
    assert 2 * 4096 < state_size(4096, 2, in_blocks=True, is_embedding=False) < 3 * 4096
    assert state_size(4096, 0, in_blocks=True, is_embedding=True) == 0, "the state is in CPU memory"
