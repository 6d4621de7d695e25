"""Tests optimizer groups: a learning rate per part, every trained weight in one group, a correct table."""

import re

import pytest
import torch
from torch import nn

from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.part_parameter_groups import parameter_groups, parameter_table

RATES = {"encoder": 1e-3, "projector": 5e-4, "language_model": 2e-5}


@pytest.fixture
def whole(build, pretrained):
    def made(trainable):
        language_model = build(pretrained, precision="bf16-mixed", trainable=trainable)
        projector = Projector(ProjectorSettings(), 4, language_model.hidden_size)
        parts = {"encoder": nn.Linear(3, 4), "projector": projector, "language_model": language_model}
        return nn.ModuleDict(parts), parts

    return made


@pytest.mark.parametrize("trainable", ["none", "lora", "full", "last_n_layers"])
def test_every_trained_weight_is_in_one_group(whole, trainable):
    module, parts = whole(trainable)
    groups = parameter_groups(parts, RATES, 0.1, module)
    grouped = [parameter for group in groups for parameter in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {parameter for parameter in module.parameters() if parameter.requires_grad}
    for group in groups:
        part, kind = group["name"].split("/")
        assert group["lr"] == RATES[part]
        assert group["weight_decay"] == (0.1 if kind == "matrices" else 0.0)
        assert all((parameter.ndim >= 2) == (kind == "matrices") for parameter in group["params"])
        assert set(group["params"]) <= set(parts[part].parameters())
    assert ("language_model/matrices" in [group["name"] for group in groups]) == (trainable != "none")
    torch.optim.AdamW(groups, lr=1.0)  # refuses groups that share a parameter


@pytest.mark.parametrize("trainable", ["none", "lora", "full", "last_n_layers"])
def test_the_table_equals_requires_grad(whole, trainable):
    module, parts = whole(trainable)
    optimizer = torch.optim.AdamW(parameter_groups(parts, RATES, 0.1, module))
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 10)  # begins with a tenth of the rate
    text = parameter_table(parts, optimizer.param_groups)
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in text.splitlines() if "│" in line]
    assert [row[0] for row in rows] == [*parts, "all"]
    for name, total, trained, formats, rate in rows:
        part = parts.get(name, module)
        assert int(total.replace(",", "")) == sum(p.numel() for p in part.parameters())
        learns = sum(p.numel() for p in part.parameters() if p.requires_grad)
        assert int(trained.replace(",", "")) == learns
        if name in parts:
            assert set(formats.split(", ")) == {str(p.dtype)[6:] for p in part.parameters()}
            assert rate == (f"{RATES[name]:g}" if learns else "-")


def test_a_weight_outside_of_the_parts_is_refused(whole):
    module, parts = whole("none")
    module["extra"] = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="none of the parts encoder, .*extra.weight"):
        parameter_groups(parts, RATES, 0.0, module)


def test_a_part_without_a_rate_is_refused(whole):
    module, parts = whole("none")
    with pytest.raises(ValueError, match="projector is trainable, but has no learning rate"):
        parameter_groups(parts, {"encoder": 1.0}, 0.0)


def test_a_shared_weight_belongs_to_the_first():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    parts = {"first": first, "second": second}
    groups = parameter_groups(parts, {"first": 1.0, "second": 2.0}, 0.0)
    assert [group["name"] for group in groups] == ["first/matrices", "first/vectors", "second/vectors"]
