"""A tokenizer that needs no download: byte-level BPE, learnt from a family's own texts.

Byte-level, so that every text comes back as it was, whatever its script. A number is read and written digit by digit,
as with Qwen's tokenizers; its first digit takes the space before it along, which there is a token of its own.
"""

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PLACEHOLDER = "<|modality|>"
PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"

_OFTEN = 1000

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
"""ChatML as OpenAI and Qwen write it, with the marks by which transformers knows what the assistant says."""


def train_tiny_tokenizer(texts: Iterable[str], size: int = 1024) -> "PreTrainedTokenizerFast":
    """The tokenizer of these texts: the same ids on every process and in every run.

    Args:
        texts: what is to be written with few tokens; their order does not matter, how often a word occurs does.
        size: the most tokens, with the 256 bytes and 4 special ones.
    """
    # They are heavy (1 s) and an extra of the installation; only who uses a language model pays.
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, START, END, PLACEHOLDER]
    if size < 256 + len(special):
        raise ValueError(f"a tokenizer of {size} tokens cannot hold 256 bytes and {len(special)} special tokens")
    backend = Tokenizer(models.BPE())
    # A line's end stands alone, so that what precedes a turn's text never melts into it.
    lines = pre_tokenizers.Split("\n", behavior="isolated")
    digits = pre_tokenizers.Split(Regex(r" ?\p{N}"), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([lines, digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    # Every chat has the roles' names in it.
    backend.train_from_iterator(chain(texts, ["system", "user", "assistant"] * _OFTEN), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        extra_special_tokens={"start_token": START, "placeholder_token": PLACEHOLDER},
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )
