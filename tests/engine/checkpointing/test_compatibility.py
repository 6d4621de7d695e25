"""Checkpoints of another model are refused, and their differing weights named."""

import pytest
import torch
from lightning.pytorch import LightningModule

from engine.checkpointing.compatibility import check_model_match, check_weights_only_loadable
from tests.support.fake_trainer import fake_trainer

FIT = {"optimizer_states": [], "lr_schedulers": [], "loops": {}, "global_step": 0, "epoch": 0}


def model(stage, **layers):
    module = LightningModule()
    for name, layer in layers.items():
        module.add_module(name, layer)
    module._trainer = fake_trainer(stage) if stage else None
    return module


def checkpoint(**layers):
    return {"state_dict": model("fit", **layers).state_dict()} | FIT


def test_a_checkpoint_of_the_same_model_matches():
    check_model_match(model("fit", a=torch.nn.Linear(2, 3)), checkpoint(a=torch.nn.Linear(2, 3)))
    check_model_match(model("fit", a=torch.nn.Linear(2, 3)), FIT)


def test_a_checkpoint_of_another_model_is_refused_with_the_differences():
    own, saved = {"a": torch.nn.Linear(2, 3), "b": torch.nn.Linear(1, 1)}, {"a": torch.nn.Linear(4, 3)}
    output = (
        r"another model or config: missing in the checkpoint: b.weight, b.bias; missing in the model: c.0.weight, "
        r"c.0.bias, c.1.weight and 1 more; different shapes: a.weight \(\(3, 4\), in the model \(3, 2\)\)\. Use"
    )
    saved["c"] = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match=output):
        check_model_match(model("test", **own), checkpoint(**saved))
    check_model_match(model(None, **own), checkpoint(**saved))
    lenient = model("test", **own)
    lenient.strict_loading = False
    check_model_match(lenient, {"state_dict": {}})


def test_an_evaluation_of_weights_that_are_no_numbers_names_them_and_the_file():
    broken = checkpoint(a=torch.nn.Linear(2, 3))
    broken["state_dict"]["a.bias"][1] = torch.nan
    own = model("test", a=torch.nn.Linear(2, 3))
    own._trainer.ckpt_path = "x.ckpt"
    with pytest.raises(ValueError, match="^x.ckpt: found NaN in a.bias, expected numbers; use another checkpoint$"):
        check_model_match(own, broken)
    check_model_match(model("fit", a=torch.nn.Linear(2, 3)), broken)  # its guard reports the first step
    own._trainer.ckpt_path = "x.ckpt"
    with pytest.raises(ValueError, match="^x.ckpt was written by another model or config: missing in the model"):
        check_model_match(own, checkpoint(a=torch.nn.Linear(2, 3), b=torch.nn.Linear(1, 1)))


def test_weights_alone_can_be_tested_but_not_resumed():
    weights = {"state_dict": {}}
    check_model_match(model("test"), weights)
    with pytest.raises(ValueError, match="has weights, but no optimizer_states, .*epoch: it can be tested, but"):
        check_model_match(model("fit"), weights)


def test_weights_only_content_is_accepted_and_other_types_refused():
    from collections import Counter, OrderedDict

    check_weights_only_loadable(
        {
            "a": [1, 2.0, None, True, "x", b"y", 1j],
            3: (torch.ones(1), torch.float32, torch.device("cpu")),
            "c": OrderedDict(a={1, 2}),
            "d": Counter("aab"),
            "e": torch.Size([1]),
        }
    )

    class Text(str):
        pass

    refused = (({"a": Text("b")}, r"\['a'\]"), ({Text("b"): 1}, "key 'b'"), ({"a": {"b": (print,)}}, r"\[0\]"))
    for wrong, name in refused:
        with pytest.raises(TypeError, match=name):
            check_weights_only_loadable(wrong)
