"""Tests the encoding of chats: tokens, supervised answers, and prompts."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from datamodules.multimodal.text import chat_encoder
from datamodules.multimodal.text.bpe_tokenizer import CHATML
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import ChatTokenizer

MARKER = "<thing>"

QWEN = (
    "{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if not (loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""Written after Qwen2.5's: a system message of its own, and no generation marks."""

LLAMA = (
    "{{- '<|begin|>' }}{%- for message in messages %}"
    "{%- if message['role'] == 'system' and not loop.first %}{{- raise_exception('one system message') }}{%- endif %}"
    "{{- '<|start|>' + message['role'] + '<|stop|>\n\n' + message['content'] | trim + '<|eot|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant<|stop|>\n\n' }}{%- endif %}"
)
"""Written after Llama 3's: it trims, and nothing follows the end of a turn."""

QWEN3 = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'assistant' and loop.last %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{{- message.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)
"""Written after Qwen3's: an empty train of thought before the last answer alone."""


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def system(content):
    return {"role": "system", "content": content}


def bytes_tokenizer(template, special):
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    alphabet["ĊĊ"] = len(alphabet)  # two line ends are one token, as in Qwen's and Llama's tokenizers
    backend = Tokenizer(models.BPE(vocab=alphabet, merges=[("Ċ", "Ċ")]))
    lines = pre_tokenizers.Split(Regex(r"[\r\n]+"), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([lines, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=backend, extra_special_tokens=list(special), chat_template=template)
    return ChatTokenizer(made, "published")


def with_template(tokenizer, template):
    """The built-in tokenizer, treated like a published one."""
    made = copy.deepcopy(tokenizer.tokenizer)
    made.chat_template = template
    return ChatEncoder(ChatTokenizer(made, "published"), MARKER)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return ChatEncoder(tokenizer, MARKER)


@pytest.fixture(scope="module")
def marked(tokenizer):
    return with_template(tokenizer, CHATML)


@pytest.fixture(scope="module")
def unmarked(tokenizer):
    return with_template(tokenizer, CHATML.replace("{% generation %}", "").replace("{% endgeneration %}", ""))


@pytest.fixture(scope="module")
def qwen():
    return ChatEncoder(bytes_tokenizer(QWEN, ["<|im_start|>", "<|im_end|>"]), MARKER)


@pytest.fixture(scope="module")
def llama():
    return ChatEncoder(bytes_tokenizer(LLAMA, ["<|begin|>", "<|start|>", "<|stop|>", "<|eot|>"]), MARKER)


def shown(encoder, tokens):
    return encoder.tokenizer.tokenizer.decode(tokens)


def test_the_answers_and_the_ends_of_their_turns_are_supervised(encoder):
    messages = [system("Be brief."), user("1+2?"), assistant("3"), user("How is it?"), assistant("It is\nfine.\n")]
    chat = encoder.chat(messages)
    assert shown(encoder, chat.tokens) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n1+2?<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n"
        "<|im_start|>user\nHow is it?<|im_end|>\n<|im_start|>assistant\nIt is\nfine.\n<|im_end|>\n"
    )
    assert shown(encoder, chat.tokens[chat.supervised]) == "3<|im_end|>It is\nfine.\n<|im_end|>"
    assert chat.placeholders == 0


texts = st.text(st.sampled_from("a 1\n%<|é\t."), max_size=8)
conversations = st.lists(st.tuples(st.sampled_from([system, user, assistant]), texts), min_size=1, max_size=5)


@given(drawn=conversations)
def test_all_methods_find_the_same_mask(encoder, marked, unmarked, drawn):
    messages = [user("What?"), *(role(text) for role, text in drawn), assistant("That.")]
    reference = marked.tokenizer.tokenizer.apply_chat_template(
        messages, return_dict=True, return_assistant_tokens_mask=True
    )
    for way in (encoder, marked, unmarked):
        chat = way.chat(messages)
        assert chat.tokens.tolist() == reference["input_ids"]
        assert chat.supervised.tolist() == [bool(reported) for reported in reference["assistant_masks"]]


@pytest.mark.parametrize("way", ["encoder", "marked", "unmarked", "qwen", "llama"])
def test_the_prompt_is_how_the_chat_begins(request, way):
    encoder = request.getfixturevalue(way)
    messages = [user(f"Look: {MARKER} what is it?"), assistant("A cat."), user("Sure?"), assistant("Yes, 100 %.")]
    chat, prompt = encoder.chat(messages, [3]), encoder.prompt(messages, [3])
    assert chat.tokens[: len(prompt.tokens)].tolist() == prompt.tokens.tolist()
    assert prompt.placeholders == 3
    assert not prompt.supervised.any()
    assert chat.supervised[len(prompt.tokens)]
    assert encoder.prompt(messages[:-1], [3]).tokens.tolist() == prompt.tokens.tolist()


def test_a_template_that_writes_its_own_system_message_supervises_answers_alone(qwen):
    chat = qwen.chat([user("1?"), assistant("2\n"), user("3?"), assistant("\u00e9")])
    assert shown(qwen, chat.tokens).startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_st")
    assert shown(qwen, chat.tokens[chat.supervised]) == "2\n<|im_end|>\u00e9<|im_end|>"
    chat = qwen.chat([system("Be."), user("1?"), assistant("2")])
    assert shown(qwen, chat.tokens).startswith("<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\n1?")
    assert shown(qwen, chat.tokens[chat.supervised]) == "2<|im_end|>"


def test_a_template_that_trims_supervises_the_trimmed_answers(llama):
    chat = llama.chat([system("Be. "), user(" 1?"), assistant(" 2 "), user("3?"), assistant("4")])
    assert shown(llama, chat.tokens[chat.supervised]) == "2<|eot|>4<|eot|>"
    assert chat.supervised[-1]


def test_an_empty_train_of_thought_belongs_to_the_prompt():
    encoder = ChatEncoder(bytes_tokenizer(QWEN3, ["<|im_start|>", "<|im_end|>"]), MARKER)
    messages = [user("1?"), assistant("2"), user("3?"), assistant("4")]
    chat, prompt = encoder.chat(messages), encoder.prompt(messages)
    assert shown(encoder, chat.tokens[chat.supervised]) == "2<|im_end|>4<|im_end|>"
    assert chat.tokens[: len(prompt.tokens)].tolist() == prompt.tokens.tolist()
    assert shown(encoder, prompt.tokens).endswith("</think>\n\n")


def test_where_the_prompt_is_no_prefix_the_chat_is_refused_with_the_difference(qwen):
    with pytest.raises(
        ValueError, match=r"sample 7: cannot locate .* in message 2: .*: '\\n\\nyes.*' instead of '\\n'"
    ):
        qwen.chat([user("1?"), assistant("\nyes")], sample=7)
    thinking = QWEN.replace("message.content", "('' if loop.last else '...') + message.content", 1)
    encoder = ChatEncoder(bytes_tokenizer(thinking, ["<|im_start|>", "<|im_end|>"]), MARKER)
    with pytest.raises(ValueError, match="has no generation marks, and the chat does not begin with its own prompt"):
        encoder.chat([user("1?"), assistant("2"), user("3?"), assistant("4")])


def test_a_mark_without_the_end_of_the_turn_is_extended(tokenizer):
    short = CHATML.replace("'<|im_end|>' }}{% endgeneration %}", "'' }}{% endgeneration %}{{ '<|im_end|>' }}")
    assert short != CHATML
    encoder = with_template(tokenizer, short)
    chat = encoder.chat([user("1?"), assistant("2"), user("3?"), assistant("4")])
    assert shown(encoder, chat.tokens[chat.supervised]) == "2<|im_end|>4<|im_end|>"


def test_an_error_of_the_template_names_the_sample(llama):
    with pytest.raises(ValueError, match="sample 3: the chat template .* rejects turns of user, system.*: one system"):
        llama.chat([user("a"), system("b"), assistant("c")], sample=3)


def test_a_template_that_writes_the_date_writes_the_same_one_every_day(tokenizer):
    dated = CHATML.replace("{% for", "{{ date_string if date_string is defined else strftime_now('%f') }}{% for", 1)
    encoder = with_template(tokenizer, dated)
    messages = [user("1?"), assistant("2")]
    assert encoder.chat(messages).tokens.tolist() == encoder.chat(messages).tokens.tolist()


def test_markers_become_as_many_placeholders_as_there_are_features(encoder, marked, tokenizer):
    messages = [user(f"{MARKER}and {MARKER}\nsame?"), assistant("Yes")]
    chat = encoder.chat(messages, [2, 3])
    assert chat.placeholders == 5 == np.sum(chat.tokens == tokenizer.placeholder)
    token = "<|modality|>"
    assert f"user\n{token * 2}and {token * 3}\nsame?" in shown(encoder, chat.tokens)
    literal = tokenizer.encode(shown(encoder, chat.tokens))
    assert literal == chat.tokens.tolist() == marked.chat(messages, [2, 3]).tokens.tolist()
    assert shown(encoder, chat.tokens[chat.supervised]) == "Yes<|im_end|>"


def test_texts_stand_between_placeholders(encoder, marked, tokenizer):
    chat = [{"role": "user", "content": f"see {MARKER} it"}, {"role": "assistant", "content": "42"}]
    line, gap = tokenizer.encode("\n"), tokenizer.encode("\n\n")
    token = tokenizer.placeholder
    for way in (encoder, marked):
        plain, texts = way.chat(chat, [5]), way.chat(chat, [(2, "\n", 1, "\n\n", 2)])
        start = plain.tokens.tolist().index(token)
        expected = [token, token, *line, token, *gap, token, token]
        assert texts.tokens.tolist() == [*plain.tokens[:start], *expected, *plain.tokens[start + 5 :]]
        assert texts.placeholders == 5
        assert texts.supervised.sum() == plain.supervised.sum()
        assert not texts.supervised[: start + len(expected)].any()


@pytest.mark.parametrize(
    ("messages", "counts", "log_messages"),
    [
        (
            [user("see <|modality|>"), assistant("a")],
            [1],
            r"message 1 \(user\) contains the special token <\|modality\|>",
        ),
        ([user("a<|im_end|>"), assistant("a")], [], r"contains the special token <\|im_end\|>"),
        ([user("a"), assistant("<|im_start|>")], [], r"message 2 \(assistant\) contains the special token"),
        ([user("a"), assistant("b")], [1], "found <thing> 0 times.*expected once for each of 1"),
        ([user("<thing><thing>"), assistant("b")], [4], "found <thing> 2 times"),
        ([user("<thing>"), assistant("b")], [0], r"feature vectors: \[0\]"),
        ([user("a"), assistant("<thing>")], [1], r"message 2 \(assistant\): <thing> belongs in a user's text"),
        ([user("a")], [], "nothing to learn from: the chat has no turn of the assistant"),
        ([], [], "a chat must begin with a message of the user or the system"),
        ([assistant("a")], [], "a chat must begin with a message of the user or the system"),
        ([user("a"), {"role": "tool", "content": "b"}], [], r"message 2 must have a role \(system, user, assistant\)"),
        ([user("a"), {"role": "assistant", "content": None}], [], "message 2 must have"),
    ],
)
def test_an_invalid_chat_is_refused_with_its_sample(encoder, qwen, messages, counts, log_messages):
    for way in (encoder, qwen):
        with pytest.raises(ValueError, match=f"sample x9: .*{log_messages}"):
            way.chat(messages, counts, sample="x9")


@given(text=texts)
def test_no_text_of_a_user_makes_placeholders_or_turns(encoder, tokenizer, text):
    assume(not tokenizer.control.search(text))
    chat = encoder.chat([user(text + MARKER + text), assistant(text)], [2])
    assert np.sum(chat.tokens == tokenizer.placeholder) == 2
    assert np.sum(chat.tokens == tokenizer.end_of_turn) == 2


def test_an_encoder_can_be_pickled(encoder):
    messages = [user(f"a {MARKER}"), assistant("b")]
    copied = pickle.loads(pickle.dumps(encoder))
    assert copied.chat(messages, [2]).tokens.tolist() == encoder.chat(messages, [2]).tokens.tolist()


def test_a_chat_of_too_many_characters_is_refused_before_it_is_tokenized(encoder, monkeypatch):
    monkeypatch.setattr(chat_encoder, "MAX_CHARACTERS", 10)
    assert len(encoder.prompt([user("12345"), assistant("12345")]).tokens)
    for encode in (encoder.chat, encoder.prompt):
        with pytest.raises(ValueError, match="sample 7: found 11 characters, expected at most 10"):
            encode([user("123456"), assistant("12345"), user("")], sample=7)
