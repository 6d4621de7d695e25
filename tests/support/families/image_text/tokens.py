"""Builds byte-level tokenizers for tiny image-text models."""

from typing import Any

from tests.support.families.image_text.chat_templates import GEMMA

PAD = "<|endoftext|>"
END = "<|im_end|>"
TEXTS = ["user assistant system USER ASSISTANT User Assistant model: what colour is the square? red green blue 1 2 3\n"]


def tokenizer(special: list[str], eos: str, bos: str | None = None, template: str | None = None, **named: str) -> Any:
    """A byte-level tokenizer with these special tokens; `named` become attributes such as `image_token`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = list(dict.fromkeys([PAD, eos, *([bos] if bos else []), *special, *named.values()]))
    trainer = trainers.BpeTrainer(
        vocab_size=256 + len(special) + 40,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 3, trainer)
    if bos and template is not GEMMA:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=eos,
        bos_token=bos,
        extra_special_tokens=named,
        additional_special_tokens=special,
        chat_template=template,
    )


def token_ids(tokens: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokens),
        "pad_token_id": tokens.pad_token_id,
        "eos_token_id": tokens.eos_token_id,
        "bos_token_id": tokens.bos_token_id,
    }
