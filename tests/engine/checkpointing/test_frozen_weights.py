"""Unchanged frozen weights are omitted from checkpoints, and other weights are refused when one is loaded."""

import pytest
import torch
from torch import nn

from engine.checkpointing.frozen_weights import FROZEN_KEY, frozen_fingerprints, restore_frozen, strip_frozen


class Reader(nn.Module):
    """A frozen language model, with its output tied to its input, and a trained head."""

    def __init__(self, seed=0, layers=2):
        super().__init__()
        torch.manual_seed(seed)
        self.language = nn.Sequential(nn.Embedding(10, 4), *[nn.Linear(4, 4) for _ in range(layers)])
        self.norm = nn.BatchNorm1d(4)
        self.language.requires_grad_(False)
        self.output = nn.Linear(4, 10, bias=False)
        self.output.weight = self.language[0].weight
        torch.manual_seed(99)
        self.head = nn.Linear(4, 2)


def saved(module, built):
    checkpoint = {"state_dict": module.state_dict()}
    strip_frozen(module, checkpoint, built)
    return checkpoint


def test_frozen_weights_are_left_out_and_restored():
    module = Reader()
    checkpoint = saved(module, frozen_fingerprints(module))
    assert {name.split(".")[0] for name in checkpoint["state_dict"]} == {"norm", "head"}
    assert set(checkpoint[FROZEN_KEY]) == {
        name for name in module.state_dict() if name.startswith(("language", "output"))
    }
    assert checkpoint["state_dict"]._metadata
    assert set(module.state_dict()) > set(checkpoint["state_dict"]), "the module itself is as it was"
    other = Reader()
    nn.init.zeros_(other.head.weight)
    restore_frozen(other, checkpoint)
    other.load_state_dict(checkpoint["state_dict"], strict=True)
    for one, second in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(one, second)


def test_other_weights_are_refused():
    module = Reader()
    checkpoint = saved(module, frozen_fingerprints(module))
    with pytest.raises(ValueError, match=r"omits 6 .*They differ here: language.0.weight, .* and 3 more\. Build the "):
        restore_frozen(Reader(seed=1), checkpoint)
    one = Reader()
    one.language[2].bias.data[3] += 1e-7
    with pytest.raises(ValueError, match=r"They differ here: language.2.bias\."):
        restore_frozen(one, checkpoint)
    with pytest.raises(ValueError, match=r"This model lacks language.2.weight, language.2.bias"):
        restore_frozen(Reader(layers=1), checkpoint)
    with pytest.raises(ValueError, match="same precision"):
        restore_frozen(Reader().half(), checkpoint)


def test_missing_and_unexpected_keys_are_still_found():
    checkpoint = saved(Reader(), frozen_fingerprints(Reader()))
    checkpoint["state_dict"].pop("head.bias")
    module = Reader()
    restore_frozen(module, checkpoint)
    with pytest.raises(RuntimeError, match="head.bias"):
        module.load_state_dict(checkpoint["state_dict"], strict=True)


def test_trained_and_frozen_afterwards_is_saved():
    module = Reader()
    built = frozen_fingerprints(module)
    module.language[1].requires_grad_(True)
    with torch.no_grad():
        module.language[1].weight += 1
    module.language[1].requires_grad_(False)
    module.head.requires_grad_(False)  # not frozen when it was built
    checkpoint = saved(module, built)
    assert {"language.1.weight", "head.weight"} <= set(checkpoint["state_dict"])
    assert "language.1.bias" not in checkpoint["state_dict"], "it has not changed"
    other = Reader()
    restore_frozen(other, checkpoint)
    other.load_state_dict(checkpoint["state_dict"], strict=True)
    assert torch.equal(other.language[1].weight, module.language[1].weight)


def test_models_without_frozen_weights_and_older_checkpoints_load():
    module = nn.Linear(2, 2)
    checkpoint = saved(module, frozen_fingerprints(module))
    assert checkpoint[FROZEN_KEY] == {}
    assert set(checkpoint["state_dict"]) == {"weight", "bias"}
    del checkpoint[FROZEN_KEY]
    restore_frozen(module, checkpoint)
    module.load_state_dict(checkpoint["state_dict"], strict=True)
