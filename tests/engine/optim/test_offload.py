"""An optimizer with its state in CPU memory computes the bits of the plain one, and reads its checkpoints."""

import copy

import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy
from torch.optim.lr_scheduler import LambdaLR

from engine.optim.offload import OffloadedOptimizer
from engine.optim.optimizer_checks import check_state, check_strategy
from engine.optim.optimizers import build_optimizer
from engine.optim.row_table import RowTable
from tests.support.word_model import BETAS, Words

NAMES = ["adamw", "adam", "adamw_8bit", "muon"]


def make(model, name, offload):
    hidden, embeddings = {model.linear.weight}, {model.embedding.weight}
    optimizer = build_optimizer(name, model.groups(), 1e-3, BETAS, embeddings, hidden, offload=offload)
    return optimizer, LambdaLR(optimizer, lambda step: 1 / (1 + step))


def train(model, optimizer, scheduler, steps, begin=0):
    for step in range(begin, begin + steps):
        model.train_with(optimizer, 1, begin=step)
        scheduler.step()


def same(first, second):
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_state_are_those_of_the_plain_optimizer(name):
    models = Words(), Words()
    optimizers = [make(model, name, offload) for model, offload in zip(models, (False, True), strict=True)]
    for model, (optimizer, scheduler) in zip(models, optimizers, strict=True):
        train(model, optimizer, scheduler, 4)
    (plain, _), (offloaded, _) = optimizers
    assert isinstance(offloaded, OffloadedOptimizer)
    assert not offloaded.state
    assert all(torch.equal(*pair) for pair in zip(*(model.parameters() for model in models), strict=True))
    assert same(plain.state_dict(), offloaded.state_dict())
    assert [list(group) for group in plain.param_groups] == [list(group) for group in offloaded.param_groups]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_resumes_with_and_without_the_offload(name, first):
    model = Words()
    train(model, *make(model, name, first), 4)
    resumed = Words()
    optimizer, scheduler = make(resumed, name, first)
    train(resumed, optimizer, scheduler, 2)
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    check_state(name, saved[0])
    optimizer, scheduler = make(resumed, name, not first)
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    train(resumed, optimizer, scheduler, 2, begin=2)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), resumed.parameters(), strict=True))


def test_a_parameter_without_a_gradient_stays_and_weights_changed_between_steps_count():
    """As after a rollback, which loads weights into the model."""
    model = Words()
    optimizer, _ = make(model, "adamw", True)
    with torch.no_grad():
        model.linear.weight.fill_(2.0)
    before = model.embedding.weight.clone()
    model.linear(torch.ones(64)).sum().backward()
    optimizer.step()
    assert torch.equal(model.embedding.weight, before)
    assert (model.linear.weight != 2).all()
    assert (model.linear.weight - 2).abs().max() < 0.01


def test_a_closure_computes_the_gradients():
    model = Words()
    optimizer, _ = make(model, "adamw", True)

    def closure():
        loss = model.linear(torch.ones(64)).square().sum()
        loss.backward()
        return loss

    before = closure()
    assert optimizer.step(closure) == before
    assert closure() < before


def test_strategies_and_devices_without_offload_are_refused():
    on_cpu = SingleDeviceStrategy(torch.device("cpu"))
    check_strategy("adamw_8bit", on_cpu, offload=True)
    with pytest.raises(
        ValueError, match="optimizer_offload with .* ModelParallelStrategy: .*init_args.cpu_offload true"
    ):
        check_strategy("adamw", ModelParallelStrategy(), offload=True)
    with pytest.raises(ValueError, match="paged_adamw_8bit needs CUDA, .*device is cpu. Use adamw_8bit"):
        check_strategy("paged_adamw_8bit", on_cpu)


def test_the_paged_optimizer_is_refused_with_offload():
    with pytest.raises(ValueError, match="paged_adamw_8bit with optimizer_offload true: .*Use adamw_8bit with"):
        check_strategy("paged_adamw_8bit", SingleDeviceStrategy(torch.device("cuda", 0)), True)


def test_tables_by_rows_are_refused():
    model = Words()
    table = RowTable(model.embedding.weight, "items", "lazy_adamw")
    with pytest.raises(ValueError, match="optimizer_offload true, but items is trained by rows"):
        build_optimizer("adamw", model.groups(), 1e-3, BETAS, tables=[table], offload=True)
