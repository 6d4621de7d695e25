"""Tests that scores and answers after cached prompts equal those of whole chats."""

import pytest
import torch
from torch.nn import functional as F

from lightning_modules.multimodal.language.prefix_cache import PrefixCache
from tests.lightning_modules.multimodal.conftest import CONFIGS, VOCABULARY
from tests.support.language.uncached_generation import left_padded, without_cache

PROMPTS = (3, 11, 6)
FOLLOWING = ((0, 4), (1, 1), (0, 2), (2, 5), (1, 3), (2, 1), (0, 5))
"""(prompt, length) of each continuation."""


@pytest.fixture
def texts():
    numbers = torch.Generator().manual_seed(4)
    prompts = [torch.randint(0, VOCABULARY, (length,), generator=numbers) for length in PROMPTS]
    followed = [(prompts[row], torch.randint(0, VOCABULARY, (size,), generator=numbers)) for row, size in FOLLOWING]
    return prompts, followed


def padded(followed):
    lengths = torch.tensor([len(text) for _, text in followed])
    tokens = torch.stack([F.pad(text, (0, int(lengths.max()) - len(text)), value=9) for _, text in followed])
    return tokens, lengths, torch.tensor([row for row, _ in FOLLOWING])


def whole(model, prompt, text):
    """Return the score of a single chat in one pass."""
    tokens = torch.cat((prompt, text)).unsqueeze(0)
    states = model.hidden_states(model.embed(tokens), torch.arange(tokens.shape[1]).unsqueeze(0))
    reported = torch.log_softmax(model.logits(states[0, :-1]), -1)
    return float(reported[torch.arange(len(tokens[0]) - 1), tokens[0, 1:]][len(prompt) - 1 :].sum().detach())


def reading(model, prompts):
    tokens, mask = left_padded(prompts)
    return PrefixCache(model, model.embed(tokens), mask)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_scores_equal_those_of_whole_chats(build, texts, kind, attention):
    model, (prompts, followed) = build(kind, attention=attention), texts
    actual = reading(model, prompts).log_likelihoods(*padded(followed))
    expected = torch.tensor([whole(model, *case) for case in followed])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_scores_equal_those_of_chats_that_share_a_row(build, texts):
    model, (prompts, followed) = build(), texts
    tokens = torch.cat([torch.cat(case) for case in followed]).unsqueeze(0)
    positions = torch.cat([torch.arange(len(prompt) + len(text)) for prompt, text in followed]).unsqueeze(0)
    labels = torch.cat([torch.cat((torch.full_like(prompt, -100), text)) for prompt, text in followed]).unsqueeze(0)
    with torch.no_grad():
        terms = model.terms(model.hidden_states(model.embed(tokens), positions), labels)
    expected = -torch.stack([part.sum() for part in terms.split([len(text) for _, text in followed])])
    actual = reading(model, prompts).log_likelihoods(*padded(followed))
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_likelihoods_are_the_same_in_parts_and_repeated(build, texts, monkeypatch):
    """Copies of few positions and scores of few at a time; what was kept of the prompts is as it was."""
    model, (prompts, followed) = build(), texts
    once = reading(model, prompts)
    expected = once.log_likelihoods(*padded(followed))
    monkeypatch.setattr("lightning_modules.multimodal.language.prefix_cache._MAX_COPIED", 33)  # two texts
    monkeypatch.setattr("lightning_modules.multimodal.language.prefix_cache._MAX_SCORED", 3)
    once.generate(torch.tensor([2, 0]), 6, [])
    passes = []
    actual = once.log_likelihoods(*padded(followed), lambda needed: passes.append(needed) or needed + 2)
    assert passes == [4]
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)
    model.train()
    torch.testing.assert_close(once.log_likelihoods(*padded(followed)), expected, atol=1e-6, rtol=1e-6)
    assert model.training


def test_answers_and_likelihoods_equal_those_without_a_cache(build, texts):
    model, (prompts, _) = build(), texts
    free = [without_cache(model, prompt, 8, ()) for prompt in prompts]
    end = free[0][3]
    rows = torch.tensor([2, 0, 1])
    written = reading(model, prompts).generate(rows, 8, [end])
    for row, answer in zip(rows.tolist(), written, strict=True):
        assert answer.tokens == without_cache(model, prompts[row], 8, [end])
        ended = len(answer.tokens) < 8
        text = torch.tensor([*answer.tokens, *([end] if ended else [])])
        assert answer.terms == len(text)
        assert answer.log_likelihood == pytest.approx(whole(model, prompts[row], text), abs=1e-5)
    assert len(written[1].tokens) <= 3
    assert max(len(answer.tokens) for answer in written) == 8


def test_a_prompt_is_read_once(build, texts, monkeypatch):
    model, (prompts, followed) = build(), texts
    widths, decode = [], model.decode
    monkeypatch.setattr(
        model,
        "decode",
        lambda embeddings, *args, **options: widths.append(embeddings.shape[1]) or decode(embeddings, *args, **options),
    )
    once = reading(model, prompts)
    once.log_likelihoods(*padded(followed))
    once.generate(torch.arange(3), 3, [])
    assert widths == [max(PROMPTS), 4, 1, 1]


def test_no_sample_has_no_log_likelihoods(build, texts):
    nothing = torch.zeros(0, dtype=torch.int64)
    log_likelihoods = reading(build(), texts[0]).log_likelihoods(
        nothing.view(0, 1), nothing, nothing, lambda needed: needed + 1
    )
    assert log_likelihoods.shape == (0,)


def test_sliding_windows_keep_what_they_see(build, texts):
    """The caches hold only the last positions; the copies continue the prompts' positions."""
    from lightning_modules.multimodal.language.language_model import LanguageModel
    from lightning_modules.multimodal.language.precision import precision_of
    from lightning_modules.multimodal.language.settings import LanguageModelSettings

    torch.manual_seed(1)
    sliding = {**CONFIGS["qwen2"], "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    model = LanguageModel(LanguageModelSettings(config=sliding), VOCABULARY, precision_of("32-true", has_bf16=True))
    prompts, followed = texts
    actual = reading(model, prompts).log_likelihoods(*padded(followed))
    expected = torch.tensor([whole(model, *case) for case in followed])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision_differs_by_rounding_alone(build, pretrained, texts, precision):
    """Answers differ from those to whole chats by rounding alone; sums are in single precision."""
    model, (prompts, followed) = build(pretrained, precision=precision, trainable="none"), texts
    actual = reading(model, prompts).log_likelihoods(*padded(followed))
    assert actual.dtype == torch.float32
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
        expected = torch.tensor([whole(model, *case) for case in followed])
    torch.testing.assert_close(actual, expected, atol=0.2, rtol=0.02)
    (written,) = reading(model, prompts[:1]).generate(torch.tensor([0]), 5, [])
    assert len(written.tokens) == written.terms == 5
    assert written.log_likelihood < 0
