"""Tests that a pretrained language model is not trained on the tokens of another model."""

import json

import pytest

from datamodules.multimodal.text.tokenizer import load_tokenizer
from lightning_modules.multimodal.language.tokenizer_check import require_own_tokens
from tests.support.families.tiny_temporal import TINY_TEMPORAL, write_qwen2


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(None, ["the cpu is rising from 4% to 5%"] * 3)


def check(folder, tokenizer, name=None):
    require_own_tokens("m", folder, name, tokenizer.tokenizer.get_vocab())


def test_the_tokenizer_of_the_model_with_added_tokens_passes(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="m was not trained with it. Set data.init_args.tokenizer to m"):
        check(tmp_path, tokenizer)
    tokenizer.save(tmp_path)
    check(tmp_path / "absent", tokenizer, "elsewhere")  # nothing to compare it with
    check(tmp_path, tokenizer)
    tokenizer.tokenizer.add_tokens(["another"])
    check(tmp_path, tokenizer)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_another_tokenizer_is_refused(tokenizer, tmp_path, kind):
    own = {"<s>": 0, "a": 1}
    vocabulary = own if kind == "bpe" else [[token, -1.0] for token in own]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    with pytest.raises(ValueError, match=r"is null, but language_model.path m has .* 2 of 2 tokens .*'<s>' is 0"):
        check(tmp_path, tokenizer)


def test_a_config_that_forgets_the_tokenizer_is_refused(lockstep, tmp_path):
    """A published model would learn from the built-in tokenizer's ids without a word."""
    from tokenizers import Tokenizer, models

    write_qwen2(tmp_path / "qwen2")
    Tokenizer(models.BPE({"a": 0, "b": 1}, [])).save(str(tmp_path / "qwen2" / "tokenizer.json"))
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(f"model: {{init_args: {{language_model: {{path: {tmp_path}/qwen2, config: null}}}}}}\n")
    with pytest.raises(ValueError, match="Set data.init_args.tokenizer to .*qwen2"):
        lockstep("fit", *TINY_TEMPORAL, "--config", str(overlay), "--trainer.max_steps", "1", name="a")
