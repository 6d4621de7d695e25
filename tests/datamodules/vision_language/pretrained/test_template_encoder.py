"""Tests loss masks of chats that a processor encodes: what the model has to generate, and nothing else."""

import shutil

import pytest
from PIL import Image

from datamodules.vision_language.pretrained.processor import ModelProcessor
from datamodules.vision_language.pretrained.template_encoder import TemplateEncoder
from tests.support.families.tiny_image_text import write_tiny_image_text

CHAT = [
    {"role": "user", "content": "<image>\nwhat colour?"},
    {"role": "assistant", "content": "red"},
    {"role": "user", "content": "and <image>"},
    {"role": "assistant", "content": "green 2"},
]
PICTURES = [Image.new("RGB", (56, 40), "red"), Image.new("RGB", (30, 60), "green")]


@pytest.fixture(scope="module")
def processors(tmp_path_factory):
    built = {}

    def load(name):
        if name not in built:
            folder = write_tiny_image_text(name, tmp_path_factory.mktemp(name))
            built[name] = ModelProcessor(str(folder), folder)
        return built[name]

    return load


def supervised(model, chat):
    """The supervised text, answer by answer."""
    decode, texts, before = model.processor.tokenizer.decode, [], False
    for token, learned in zip(chat.tokens.tolist(), chat.supervised.tolist(), strict=True):
        if learned:
            texts = texts if before else [*texts, ""]
            texts[-1] += decode([token])
        before = learned
    return texts


@pytest.mark.parametrize(
    "name, first, last",
    [
        ("qwen2_5_vl", "red<|im_end|>", "green 2<|im_end|>"),
        ("llava", " red</s>", " green 2</s>"),
        ("smolvlm", " red<end_of_utterance>", " green 2<end_of_utterance>"),
        ("gemma3", "red<end_of_turn>", "green 2<end_of_turn>"),
    ],
)
def test_the_answers_are_supervised_to_their_ends(processors, name, first, last):
    model = processors(name)
    encoder = TemplateEncoder(model)
    chat, images = encoder.chat(CHAT, PICTURES, "1")
    assert supervised(model, chat) == [first, last]
    prompt, _ = encoder.prompt(CHAT, PICTURES, "1")
    start = len(chat.tokens) - chat.supervised[::-1].argmin() - (~chat.supervised[::-1]).argmin()
    assert prompt.tokens.tolist() == chat.tokens[: len(prompt.tokens)].tolist()
    assert not prompt.supervised.any()
    assert chat.supervised[len(prompt.tokens)]
    assert start
    assert chat.placeholders > 0
    assert "pixel_values" in images


def test_a_template_that_rewrites_earlier_turns_needs_marks(processors):
    model = ModelProcessor(processors("qwen2_5_vl").name, processors("qwen2_5_vl").folder)
    forgetful = model.template.replace(
        "{{ part['text'] }}", "{{ part['text'] if loop.last and not add_generation_prompt }}"
    )
    model.processor.chat_template = forgetful
    vars(model).pop("template", None)
    with pytest.raises(ValueError, match="does not begin with its own prompt.*generation"):
        TemplateEncoder(model).chat(CHAT, PICTURES, "1")
    model.processor.chat_template = forgetful.replace(
        "{{ '<|im_end|>\n' }}",
        "{% if message['role'] == 'assistant' %}{% generation %}{% endgeneration %}{% endif %}{{ '<|im_end|>\n' }}",
    )
    vars(model).pop("template", None)
    chat, _ = TemplateEncoder(model).chat(CHAT, PICTURES, "1")
    assert supervised(model, chat) == ["<|im_end|>", "<|im_end|>"]  # where the marks stand


@pytest.mark.parametrize(
    "turns, images, expected",
    [
        ([{"role": "user", "content": "hi"}], 0, "no turn of the assistant"),
        ([{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "a"}], 0, "1 times .* expected 0"),
        ([{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "a"}], 0, "special token"),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<image>"}],
            1,
            "belongs in a user's text",
        ),
        ([{"role": "assistant", "content": "a"}], 0, "must begin with"),
    ],
)
def test_a_chat_that_cannot_be_encoded_is_named(processors, turns, images, expected):
    with pytest.raises(ValueError, match=f"^sample 7: .*{expected}"):
        TemplateEncoder(processors("qwen2_5_vl")).chat(turns, PICTURES[:images], "7")


def test_missing_and_changed_files_of_a_processor_are_refused(processors, tmp_path):
    folder = write_tiny_image_text("llava", tmp_path / "model")
    changed = ModelProcessor("mine", folder, {"do_convert_rgb": False})
    changed.save(tmp_path)
    shutil.copy(folder / "config.json", tmp_path)
    assert ModelProcessor("copy", tmp_path).processor.image_processor.do_convert_rgb is False
    with pytest.raises(ValueError, match="image_processor.maximum: the CLIPImageProcessor.* has no such setting"):
        ModelProcessor("mine", folder, {"maximum": 3})
    (folder / "processor_config.json").unlink()
    with pytest.raises(ValueError, match="mine has no preprocessor_config.json"):
        ModelProcessor("mine", folder)
