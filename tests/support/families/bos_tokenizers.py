"""Builds tiny tokenizers with a BOS token, as Llama and Gemma have them, and their chat templates."""

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing
from transformers import PreTrainedTokenizerFast
from transformers.models.gemma.tokenization_gemma import GemmaTokenizer
from transformers.models.llama.tokenization_llama import LlamaTokenizer

TURNS = (
    "{%- for message in messages %}{{- '<s>' if loop.first and BOS else '' }}"
    "{{- message['role'] + ': ' + message['content'] + '</s>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}"
)
WITH_BOS, WITHOUT_BOS = (TURNS.replace("BOS", begins) for begins in ("true", "false"))


def llama3() -> PreTrainedTokenizerFast:
    """Written after Llama 3's: a plain fast tokenizer, whose tokenizer.json adds the BOS."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    adds = TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.bos_token_id)])
    backend = tokenizer.backend_tokenizer
    backend.post_processor = Sequence([ByteLevel(trim_offsets=False), adds])
    return tokenizer


def sentencepiece(kind: Any, *own: str, **adds: Any) -> PreTrainedTokenizerFast:
    """A tokenizer of a class that writes its post-processor itself."""
    letters = [*own, "▁", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:?.\n<>"]
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    return kind(vocab=vocabulary, merges=[], bos_token="<s>", eos_token="</s>", unk_token="<unk>", **adds)


KINDS = {
    "llama 3": llama3,
    "llama 2": lambda: sentencepiece(LlamaTokenizer, "<unk>", "<s>", "</s>", add_bos_token=True),
    "gemma": lambda: sentencepiece(
        GemmaTokenizer, "<pad>", "</s>", "<s>", "<unk>", pad_token="<pad>", add_bos_token=True, add_eos_token=True
    ),
}
