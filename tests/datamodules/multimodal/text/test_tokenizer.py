"""Tests the project's own tokenizer, and foreign tokenizers that are loaded from a folder or the hub."""

import json
import os
import pickle
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import transformers
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import datamodules.multimodal.text.tokenizer
from datamodules.multimodal.text.bpe_tokenizer import CHATML, PLACEHOLDER, train_tiny_tokenizer
from datamodules.multimodal.text.tokenizer import ChatTokenizer, load_tokenizer
from engine.system.hf_hub import hub_unreachable_reason

TEXTS = ["a trend is rising from 12% to 37%", "a trend is falling from 8% to 3%"] * 20


@given(text=st.text())
def test_every_text_comes_back_as_it_was(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text or tokenizer.control.search(text)


def test_a_number_is_written_digit_by_digit_its_space_with_the_first(tokenizer):
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode("from 1234% to 0.75")]
    assert [piece for piece in pieces if any(map(str.isdigit, piece))] == [" 1", "2", "3", "4", " 0", "7", "5"]


def test_words_of_the_texts_are_single_tokens(tokenizer):
    assert len(tokenizer.encode(" falling")) == 1


def test_ids_of_tokens_are_the_same_in_every_process(tokenizer):
    program = (
        "import json, sys; from datamodules.multimodal.text.tokenizer import load_tokenizer\n"
        "made = load_tokenizer(None, json.load(sys.stdin)); print(made.identity, made.encode('a trend is 42%'))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "3"}
    other = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(TEXTS[::-1]),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    here = load_tokenizer(None, TEXTS)
    assert other.stdout.strip() == f"{here.identity} {here.encode('a trend is 42%')}"


def test_identity_is_that_of_vocabulary_and_template(tokenizer):
    same = load_tokenizer(None, TEXTS)
    assert same.identity == load_tokenizer(None, TEXTS).identity != tokenizer.identity
    other = train_tiny_tokenizer(TEXTS)
    other.chat_template = CHATML.replace("assistant", "helper")
    assert ChatTokenizer(other, "other").identity != same.identity


def test_a_saved_tokenizer_is_the_same_when_loaded_from_its_directory(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.identity == tokenizer.identity
    assert loaded.vocabulary_size == tokenizer.vocabulary_size == len(tokenizer.tokenizer)
    for name in ("placeholder", "pad", "end_of_turn"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert AutoTokenizer.from_pretrained(tmp_path).convert_tokens_to_ids(PLACEHOLDER) == tokenizer.placeholder


def test_a_tokenizer_can_be_pickled(tokenizer):
    assert tokenizer.control
    assert tokenizer.identity  # kept from now on
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.identity == tokenizer.identity
    assert copy.encode("a\n7") == tokenizer.encode("a\n7")


def foreign(template=CHATML, special=("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>"), **more):
    """A tokenizer as others publish it: without our placeholder, without padding, its special tokens at the end."""
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.enable_truncation(5)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, extra_special_tokens=list(special), chat_template=template, **more
    )


def test_a_tokenizer_without_placeholder_and_padding_gets_them():
    bare = foreign()
    before = dict(bare.get_vocab())
    chats = ChatTokenizer(bare, "foreign")
    assert chats.placeholder == len(before)
    assert chats.vocabulary_size == len(before) + 1
    assert {**before, PLACEHOLDER: chats.placeholder} == bare.get_vocab()
    special = ["<|image_pad|>", PLACEHOLDER, "<|im_end|>"]
    assert chats.control.findall("".join(special)) == special
    assert chats.pad == chats.end_of_turn == before["<|im_end|>"]


def test_a_saved_truncation_does_not_cut_chats():
    assert len(ChatTokenizer(foreign(), "foreign").encode("more than five")) == 14


def test_the_end_of_a_turn_is_the_templates_and_not_the_end_of_text():
    assert ChatTokenizer(foreign(eos_token="<|endoftext|>"), "foreign").end_of_turn == 258


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        (None, "expected one chat template, found none"),
        ({"default": CHATML, "tools": CHATML}, r"found several \(default, tools\)"),
        (
            "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
            "ends the assistant's turn without a special token",
        ),
    ],
)
def test_a_template_that_chats_cannot_be_made_with_is_refused(template, messages):
    with pytest.raises(ValueError, match=messages):
        ChatTokenizer(foreign(template), "foreign")


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match="a tokenizer of 200 tokens cannot hold 256 bytes and 4 special tokens"):
        load_tokenizer(None, TEXTS, size=200)


def test_a_directory_without_a_tokenizer_is_refused_with_what_it_holds(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="finds no tokenizer here.*tokenizer.json.*found model.safetensors"):
        load_tokenizer(str(tmp_path))


def test_offline_and_missing_is_reported_at_once_without_a_request_to_the_hub(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    requests = recorded(monkeypatch)
    with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE is set.*local directory"):
        load_tokenizer("nobody/nothing")
    assert requests == [("nobody/nothing", {"trust_remote_code": False, "local_files_only": True})]


def test_an_unreachable_hub_is_reported_at_once(monkeypatch):
    """The client of the hub retries six times, for half a minute."""
    requests = recorded(monkeypatch, OSError("not in the cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FileNotFoundError, match=r"http://127.0.0.1:9 does not answer .*local dir.*HF_HUB_OFFLINE=1"):
        load_tokenizer("nobody/nothing")
    assert [more["local_files_only"] for _, more in requests] == [True]


def test_a_hub_that_answers_is_asked_after_the_cache(monkeypatch):
    requests = recorded(monkeypatch, OSError("nobody/nothing is not there\nmany lines"))
    monkeypatch.setattr(datamodules.multimodal.text.tokenizer, "hub_unreachable_reason", lambda: None)
    with pytest.raises(FileNotFoundError, match=r"from the Hugging Face hub: nobody/nothing is not there\. Set"):
        load_tokenizer("nobody/nothing")
    assert [more.get("local_files_only", False) for _, more in requests] == [True, False]
    assert all(more["trust_remote_code"] is False for _, more in requests)


@pytest.mark.parametrize("status", [200, 404])
def test_any_status_of_the_hub_is_handled(monkeypatch, status):
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.handle_request)
        thread.start()
        assert hub_unreachable_reason() is None
        thread.join(20)


def recorded(monkeypatch, answer=None):
    requests, real = [], AutoTokenizer.from_pretrained

    def from_pretrained(name, **more):
        requests.append((name, more))
        if answer:
            raise answer
        return real(name, **more)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_pretrained)
    return requests
