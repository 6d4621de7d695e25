"""Tests which layers of a language model tensor parallelism divides."""

from dataclasses import replace

import pytest
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.language.tensor_parallel_layers import divided_layers
from tests.support.families.colored_squares import LANGUAGE_MODEL


def model(family: str = "qwen2", tied: bool = True, sizes: dict[str, int] | None = None, **settings) -> LanguageModel:
    config = {**LANGUAGE_MODEL, "model_type": family, "tie_word_embeddings": tied, **(sizes or {})}
    return LanguageModel(LanguageModelSettings(config=config, **settings), 30, precision_of("32-true", False))


def styles(network: LanguageModel) -> dict[str, type]:
    names = {part: name for name, part in network.named_modules()}
    return {names[layer].removeprefix("network."): type(style) for layer, style in divided_layers(network, 2).items()}


def test_pairs_of_layers_are_divided_by_outputs_and_then_by_inputs():
    styles_of_layers = styles(model("qwen3", tied=False))
    assert styles_of_layers["model.layers.0.self_attn.q_proj"] is ColwiseParallel
    assert styles_of_layers["model.layers.1.self_attn.o_proj"] is RowwiseParallel
    assert styles_of_layers["model.layers.1.mlp.down_proj"] is RowwiseParallel
    assert styles_of_layers["model.layers.0.self_attn.k_norm"] is SequenceParallel
    assert styles_of_layers["lm_head"] is ColwiseParallel
    assert len(styles_of_layers) == 2 * 9 + 1
    assert "lm_head" not in styles(model())  # it shares the weight of the embeddings


def test_adapters_are_divided_as_their_layers():
    styles_of_layers = styles(model(trainable="lora"))
    layer = "base_model.model.model.layers.0."
    assert styles_of_layers[f"{layer}self_attn.v_proj.lora_B.default"] is ColwiseParallel
    assert styles_of_layers[f"{layer}mlp.down_proj.lora_A.default"] is RowwiseParallel
    assert styles_of_layers[f"{layer}mlp.down_proj.base_layer"] is RowwiseParallel
    assert f"{layer}mlp.down_proj.lora_B.default" not in styles_of_layers


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"trainable": "lora", "quantize": "int8"}, "language_model.quantize int8. Set quantize none"),
        ({"trainable": "lora", "lora": LoraSettings(use_dora=True)}, "language_model.lora.use_dora true. Set"),
        ({"sizes": {"num_key_value_heads": 1}}, "does not divide the language model's num_key_value_heads, 1"),
        ({"sizes": {"intermediate_size": 49}}, "does not divide the language model's width of a layer, 49"),
    ],
)
def test_models_that_cannot_be_divided_are_refused(options, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        divided_layers(model(**options), 2)
    assert "trainer.strategy.init_args.tensor_parallel is 2" in str(refused.value)


def test_compiled_layers_are_refused():
    network = model()
    network.settings = replace(network.settings, compile=True)
    with pytest.raises(ValueError, match="language_model.compile true. Set compile false"):
        divided_layers(network, 2)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (None, "transformers has no plan that divides qwen2"),
        ({"layers.*.mlp.up_proj": "grouped_gemm"}, "divides layers.0.mlp.up_proj by grouped_gemm, which Lockstep"),
    ],
)
def test_models_without_a_known_plan_are_refused(plan, problem):
    network = model()
    network.causal_lm.get_decoder().config.base_model_tp_plan = plan
    with pytest.raises(ValueError, match=problem):
        divided_layers(network, 2)
