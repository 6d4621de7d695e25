"""Tests that an export works without this project: plain transformers and peft compute the same."""

import json

import pytest
import torch
from safetensors.torch import load_file

from datamodules.multimodal.text.tokenizer import load_tokenizer
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.export.parts_export import export
from lightning_modules.multimodal.language.quantized_linear import quantized_layers
from lightning_modules.multimodal.language.settings import LoraSettings

TEXTS = ["what is the trend of cpu?", "it falls from 40 to 12."]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(None, TEXTS)


@pytest.fixture
def write(tokenizer, tmp_path):
    """write(model, merge): trains it a little, exports it, and returns the folder with what the model computes."""

    def written(model, merge=False):
        torch.manual_seed(6)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter += 0.05 * torch.randn_like(parameter)
        model.eval()
        scores = model.logits(model.hidden_states(model.embed(tokens()), positions()))
        answer = model.generate(model.embed(tokens()), tokens() >= 0, 5, [tokenizer.end_of_turn])
        projector = Projector(ProjectorSettings(), 4, model.hidden_size)
        end, networks = tokenizer.end_of_turn, {"projector": projector}
        (tmp_path / "out" / "model").mkdir(parents=True)
        export(tmp_path / "out" / "model", model, tokenizer.tokenizer, end, networks, {"kind": "mlp"}, merge)
        return tmp_path / "out" / "model", scores.detach(), answer, projector

    return written


def tokens():
    return torch.arange(3, 14).unsqueeze(0)


def positions():
    return torch.arange(11).unsqueeze(0)


def check(plain, scores, answer):
    torch.testing.assert_close(plain.eval()(tokens()).logits, scores, atol=1e-5, rtol=0)
    reported = plain.generate(tokens(), max_new_tokens=5, do_sample=False, pad_token_id=0)[0, 11:].tolist()
    assert reported[: len(answer[0])] == answer[0]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("merge", [False, True])
def test_transformers_reproduces_logits_and_tokens_of_an_export(build, write, tokenizer, kind, merge):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, scores, answer, projector = write(build(kind, vocabulary=tokenizer.vocabulary_size), merge)
    check(AutoModelForCausalLM.from_pretrained(folder), scores, answer)
    again = AutoTokenizer.from_pretrained(folder)
    # transformers uses Qwen2's class for any Qwen2, whatever its files name, and that class adds a token.
    assert tokenizer.tokenizer.get_vocab().items() <= again.get_vocab().items()
    for text in (*TEXTS, "What's at t=3.1s?\n\n  100% (never) 你好<|im_end|>\n<|modality|>"):
        assert again.encode(text, add_special_tokens=False) == tokenizer.encode(text)
    assert again.chat_template == tokenizer.tokenizer.chat_template
    weights = load_file(folder / "modality" / "projector.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in projector.state_dict().items())
    assert json.loads((folder / "modality" / "settings.json").read_text()) == {"kind": "mlp"}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of plain peft
def test_peft_reproduces_logits_of_exported_adapters(build, write, pretrained):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder, scores, answer, _ = write(build(pretrained, trainable="lora"))
    assert not list(folder.glob("model*.safetensors"))
    assert not (folder / "README.md").exists()
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(pretrained)
    base = AutoModelForCausalLM.from_pretrained(pretrained, dtype=torch.float32)
    untrained = base.eval()(tokens()).logits
    assert (untrained - scores).abs().max() > 0.01
    check(PeftModel.from_pretrained(base, folder), scores, answer)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of plain peft
@pytest.mark.parametrize("variant", [{}, {"use_dora": True, "use_rslora": True}], ids=["lora", "dora"])
@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_adapters_of_a_quantized_model_are_exported_alone_and_merged(build, write, pretrained, tmp_path, kind, variant):
    """Plain peft loads them; merged, they answer as beside the quantized weights, to rounding in float32."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    settings = {"trainable": "lora", "quantize": kind, "lora": LoraSettings(**variant)}
    folder, scores, answer, _ = write(build(pretrained, **settings))
    merged = build(pretrained, trainable="none", quantize=kind).merge()
    assert not list(quantized_layers(merged))
    check(PeftModel.from_pretrained(merged, folder), scores, answer)
    (tmp_path / "out").rename(tmp_path / "adapters")
    folder, scores, answer, _ = write(build(pretrained, **settings), merge=True)
    check(AutoModelForCausalLM.from_pretrained(folder), scores, answer)


@pytest.mark.parametrize("trainable", ["lora", "last_n_layers", "none"])
def test_transformers_reproduces_logits_of_merged_adapters(build, write, pretrained, trainable):
    from transformers import AutoModelForCausalLM

    folder, scores, answer, _ = write(build(pretrained, trainable=trainable), merge=True)
    check(AutoModelForCausalLM.from_pretrained(folder), scores, answer)
    assert not (folder / "adapter_config.json").exists()


def test_layers_trained_in_fp32_among_bf16_ones_are_exported_in_one_format(build, write, pretrained):
    """All weights have one number format: transformers would read all in the format of the first."""
    from transformers import AutoModelForCausalLM

    model = build(pretrained, trainable="last_n_layers", precision="bf16-mixed")
    folder, scores, _, _ = write(model)
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert {parameter.dtype for parameter in plain.parameters()} == {torch.float32}
    theirs, ours = (network.state_dict() for network in (plain, model.causal_lm))
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_a_frozen_model_is_not_written_again(build, write, pretrained):
    folder, *_ = write(build(pretrained, trainable="none"))
    assert not list(folder.glob("*.safetensors"))
    assert (folder / "tokenizer.json").exists()


def test_tokens_that_the_model_does_not_have_are_reported(build, write, pretrained, caplog):
    write(build(pretrained, trainable="lora", vocabulary=125))
    assert "last 5 tokens are not in" in caplog.text
    assert "--merge" in caplog.text


def test_adapters_without_a_model_are_refused(build, write):
    with pytest.raises(ValueError, match="adapters alone cannot be loaded.*--merge"):
        write(build(trainable="lora"))
