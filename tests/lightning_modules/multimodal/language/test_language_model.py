"""Tests the language model: document mask, loss at supervised tokens, answers independent of the batch."""

import pytest
import torch
from torch.nn import functional as F

from datamodules.multimodal.batch import IGNORE
from tests.lightning_modules.multimodal.conftest import CONFIGS, VOCABULARY
from tests.support.language.uncached_generation import left_padded, without_cache

LENGTHS = (5, 1, 7)


def packed_row(padding=2):
    """Three chats in a row: tokens, labels (all but each chat's first token) and positions, [1, L]."""
    torch.manual_seed(3)
    tokens = torch.randint(0, VOCABULARY, (1, sum(LENGTHS) + padding))
    positions = torch.cat([torch.arange(length) for length in (*LENGTHS, padding)]).unsqueeze(0)
    labels = tokens.masked_fill(positions == 0, IGNORE)
    labels[:, sum(LENGTHS) :] = IGNORE
    return tokens, labels, positions


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def run(model, tokens, labels, positions):
    """States, loss, count, and gradient of the embeddings."""
    embeddings = model.embed(tokens).detach().requires_grad_()
    states = model.hidden_states(embeddings, positions)
    total, count = model.loss(states, labels)
    (total / sum(LENGTHS)).backward()
    return states.detach(), total.detach(), int(count), embeddings.grad


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_packed_chats_have_the_states_loss_and_gradients_of_single_ones(build, kind, attention):
    """States, loss and gradients. Plain transformers with a cache lets chats attend to each other: 0.4 in a logit."""
    model = build(kind, attention=attention)
    tokens, labels, positions = packed_row()
    states, total, count, gradient = run(model, tokens, labels, positions)
    packed = gradients(model)
    model.zero_grad()
    begins = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    alone = [
        run(model, *(part[:, begin:end] for part in (tokens, labels, positions)))
        for begin, end in zip(begins, begins[1:], strict=False)
    ]
    torch.testing.assert_close(states[:, : sum(LENGTHS)], torch.cat([part[0] for part in alone], 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(total, sum(part[1] for part in alone), atol=1e-5, rtol=1e-5)
    assert count == sum(part[2] for part in alone) == sum(LENGTHS) - len(LENGTHS)
    together = torch.cat([part[3] for part in alone], 1)
    torch.testing.assert_close(gradient[:, : sum(LENGTHS)], together, atol=1e-5, rtol=1e-5)
    assert gradient[:, sum(LENGTHS) :].abs().max() == 0
    for name, expected in gradients(model).items():
        torch.testing.assert_close(packed[name], expected, atol=1e-5, rtol=1e-5)


def test_chats_leak_where_positions_do_not_begin_anew(build):
    """Shows that the test above can fail."""
    model, (tokens, _, positions) = build(), packed_row()
    one_chat = torch.arange(tokens.shape[1]).unsqueeze(0)
    apart, leaking = (model.hidden_states(model.embed(tokens), where) for where in (positions, one_chat))
    assert (apart - leaking).abs()[:, LENGTHS[0] :].max() > 0.1


def test_rows_in_one_line_equal_rows(build):
    """Checks the inputs of flash attention, which separates chats only in a single row."""
    model, (tokens, _, positions) = build(), packed_row()
    tokens, positions = torch.cat([tokens, tokens.flip(1)]), positions.expand(2, -1)
    rows = model.hidden_states(model.embed(tokens), positions)
    object.__setattr__(model.settings, "attention", "flash_attention_2")  # the network itself still has sdpa
    torch.testing.assert_close(model.hidden_states(model.embed(tokens), positions), rows, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", CONFIGS)
def test_loss_equals_the_one_of_transformers(build, kind):
    model, (tokens, labels, _) = build(kind), packed_row()
    positions = torch.arange(tokens.shape[1]).unsqueeze(0)
    total, count = model.loss(model.hidden_states(model.embed(tokens), positions), labels)
    theirs = model.causal_lm(input_ids=tokens, labels=labels, use_cache=False).loss
    torch.testing.assert_close(total / count, theirs, atol=1e-5, rtol=1e-5)


def test_loss_without_supervision_is_zero(build):
    model, (tokens, labels, positions) = build(), packed_row()
    total, count = model.loss(model.hidden_states(model.embed(tokens), positions), torch.full_like(labels, IGNORE))
    assert total.item() == 0
    assert count.item() == 0
    total.backward()


# -- generation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_generation_equals_token_by_token_without_cache(build, kind, attention):
    """Each prompt alone, against all in a batch padded on the left; answers end at different steps."""
    model = build(kind, attention=attention)
    torch.manual_seed(4)
    prompts = [torch.randint(0, VOCABULARY, (length,)) for length in (3, 11, 6)]
    free = [without_cache(model, prompt, 10, ()) for prompt in prompts]
    end_ids = [free[0][4], free[1][7]]
    expected = [without_cache(model, prompt, 10, end_ids) for prompt in prompts]
    tokens, mask = left_padded(prompts)
    assert model.generate(model.embed(tokens), mask, 10, end_ids) == expected
    assert len({len(answer) for answer in expected}) > 1
    for prompt, answer in zip(prompts, expected, strict=True):
        assert model.generate(model.embed(prompt.unsqueeze(0)), *left_padded([prompt])[1:], 10, end_ids) == [answer]


def test_states_of_a_prompt_do_not_know_its_batch(build):
    """The same scores alone and left-padded beside a longer one, at every step."""
    model = build().eval()
    torch.manual_seed(5)
    prompts = [torch.randint(0, VOCABULARY, (length,)) for length in (2, 9)]
    tokens, mask = left_padded(prompts)
    output = model.decode(model.embed(tokens), (mask.cumsum(1) - 1).clamp_min(0), attention_mask=mask)
    alone = model.hidden_states(model.embed(prompts[0].unsqueeze(0)), torch.arange(2).unsqueeze(0))
    torch.testing.assert_close(output.last_hidden_state[:1, -2:], alone, atol=1e-5, rtol=0)


def test_generation_stops_when_all_have_ended(build, monkeypatch):
    model = build()
    prompt = torch.randint(0, VOCABULARY, (1, 4))
    first = model.generate(model.embed(prompt), torch.ones(1, 4, dtype=torch.bool), 1, [])[0]
    steps = []
    decode = model.decode
    monkeypatch.setattr(model, "decode", lambda *args, **options: steps.append(1) or decode(*args, **options))
    arguments = model.embed(prompt), torch.ones(1, 4, dtype=torch.bool), 6, first
    assert model.generate(*arguments) == [[]]
    assert len(steps) == 1
    assert model.generate(*arguments, all_steps=True) == [[]]
    assert len(steps) == 7


def test_tokens_that_the_tokenizer_does_not_have_are_never_generated(build, pretrained):
    model = build(pretrained, vocabulary=10, trainable="none")
    tokens = torch.randint(0, 10, (4, 5))
    answers = model.generate(model.embed(tokens), torch.ones_like(tokens, dtype=torch.bool), 8, [])
    assert max(token for answer in answers for token in answer) < 10


def test_generation_while_training_with_activation_checkpointing_keeps_its_cache(build):
    plain, model = build(), build(activation_checkpointing=True)
    tokens = torch.randint(0, VOCABULARY, (2, 5))
    arguments = torch.ones_like(tokens, dtype=torch.bool), 6, []
    assert model.generate(model.embed(tokens), *arguments) == plain.generate(plain.embed(tokens), *arguments)
    assert model.training
    assert all(part.training for part in model.modules())


# -- activation checkpointing ----------------------------------------------------------------------------------------


def counted(model):
    """Calls of the first layer's attention, counted where a recomputation passes too."""
    calls = []
    attention = model.causal_lm.get_decoder().layers[0].self_attn
    attention.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("trainable", ["none", "lora", "full", "last_n_layers"])
def test_activations_are_computed_again_whatever_trains(build, pretrained, trainable):
    """transformers skips it in evaluation mode, which pretrained models come in, without a word."""
    batch = packed_row()
    plain, model = (build(pretrained, trainable=trainable, activation_checkpointing=on) for on in (False, True))
    calls_of_plain, calls = counted(plain), counted(model)
    expected, actual = run(plain, *batch), run(model, *batch)
    assert (len(calls_of_plain), len(calls)) == (1, 2)
    assert torch.equal(expected[1], actual[1])
    assert torch.equal(expected[3], actual[3])
    assert actual[3].abs().max() > 0, "no gradient reaches the embeddings"
    theirs, ours = gradients(plain), gradients(model)
    assert theirs.keys() == ours.keys()
    assert bool(ours) == (trainable != "none")
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)


def test_scores_are_computed_in_parts_with_activation_checkpointing(build, monkeypatch):
    batch = packed_row()
    expected = run(build(), *batch)
    monkeypatch.setattr("lightning_modules.multimodal.language.language_model._MAX_SCORED", 4)
    actual = run(build(activation_checkpointing=True), *batch)
    torch.testing.assert_close(actual[1:], expected[1:], atol=1e-5, rtol=1e-5)


# -- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainable", ["none", "lora", "full", "last_n_layers"])
@pytest.mark.parametrize("outer", [torch.float16, torch.bfloat16])
def test_the_language_model_computes_in_bf16_under_mixed_precision(build, pretrained, trainable, outer):
    """Also within the fp16 autocast of 16-mixed; gradients are near the gradients in fp32."""
    batch = packed_row()
    expected = run(build(pretrained, trainable=trainable), *batch)
    model = build(pretrained, precision="16-mixed", trainable=trainable)
    formats = set()
    layer = model.causal_lm.get_decoder().layers[-1].mlp.down_proj
    layer.register_forward_hook(lambda _, __, output: formats.add(output.dtype))
    with torch.autocast("cpu", outer):
        actual = run(model, *batch)
    assert formats == {torch.bfloat16}
    assert actual[1].dtype == torch.float32
    torch.testing.assert_close(actual[1], expected[1], rtol=0.02, atol=0)
    assert F.cosine_similarity(actual[3].flatten().float(), expected[3].flatten(), dim=0) > 0.99
