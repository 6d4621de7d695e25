"""Compares the predicted memory with models that are built, and with what a step allocates."""

import pytest
import torch

from engine.system.allocation_counter import AllocationCounter
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.memory_estimate import estimate_memory
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.step_trace import Workload
from tests.lightning_modules.multimodal.conftest import CONFIGS, VOCABULARY

PRECISION = precision_of("bf16-mixed", has_bf16=True)
WIDE = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4, "num_attention_heads": 4}
DEEP = {**CONFIGS["qwen2"], **WIDE, "num_hidden_layers": 9}
SEVEN_BILLION = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}


def estimate(tokens=64, config=None, vocabulary=VOCABULARY, precision="bf16-mixed", work=None, **settings):
    chosen = LanguageModelSettings(config=config or {**CONFIGS["qwen2"], **WIDE}, **settings)
    return estimate_memory(chosen, vocabulary, precision_of(precision, True), Workload(tokens, **(work or {})))


@pytest.mark.parametrize(
    "settings",
    [
        {"trainable": "full"},
        {"trainable": "last_n_layers"},
        *({"trainable": "lora", "quantize": kind} for kind in ("none", "nf4", "int8")),
        {"trainable": "lora", "quantize": "nf4", "double_quantize": False, "lora": LoraSettings(use_dora=True)},
    ],
    ids=str,
)
def test_weights_and_gradients_are_those_of_the_model(build, settings):
    estimated = estimate(**settings, config=CONFIGS["llama"])
    model = build("llama", precision="bf16-mixed", **settings)
    buffers = sum(b.nbytes for b in model.buffers())
    assert estimated.weights == sum(p.nbytes for p in model.parameters()) + buffers
    trained = [p for p in model.parameters() if p.requires_grad]
    assert estimated.gradients == sum(p.nbytes for p in trained)
    assert estimated.optimizer == 8 * sum(p.numel() for p in trained)
    assert estimated.total == sum(estimated) - estimated.loading


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize(
    "settings",
    [
        {"trainable": "full"},
        {"trainable": "full", "activation_checkpointing": True},
        {"trainable": "lora"},
        {"trainable": "lora", "quantize": "nf4", "activation_checkpointing": True},
    ],
    ids=str,
)
def test_the_peak_is_that_of_a_step(precision, settings):
    """Layers are extrapolated from 2 and 4 to 9; real tensors of a second step are counted."""
    tokens, chosen = 96, LanguageModelSettings(config=DEEP, **settings)
    row = torch.arange(tokens).unsqueeze(0)
    row, positions = row % VOCABULARY, row % (tokens // 2)  # two packed chats, so attention has a mask
    with AllocationCounter() as counter:
        model = LanguageModel(chosen, VOCABULARY, precision_of(precision, has_bf16=True))
        optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad])
        for _ in range(2):
            counter.mark()
            embeddings = model.embed(row)
            if not embeddings.requires_grad:
                embeddings = embeddings.detach().requires_grad_()
            loss, number = model.loss(model.hidden_states(embeddings, positions), row)
            loss = loss / number
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        counter.mark()
    assert estimate(tokens, DEEP, precision=precision, **settings).total == pytest.approx(counter.peaks[-1], rel=0.05)


def test_layers_are_extrapolated_exactly():
    small, large, found = (estimate(config={**DEEP, "num_hidden_layers": n}, trainable="full") for n in (2, 4, 8))
    for name in ("weights", "gradients", "optimizer", "loading"):
        two, four = getattr(small, name), getattr(large, name)
        assert getattr(found, name) == two + 3 * (four - two)


def test_fsdp_divides_the_model_and_gathers_layers():
    options = {"config": DEEP, "trainable": "full", "activation_checkpointing": True}
    alone, sharded = (estimate(**options, work={"shards": shards}) for shards in (1, 2))
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(sharded, name) == pytest.approx(getattr(alone, name) / 2, rel=0.03)
    offloaded = estimate(**options, work={"shards": 2, "cpu_offload": True})
    assert offloaded[:3] == (0, 0, 0)
    assert 0 < offloaded.total < sharded.total
    assert not torch.distributed.is_initialized()


def test_a_model_of_7b_is_predicted_without_its_memory():
    options = {"activation_checkpointing": True, "trainable": "lora", "config": SEVEN_BILLION, "vocabulary": 151_936}
    sizes = {kind: estimate(2048, quantize=kind, **options) for kind in ("none", "nf4")}
    assert sizes["nf4"].weights / 2**30 == pytest.approx(5.31, abs=0.02)
    assert sizes["none"].weights / 2**30 == pytest.approx(14.33, abs=0.02)
    assert sizes["nf4"].total < 10e9 < 17e9 < sizes["none"].total
    assert sizes["nf4"].loading == sizes["none"].loading


def test_the_estimate_follows_the_size_of_optimizer_states():
    lora = {"trainable": "lora", "lora": LoraSettings(rank=64)}
    plain = estimate(**lora)
    assert estimate(**lora, work={"state_bytes": 0}).optimizer == 0
    small = estimate(**lora, work={"state_bytes": 2, "in_blocks": True}).optimizer
    assert plain.optimizer / 4 <= small < plain.optimizer
    whole = estimate(trainable="full", work={"state_bytes": 2, "in_blocks": True}).optimizer
    assert whole >= 8 * VOCABULARY * WIDE["hidden_size"]  # the state of embeddings stays in 32 bits
    together = estimate(tokens=2, trainable="full", work={"foreach": True})
    assert together.activations == pytest.approx(together.gradients, rel=0.05)  # a copy of the second moment


def test_liger_has_the_logits_of_a_chunk_alone():
    options = {"trainable": "lora", "config": SEVEN_BILLION, "vocabulary": 151_936}
    whole, chunks = (estimate(2048, loss_kernel=kernel, **options) for kernel in ("torch", "liger"))
    assert whole.activations - chunks.activations > 2048 * 151_936 * (2 + 4)  # logits in both formats
    assert whole[:3] == chunks[:3]
