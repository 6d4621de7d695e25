"""Tests that an exported tokenizer gives a chat the tokens of training through every call."""

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from datamodules.multimodal.text.bpe_tokenizer import PLACEHOLDER
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from datamodules.multimodal.text.tokenizer_export import exported_tokenizer
from tests.support.families.bos_tokenizers import KINDS, WITH_BOS, WITHOUT_BOS

CHAT = [
    {"role": "user", "content": "<image> and why?"},
    {"role": "assistant", "content": "Because."},
    {"role": "user", "content": "And <image>?"},
]


@pytest.mark.parametrize("template", [WITH_BOS, WITHOUT_BOS], ids=["with BOS", "without BOS"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_of_use_gives_the_tokens_of_training(tmp_path, kind, template):
    published = KINDS[kind]()
    published.chat_template = template
    assert published("why")["input_ids"][0] == published.bos_token_id, "else it shows nothing"
    tokenizer = ChatTokenizer(published, kind)
    expected = ChatEncoder(tokenizer, "<image>").prompt(CHAT, [1, 1]).tokens.tolist()
    exported_tokenizer(tokenizer, "<image>").save_pretrained(tmp_path)
    assert published("why")["input_ids"][0] == published.bos_token_id, "the run's own is not changed"

    text = None
    for load in (AutoTokenizer, PreTrainedTokenizerFast, type(published)):
        loaded = load.from_pretrained(tmp_path)
        text = loaded.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
        assert text.count("<s>") == template.count("true")
        assert text.count(PLACEHOLDER) == 2
        one_step = loaded.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=True)["input_ids"]
        assert one_step == expected
        for options in ({}, {"add_special_tokens": False}, {"add_special_tokens": True}):
            assert loaded(text, **options)["input_ids"] == loaded.encode(text, **options) == expected
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert backend.encode(text).ids == backend.encode(text, add_special_tokens=False).ids == expected
    assert backend.encode("why", "why").ids == [*backend.encode("why").ids, *backend.encode("why").ids]
