"""Chats that are longer than the context of the language model are refused by name."""

import numpy as np
import pytest
from transformers import Gemma3TextConfig, GPT2Config, MambaConfig, Qwen2Config

from datamodules.multimodal.batch import Chat, ChatEvaluationBatch
from datamodules.multimodal.text.packing import one_per_row, pad_prompts
from lightning_modules.multimodal.evaluation.context_check import check_context, context_length

PAD = 0


def batch(*lengths, answer=0):
    """A batch of chats whose last `answer` tokens are answers; sample i of it is 10 + i."""
    chats = [Chat(np.full(length, 7), np.zeros(length, np.bool_), 0) for length in lengths]
    prompt_chats = [Chat(chat.tokens[: len(chat.tokens) - answer], chat.supervised, 0) for chat in chats]
    samples = np.arange(len(chats)) + 10
    return ChatEvaluationBatch(one_per_row(chats, samples, PAD), pad_prompts(prompt_chats, samples, PAD), None)


@pytest.mark.parametrize(("lengths", "answer", "tokens"), [((3, 9, 4), 0, 9), ((3, 9, 8), 2, 9), ((9,), 0, 9)])
@pytest.mark.parametrize("positions", [8, 1])
def test_the_first_chat_that_does_not_fit_is_named(lengths, answer, tokens, positions):
    sample, tokens = (11 if len(lengths) > 1 else 10, tokens) if positions == 8 else (10, lengths[0])
    with pytest.raises(ValueError, match=rf"sample {sample} \(a file\): {tokens} tokens, .* has {positions} positions"):
        check_context(batch(*lengths, answer=answer), positions, lambda sample: f"{sample} (a file)")


def test_a_prompt_alone_is_checked():
    with pytest.raises(ValueError, match="sample 11: 9 tokens"):
        check_context((batch(4, 9).prompts,), 8, str)


@pytest.mark.parametrize("positions", [9, 100, None])
def test_chats_that_fit_are_read(positions):
    check_context(batch(9, 3, 9), positions, str)
    check_context(batch(), positions, str)


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        (Qwen2Config(max_position_embeddings=100), 100),
        (GPT2Config(n_positions=70), 70),
        (Qwen2Config(max_position_embeddings=100, rope_scaling={"rope_type": "linear", "factor": 4.0}), 400),
        (
            Qwen2Config(
                max_position_embeddings=100,
                rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 20},
            ),
            100,
        ),
        (Gemma3TextConfig(max_position_embeddings=100), 100),
        (MambaConfig(), None),
    ],
)
def test_the_context_includes_the_scaling_of_rope(config, positions):
    assert context_length(config) == positions
