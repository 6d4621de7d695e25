"""Tests that adapters of each class, also beside 4-bit weights, resume, load in peft and are merged."""

from itertools import product

import pytest
import torch

from tests.lightning_modules.vision_language.pretrained.model_cards import assert_card_answers
from tests.lightning_modules.vision_language.pretrained.plain_loop import answers, evaluated_loss, load
from tests.lightning_modules.vision_language.pretrained.small_runs import (
    FROZEN,
    adapter_options,
    assert_equal_weights,
    losses,
    options,
    predicted,
)
from tests.support.families.tiny_image_text import DIRECTORIES
from tests.tiers import slow

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),  # peft uses it
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # of transformers' PaliGemma
]
FAST = (("qwen2_5_vl", "nf4"), ("gemma3", "nf4"))
"""Cases of the fast tier: with packed chats, and of a class whose chats are not packed."""
UNPACKED = ("paligemma", "gemma3")
CASES = [case if case in FAST else slow(*case) for case in product(DIRECTORIES, ("none", "nf4"))]


@torch.no_grad()
def round_to_four_bits(network):
    """Replace the weights of the decoder's linear layers by what bitsandbytes stores of them."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    for layer in network.get_decoder().modules():
        if isinstance(layer, torch.nn.Linear):
            stored = quantize_4bit(layer.weight, quant_type="nf4", compress_statistics=True)
            layer.weight.copy_(dequantize_4bit(*stored))


@pytest.mark.parametrize(("name", "quantize"), CASES)
def test_adapters_resume_load_in_peft_and_are_merged(
    name, quantize, directory, chats, lockstep, tmp_path, logged_warnings, monkeypatch, capsys
):
    """The third step's loss is that of peft, and of the merged model, with what two steps have trained."""
    from peft import PeftModel

    folder = directory(name)
    settings = [*adapter_options(folder, chats, quantize), "--data.init_args.packed_length", "96"]
    two, three = ("--trainer.max_steps", "2"), ("--trainer.max_steps", "3")
    lockstep("fit", *settings, *two, name="a")
    assert sum("are not packed" in line for line in logged_warnings) == (name in UNPACKED)
    run = lockstep("predict", "--ckpt_path", "last", name="a")
    here = predicted(run)
    lockstep("export", "--ckpt_path", "last", "--merge", "--output", str(tmp_path / "whole"), name="a")
    lockstep("export", "--ckpt_path", "last", "--output", str(tmp_path / "adapters"), name="a")
    through = lockstep("fit", *settings, *three, name="b")
    expected = losses(through)
    resumed = lockstep("fit", *settings, *three, "--ckpt_path", "last", name="a")
    assert losses(resumed) == expected
    assert_equal_weights(resumed, through)

    model, processor = load(folder)
    base = type(model)
    if quantize == "none":
        assert_card_answers(tmp_path / "adapters", chats, processor, here[-1], monkeypatch, capsys)
    else:
        round_to_four_bits(model)
    assert evaluated_loss(model, processor, chats) == pytest.approx(expected[0], rel=1e-5)
    adapted = PeftModel.from_pretrained(model, tmp_path / "adapters")
    assert any("lora_B" in name and weight.any() for name, weight in adapted.named_parameters())
    assert evaluated_loss(adapted, processor, chats) == pytest.approx(expected[2], rel=1e-5)
    assert answers(adapted, processor, chats) == here

    merged, processor = load(tmp_path / "whole")
    assert type(merged) is base
    assert evaluated_loss(merged, processor, chats) == pytest.approx(expected[2], rel=1e-5)
    assert answers(merged, processor, chats) == here


@pytest.mark.slow
def test_adapters_over_weights_of_an_earlier_stage_are_exported_merged_only(directory, chats, lockstep, tmp_path):
    first = options(directory("llava"), chats, vision_tower=FROZEN, language_model=FROZEN)
    lockstep("fit", *first, "--trainer.max_steps", "1", name="first")
    parts = {"vision_tower": FROZEN, "connector": FROZEN, "language_model": {"trainable": "lora"}}
    second = options(directory("llava"), chats, init_from="first", **parts)
    lockstep("fit", *second, "--trainer.max_steps", "2", name="second")
    run = lockstep("predict", name="second")
    with pytest.raises(ValueError, match="an earlier stage trained weights of .*: export the whole model with --merge"):
        lockstep("export", "--output", str(tmp_path / "adapters"), name="second")
    lockstep("export", "--merge", "--output", str(tmp_path / "whole"), name="second")
    assert answers(*load(tmp_path / "whole"), chats) == predicted(run)
