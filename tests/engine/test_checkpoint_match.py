"""A checkpoint of another model is refused by the names of its weights."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule

from engine.checkpoint_match import require_match

FIT = {"optimizer_states": [], "lr_schedulers": [], "loops": {}, "global_step": 0, "epoch": 0}


def model(stage, **layers):
    module = LightningModule()
    for name, layer in layers.items():
        module.add_module(name, layer)
    module._trainer = SimpleNamespace(state=SimpleNamespace(fn=stage)) if stage else None
    return module


def checkpoint(**layers):
    return {"state_dict": model("fit", **layers).state_dict()} | FIT


def test_its_own_checkpoint():
    require_match(model("fit", a=torch.nn.Linear(2, 3)), checkpoint(a=torch.nn.Linear(2, 3)))
    require_match(model("fit", a=torch.nn.Linear(2, 3)), FIT)


def test_another_models():
    own, saved = {"a": torch.nn.Linear(2, 3), "b": torch.nn.Linear(1, 1)}, {"a": torch.nn.Linear(4, 3)}
    said = (
        r"another model or config: it lacks b.weight, b.bias; the model lacks c.0.weight, c.0.bias, c.1.weight and 1 "
        r"more; of another shape are a.weight \(\(3, 4\), in the model \(3, 2\)\)\. Give"
    )
    saved["c"] = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match=said):
        require_match(model("test", **own), checkpoint(**saved))
    require_match(model(None, **own), checkpoint(**saved))
    lenient = model("test", **own)
    lenient.strict_loading = False
    require_match(lenient, {"state_dict": {}})


def test_weights_alone():
    weights = {"state_dict": {}}
    require_match(model("test"), weights)
    with pytest.raises(ValueError, match="has weights, but no optimizer_states, .*epoch: it can be tested, but"):
        require_match(model("fit"), weights)
