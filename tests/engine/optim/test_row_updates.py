"""Compares updates by rows with dense definitions, written row by row, and with torch's AdamW."""

import math

import pytest
import torch
from torch import nn

from engine.optim.optimizers import build_optimizer
from engine.optim.row_optimizer import RowAdam, RowAdamW
from engine.optim.row_table import RowTable

V, C, STEPS, BETAS, EPS = 12, 5, 6, (0.9, 0.98), 1e-8
UPDATES = ["rowwise_adagrad", "lazy_adamw"]


def dense_gradients(touched=4):
    """Gradients [V, C] of each step; all rows but `touched` of them are zero, other rows in each step."""
    generator = torch.Generator().manual_seed(5)
    found = torch.zeros(STEPS, V, C)
    for gradient in found:
        rows = torch.randperm(V, generator=generator)[:touched]
        gradient[rows] = torch.randn(touched, C, generator=generator)
    return found


def start():
    return torch.linspace(-1, 1, V * C).reshape(V, C).clone()


def rate(step):
    return 0.1 / (1 + step)


def reference(update, gradients, decay):
    """The definition, with a loop over all rows and numbers of the whole table."""
    table, total = start().double(), torch.zeros(V, dtype=torch.float64)
    mean, square = torch.zeros(2, V, C, dtype=torch.float64)
    for number, gradient in enumerate(gradients.double()):
        for row in range(V):
            if not gradient[row].any():
                continue
            decayed = table[row] * (1 - rate(number) * decay)
            if update == "rowwise_adagrad":
                total[row] += (gradient[row] ** 2).sum() / C
                table[row] = decayed - rate(number) * gradient[row] / (math.sqrt(total[row]) + EPS)
            else:
                mean[row] = BETAS[0] * mean[row] + (1 - BETAS[0]) * gradient[row]
                square[row] = BETAS[1] * square[row] + (1 - BETAS[1]) * gradient[row] ** 2
                deviation = (square[row] / (1 - BETAS[1] ** (number + 1))).sqrt()
                table[row] = decayed - rate(number) * mean[row] / (1 - BETAS[0] ** (number + 1)) / (deviation + EPS)
    return table.float()


class Trained:
    """A table and a dense vector beside it, which train on given gradients of the table."""

    def __init__(self, update, decay=0.0, name="adamw"):
        self.weight, self.bias = nn.Parameter(start()), nn.Parameter(torch.ones(C))
        self.table = RowTable(self.weight, "items", update, learning_rate=0.1)
        groups = [{"params": [self.bias], "weight_decay": 0.3}, self.table.optimizer_group(decay)]
        self.optimizer = build_optimizer(name, groups, 0.01, BETAS, tables=[self.table])

    def backward(self, gradient):
        self.optimizer.zero_grad()
        read = torch.arange(V)[gradient.any(1) | (torch.arange(V) % 3 == 0)]  # some rows are read in vain
        (self.table.read(read) * gradient[read]).sum().backward()
        (self.bias**2).sum().backward()
        self.table.collect_gradients()

    def train(self, gradients, begin=0):
        for number, gradient in enumerate(gradients, begin):
            self.backward(gradient)
            self.optimizer.param_groups[1]["lr"] = rate(number)
            self.optimizer.step()
        return self


@pytest.mark.parametrize("decay", [0.0, 0.2])
@pytest.mark.parametrize("update", UPDATES)
def test_row_updates_equal_those_of_a_dense_gradient(update, decay):
    gradients = dense_gradients()
    ours = Trained(update, decay).train(gradients)
    torch.testing.assert_close(ours.weight, nn.Parameter(reference(update, gradients, decay)), rtol=1e-5, atol=1e-6)
    assert ours.weight.grad is None
    assert not ours.weight.requires_grad


def test_rows_that_no_step_touches_stay_to_the_bit():
    gradients = dense_gradients()
    gradients[:, :3] = 0
    for update in UPDATES:
        ours = Trained(update, decay=0.5).train(gradients)
        assert torch.equal(ours.weight[:3], start()[:3])
        assert not torch.equal(ours.weight[3:], start()[3:])


def test_if_each_step_touches_each_row_lazy_adamw_is_adamw():
    gradients = dense_gradients(touched=V)
    ours = Trained("lazy_adamw", decay=0.2).train(gradients)
    weight = nn.Parameter(start())
    plain = torch.optim.AdamW([weight], lr=0.1, betas=BETAS, weight_decay=0.2)
    for number, gradient in enumerate(gradients):
        weight.grad, plain.param_groups[0]["lr"] = gradient.clone(), rate(number)
        plain.step()
    torch.testing.assert_close(ours.weight.data, weight.data, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "kind", "plain"), [("adamw", RowAdamW, torch.optim.AdamW), ("adam", RowAdam, torch.optim.Adam)]
)
def test_other_parameters_are_updated_as_by_the_plain_optimizer(name, kind, plain):
    ours = Trained("rowwise_adagrad", name=name)
    assert type(ours.optimizer) is kind
    ours.train(dense_gradients())
    bias = nn.Parameter(torch.ones(C))
    optimizer = plain([{"params": [bias], "weight_decay": 0.3}], lr=0.01, betas=BETAS)
    for _ in range(STEPS):
        bias.grad = 2 * bias.detach()
        optimizer.step()
    assert torch.equal(bias, ours.bias)


@pytest.mark.parametrize("name", ["muon", "adamw_8bit"])
def test_other_optimizers_are_refused(name):
    with pytest.raises(ValueError, match=f"model.init_args.optimizer {name} cannot train items by rows"):
        Trained("lazy_adamw", name=name)


@pytest.mark.parametrize("update", UPDATES)
def test_a_saved_state_resumes_bit_identically(update, tmp_path):
    gradients = dense_gradients()
    through = Trained(update, decay=0.1).train(gradients[:3])
    torch.save(
        {"weight": through.weight, "bias": through.bias, "state": through.optimizer.state_dict()}, tmp_path / "a"
    )
    through.train(gradients[3:], begin=3)
    saved = torch.load(tmp_path / "a", weights_only=True)
    resumed = Trained(update, decay=0.1)
    with torch.no_grad():
        resumed.weight.copy_(saved["weight"])
        resumed.bias.copy_(saved["bias"])
    resumed.optimizer.load_state_dict(saved["state"])
    resumed.train(gradients[3:], begin=3)
    assert torch.equal(resumed.weight, through.weight)
    assert torch.equal(resumed.bias, through.bias)


@pytest.mark.parametrize("update", UPDATES)
def test_a_skipped_step_changes_neither_rows_nor_state(update):
    """A guard skips a step by removing the gradients."""
    gradients = dense_gradients()
    ours = Trained(update).train(gradients[:2])
    before = {key: value.clone() for key, value in ours.optimizer.state[ours.table.touched].items()}
    weight = ours.weight.clone()
    ours.backward(gradients[2] * math.nan)
    assert ours.table.touched.grad.isnan().any()
    ours.table.touched.grad = None
    ours.optimizer.step()
    assert torch.equal(ours.weight, weight)
    state = ours.optimizer.state[ours.table.touched]
    assert all(torch.equal(state[key], value) for key, value in before.items())


def test_the_loss_scaler_unscales_rows_and_skips_a_step_that_overflows():
    gradients = dense_gradients()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    ours = Trained("rowwise_adagrad")
    for number, gradient in enumerate(gradients[:2]):
        ours.optimizer.param_groups[1]["lr"] = rate(number)
        scaler.scale(torch.ones(()))  # creates the scale
        ours.backward(gradient * scaler.get_scale())
        scaler.unscale_(ours.optimizer)
        scaler.step(ours.optimizer)
        scaler.update()
    expected = reference("rowwise_adagrad", gradients[:2], 0.0)
    torch.testing.assert_close(ours.weight.data, expected, rtol=1e-5, atol=1e-6)
    ours.backward(gradients[2] * math.inf)
    scaler.step(ours.optimizer)
    scaler.update()
    torch.testing.assert_close(ours.weight.data, expected, rtol=1e-5, atol=1e-6)
    assert scaler.get_scale() == 512.0


def test_clipping_sees_the_rows():
    gradient = dense_gradients()[0]
    ours = Trained("rowwise_adagrad")
    ours.backward(gradient)
    parameters = [parameter for group in ours.optimizer.param_groups for parameter in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    torch.testing.assert_close(norm, torch.cat([gradient.flatten(), 2 * torch.ones(C)]).norm())
    torch.testing.assert_close(ours.table.touched.grad, gradient[gradient.any(1)] / norm, rtol=1e-5, atol=1e-6)
