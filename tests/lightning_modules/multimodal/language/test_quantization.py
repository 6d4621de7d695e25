"""Tests quantized weights against bitsandbytes, and quantized layers against plain layers."""

import json
import shutil

import pytest
import torch
from bitsandbytes import functional
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import nn
from torch.nn import functional as F

from engine.determinism.tensor_hash import hash_tensor
from engine.distributed.logical_shape import logical_numel
from lightning_modules.multimodal.checkpoints.base_model_identity import base_identity, check_base
from lightning_modules.multimodal.language.quantization import dequantize, quantize
from lightning_modules.multimodal.language.quantized_linear import (
    QuantizedLinear,
    dequantize_linear_layers,
    quantize_linear_layers,
    quantized_layers,
)
from lightning_modules.multimodal.language.settings import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.multimodal_module import require_whole_weights
from tests.lightning_modules.multimodal.conftest import CONFIGS

SHAPES = [(48, 32), (3, 5), (7, 37), (300, 256)]  # whole blocks, less than one, an odd number of weights, many
KINDS = ["nf4", "int8"]


def matrix(shape, dtype=torch.float32):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    return values.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_nf4_has_the_bits_of_bitsandbytes(shape, dtype):
    weight = matrix(shape, dtype)
    stored = quantize(weight, "nf4", double=False)
    codes, state = functional.quantize_4bit(weight, quant_type="nf4")
    assert torch.equal(stored.codes, codes.view(-1))
    assert torch.equal(stored.scales.view(torch.float32), state.absmax)
    assert torch.equal(dequantize(stored, weight.shape, dtype), functional.dequantize_4bit(codes, state))


@pytest.mark.parametrize("shape", SHAPES)
def test_double_quantization_is_that_of_bitsandbytes(shape):
    weight = matrix(shape)
    stored = quantize(weight, "nf4", double=True)
    codes, state = functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    theirs, ours = functional.dequantize_4bit(codes, state), dequantize(stored, weight.shape, torch.float32)
    # The mean scale may differ in its last bit, which moves a scale by one of 256 steps.
    assert ((ours - theirs).abs() > 1e-6).float().mean() < 0.02
    bits = 8 * sum(tensor.nbytes for tensor in stored if tensor is not None) / weight.numel()
    assert shape != (300, 256) or bits == pytest.approx(4.13, abs=0.01)


def test_int8_rounds_to_the_nearest_step_of_a_row():
    weight = matrix((48, 32))
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    error = dequantize(quantize(weight, "int8", False), weight.shape, torch.float32) - weight
    assert (error.abs() <= step / 2 * 1.0001).all()
    assert (error.abs() > step / 4).any()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_zeros_stay_zeros(kind):
    weight = matrix((4, 64))
    weight[1] = 0
    assert (dequantize(quantize(weight, kind, False), weight.shape, torch.float32)[1] == 0).all()


# Of codes, scales and their scales, for a matrix that integer arithmetic and one exact division compute on any machine.
NF4_HASHES = [-6883220992069883328, 509844879262560716, 4665393782761233494]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_do_not_depend_on_the_number_of_threads(threads):
    weight = ((torch.arange(300 * 256) * 7919 % 10007 - 5003).float() / 5003).view(300, 256)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        stored = quantize(weight, "nf4", double=True)
    finally:
        torch.set_num_threads(before)
    assert [int(hash_tensor(tensor)) for tensor in stored] == NF4_HASHES


# -- layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_quantized_layer_computes_as_a_plain_one_with_its_weights(kind, autocast):
    layer = QuantizedLinear(nn.Linear(64, 24), kind, True, torch.device("cpu"))
    plain, dtype = layer.to_linear(), torch.bfloat16 if autocast else torch.float32
    plain.weight.data = layer.dequantized(dtype).float()
    ours, theirs = (matrix((2, 3, 64)).requires_grad_() for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out, expected = layer(ours), plain(theirs)
    assert out.dtype == expected.dtype == dtype
    assert torch.equal(out, expected)
    (out.float() ** 2).sum().backward()
    gradient = layer.bias.grad.clone()
    layer.bias.grad = None
    (expected.float() ** 2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=0.1 if autocast else 1e-5, rtol=0)
    torch.testing.assert_close(gradient, plain.bias.grad, atol=0.2 if autocast else 1e-5, rtol=0)


def test_gradients_are_those_of_autograd():
    layer = QuantizedLinear(nn.Linear(64, 5), "nf4", True, torch.device("cpu"))
    inputs = matrix((3, 64), torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(layer, (inputs,))
    assert torch.equal(layer(inputs), F.linear(inputs, layer.dequantized(torch.float64), layer.bias.double()))


def test_a_conversion_does_not_round_the_quantized_weight():
    """Lightning converts the whole model under bf16-true."""
    layer = QuantizedLinear(nn.Linear(64, 8), "nf4", True, torch.device("cpu"))
    before = layer.weight
    assert torch.equal(layer.to(torch.bfloat16).weight, before)


def test_layers_are_replaced_by_name_and_back():
    network = nn.Sequential(nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 8), nn.ReLU()))
    assert quantize_linear_layers(network, "nf4", chosen=lambda name, layer: name.startswith("1.")) == 1
    assert [name for name, _ in quantized_layers(network)] == ["1.0"]
    assert sum(map(logical_numel, network.parameters())) == 64 * 64 + 64 + 64 * 8 + 8
    out = network(matrix((2, 64)))
    dequantize_linear_layers(network)
    assert list(quantized_layers(network)) == []
    assert torch.equal(network(matrix((2, 64))), out)


# -- the language model ----------------------------------------------------------------------------------------------


def run(model):
    tokens = torch.arange(3, 14).unsqueeze(0)
    states = model.hidden_states(model.embed(tokens), torch.arange(11).unsqueeze(0))
    return model.loss(states, tokens)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", [{}, {"use_dora": True, "use_rslora": True}])
def test_adapters_beside_quantized_weights_train_as_beside_plain_ones(build, pretrained, kind, variant):
    lora = LoraSettings(rank=4, alpha=8, **variant)
    models = [build(pretrained, trainable="lora", lora=lora, quantize=kind) for _ in range(2)]
    dequantize_linear_layers(models[1].network)
    for model in models:
        torch.manual_seed(7)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.1)
        run(model).backward()
    gradients = [{name: p.grad for name, p in model.named_parameters() if p.requires_grad} for model in models]
    assert gradients[0].keys() == gradients[1].keys()
    assert len(gradients[0]) == (3 if variant else 2) * 7 * 3
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-4, rtol=1e-4)
    layer = models[0].causal_lm.get_decoder().layers[0].self_attn.q_proj
    assert layer.scaling["default"] == (8 / 4**0.5 if variant else 8 / 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_a_quantized_model_trains_its_adapters_in_every_precision(build, pretrained, kind, precision):
    model = build(pretrained, trainable="lora", quantize=kind, precision=precision, activation_checkpointing=True)
    loss = run(model)
    loss.backward()
    assert torch.isfinite(loss)
    assert any(p.grad.abs().sum() > 0 for p in model.parameters() if p.grad is not None)
    assert {p.dtype for p in model.parameters() if p.dtype in (torch.uint8, torch.int8)}
    heads = model.causal_lm.get_input_embeddings(), model.causal_lm.get_output_embeddings()
    assert all(type(head.weight) is nn.Parameter for head in heads)


@pytest.mark.parametrize("trainable", ["full", "last_n_layers"])
def test_weights_in_few_bits_cannot_train(trainable):
    settings = LanguageModelSettings(config=CONFIGS["qwen2"], trainable=trainable, quantize="nf4")
    with pytest.raises(ValueError, match=f"quantize is nf4, but trainable is {trainable}: .*trainable to lora"):
        settings.check()


def test_sharded_strategies_are_refused():
    settings = LanguageModelSettings(path="x", trainable="lora", quantize="int8")
    require_whole_weights(settings, DDPStrategy())
    with pytest.raises(ValueError, match="quantize is int8, but ModelParallelStrategy does not shard .*strategy ddp"):
        require_whole_weights(settings, ModelParallelStrategy())


def test_files_with_quantized_weights_are_refused(build, pretrained, tmp_path):
    shutil.copytree(pretrained, tmp_path / "model")
    config = json.loads((pretrained / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="quantized by bitsandbytes, expected .*language_model.quantize nf4"):
        build(tmp_path / "model", trainable="lora", quantize="nf4")


def test_a_checkpoint_belongs_to_its_quantization(pretrained):
    def identity(**settings):
        return base_identity(LanguageModelSettings(path=str(pretrained), trainable="lora", **settings), "t")

    plain, quantized = identity(), identity(quantize="nf4")
    older = {key: value for key, value in plain.items() if key != "quantize"}
    check_base(older, plain)
    assert "dora" not in plain["lora"]
    assert "use_dora" in identity(lora=LoraSettings(use_dora=True))["lora"]
    with pytest.raises(ValueError, match="quantize nf4 double, here None"):
        check_base(quantized, plain)
    with pytest.raises(ValueError, match="quantize nf4 double, here nf4"):
        check_base(quantized, identity(quantize="nf4", double_quantize=False))
