"""Trains the built-in tokenizer: byte-level BPE on the texts of a family, without a download.

Byte-level BPE encodes every text without loss, in any script. A number is encoded digit by digit, as in Qwen's
tokenizers; here its first digit includes the space before it.
"""

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PLACEHOLDER = "<|modality|>"
PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"

_ROLE_REPEATS = 1000
"""Times that each role is among the training texts, so that its name becomes a single token."""

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML as OpenAI and Qwen write it, with the generation marks from which transformers derives the assistant mask."""


def train_tiny_tokenizer(texts: Iterable[str], size: int = 1024) -> "PreTrainedTokenizerFast":
    """Train a tokenizer; deterministic, so the ids are the same on every process and in every run.

    Args:
        texts: training texts. Their order does not matter, the frequency of a word does.
        size: maximum number of tokens, including the 256 bytes and 4 special tokens.

    Raises:
        ValueError: `size` is too small for the bytes and the special tokens.
    """
    # Imported here: an optional dependency, and slow to import (1 s).
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, START, END, PLACEHOLDER]
    if size < 256 + len(special):
        raise ValueError(f"a tokenizer of {size} tokens cannot hold 256 bytes and {len(special)} special tokens")
    backend = Tokenizer(models.BPE())
    # A newline is never merged with the text of a turn after it.
    lines = pre_tokenizers.Split("\n", behavior="isolated")
    digits = pre_tokenizers.Split(Regex(r" ?\p{N}"), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([lines, digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    # All 256 bytes, so that every text can be encoded; sorted, because `alphabet` has no fixed order.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    # Every chat contains the names of the roles.
    backend.train_from_iterator(chain(texts, ["system", "user", "assistant"] * _ROLE_REPEATS), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        extra_special_tokens={"start_token": START, "placeholder_token": PLACEHOLDER},
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )
