"""Tests that an exported Llava computes the same features and answers in transformers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.tiling import collate_views, concat_views, make_views
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import load_tokenizer
from datamodules.multimodal.text.tokenizer_export import exported_tokenizer
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.export.export_target import ModelParts
from lightning_modules.multimodal.export.image_text_export import GenerationSettings, write_transformers_model
from lightning_modules.multimodal.export.llava_target import Llava
from lightning_modules.multimodal.export.transformers_compatibility import incompatibilities
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower, tower_background
from tests.support.families.colored_squares import LANGUAGE_MODEL
from tests.support.families.image_text_exports import normalised, prepared

LAYOUT = ImageLayout(size=32, tokens=16)
SIZES = {"image_size": 32, "patch_size": 8, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
NO_NORM = ProjectorSettings(layer_norm=False)
QUESTIONS = ["<image>\nwhat is it ?", "<image> and <image>: the same ?", "without an image"]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(None, ["what is it ? the same and without an image"] * 3)


def copied(tokenizer):
    return exported_tokenizer(tokenizer, "<image>")


@pytest.fixture
def build(tokenizer):
    def built(
        tower, layer=None, language_model="qwen2", projector=NO_NORM, precision="32-true", **settings
    ) -> ModelParts:
        torch.manual_seed(3)
        formats = precision_of(precision, has_bf16=True)
        config = {"model_type": tower, **SIZES}
        if tower == "siglip2_vision_model":
            config = {**config, "num_patches": 16}
            del config["image_size"]
        vision = VisionTower(VisionTowerSettings(config=config, feature_layer=layer, **settings), formats)
        model = LanguageModelSettings(config={**LANGUAGE_MODEL, "model_type": language_model})
        language = LanguageModel(model, tokenizer.vocabulary_size, formats)
        made = ModelParts(
            vision,
            Projector(projector, 24, 32),
            language,
            LAYOUT,
            tokenizer.placeholder,
            copied(tokenizer),
            prepared(LAYOUT),
        )
        with torch.no_grad():
            for part in made[:3]:
                for parameter in part.parameters():  # norms, too, so that a missing one shows
                    parameter += 0.1 * torch.randn_like(parameter)
                part.eval()
        return made

    return built


def exported(parts, tokenizer, folder):
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    assert incompatibilities(Llava(), parts, merge=False) == []
    write_transformers_model(Llava(), parts, folder, GenerationSettings(tokenizer.end_of_turn, tokenizer.pad, 12))
    model, found = LlavaForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(found.values()), "nothing is made up, nothing is left over"
    return model.eval(), AutoProcessor.from_pretrained(folder)


def noise(number, size):
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8))


@torch.no_grad()
@pytest.mark.parametrize(
    ("tower", "layer", "language_model", "resize_mode"),
    [
        ("siglip_vision_model", None, "qwen2", "pad"),
        ("siglip_vision_model", -1, "llama", "stretch"),
        ("clip_vision_model", None, "qwen3", "pad"),
        ("clip_vision_model", -2, "qwen2", "crop"),
        ("siglip2_vision_model", None, "qwen2", "stretch"),
        ("siglip2_vision_model", -1, "qwen2", "pad"),
        ("vit", None, "qwen2", "stretch"),
        ("dinov2", -2, "qwen2", "crop"),
        ("dinov3_vit", -2, "qwen2", "stretch"),
    ],
)
def test_the_export_computes_and_answers_the_same(
    build, tokenizer, tmp_path, tower, layer, language_model, resize_mode
):
    parts = build(tower, layer, language_model)
    layout = LAYOUT._replace(background=tower_background(parts.tower.settings))
    parts = parts._replace(layout=layout, resize_mode=resize_mode, prepare=prepared(layout, resize_mode))
    encoder = ChatEncoder(tokenizer, "<image>")
    model, processor = exported(parts, tokenizer, tmp_path)
    for number, question in enumerate(QUESTIONS):
        # Wider, higher and smaller than the tower's square: preparing them is part of the model.
        pictures = [noise(10 * number + i, size) for i, size in enumerate([(57, 91), (20, 9)])]
        pictures = pictures[: question.count("<image>")]
        messages = [{"role": "user", "content": question}]
        chat = encoder.prompt(messages, [LAYOUT.tokens] * len(pictures))
        text = processor.apply_chat_template(messages, add_generation_prompt=True)
        model_inputs = processor(images=pictures or None, text=text, return_tensors="pt")
        assert model_inputs["input_ids"][0].tolist() == chat.tokens.tolist()

        views = concat_views([make_views(picture, layout, resize_mode) for picture in pictures], layout)
        tokens = torch.from_numpy(chat.tokens).unsqueeze(0)
        embeddings = parts.language_model.embed(tokens)
        if pictures:
            pixels = normalised(parts, torch.from_numpy(views.pixels))
            torch.testing.assert_close(model_inputs["pixel_values"], pixels, atol=1e-6, rtol=0)  # the same pixels
            features = parts.projector(parts.tower(collate_views([views], LAYOUT))).flatten(0, 1)
            embeddings[tokens == tokenizer.placeholder] = features
        positions = torch.arange(tokens.shape[1]).unsqueeze(0)
        scores = parts.language_model.logits(parts.language_model.hidden_states(embeddings, positions))
        torch.testing.assert_close(model(**model_inputs).logits, scores, atol=1e-5, rtol=0)

        (answer,) = parts.language_model.generate(embeddings, tokens >= 0, 12, [tokenizer.end_of_turn])
        written = model.generate(**model_inputs, max_new_tokens=12)[0, tokens.shape[1] :].tolist()
        assert len(answer) >= 2
        assert written[: len(answer)] == answer


def test_contents_may_be_lists_of_parts(build, tokenizer, tmp_path):
    _, processor = exported(build("siglip_vision_model"), tokenizer, tmp_path)
    parts = [{"type": "image"}, {"type": "text", "text": "\nwhat is it ?"}]
    chats = [[{"role": "user", "content": content}] for content in ("<image>\nwhat is it ?", parts)]
    written, listed = (processor.apply_chat_template(chat, add_generation_prompt=True) for chat in chats)
    assert written == listed
    assert written.count("<|modality|>") == 1


def test_images_of_a_batch_are_padded_on_the_left(build, tokenizer, tmp_path):
    """Generation needs padding on the left; the exported processor pads so without an argument."""
    model, processor = exported(build("clip_vision_model"), tokenizer, tmp_path)
    texts = [
        processor.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
        for question in QUESTIONS[:2]
    ]
    pictures = [noise(number, (32, 32)) for number in range(3)]
    together = processor(images=pictures, text=texts, padding=True, return_tensors="pt")
    both = model.generate(**together, max_new_tokens=6)[:, together["input_ids"].shape[1] :].tolist()
    for answer, text, own in zip(both, texts, (pictures[:1], pictures[1:]), strict=True):
        alone = processor(images=own, text=text, return_tensors="pt")
        written = model.generate(**alone, max_new_tokens=6)[0, alone["input_ids"].shape[1] :].tolist()
        assert answer[: len(written)] == written


def test_weights_of_several_formats_are_written_in_the_language_models(build, tokenizer, tmp_path):
    parts = build("siglip_vision_model", precision="bf16-mixed")  # the frozen tower in bf16, what trains in fp32
    assert {parameter.dtype for part in parts[:3] for parameter in part.parameters()} == {torch.bfloat16, torch.float32}
    model, _ = exported(parts, tokenizer, tmp_path)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_frozen_model_is_written_in_its_own_format(build, tokenizer, tmp_path):
    """The export is in bf16, as the published model, and so are the parts that were trained beside it."""
    from transformers import AutoConfig, AutoModelForCausalLM, LlavaForConditionalGeneration

    config = AutoConfig.for_model(**LANGUAGE_MODEL, vocab_size=tokenizer.vocabulary_size)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path / "qwen2")
    settings = LanguageModelSettings(path=str(tmp_path / "qwen2"), trainable="none")
    frozen = LanguageModel(settings, tokenizer.vocabulary_size, precision_of("bf16-mixed", has_bf16=True))
    parts = build("clip_vision_model", precision="bf16-mixed")._replace(language_model=frozen)
    assert incompatibilities(Llava(), parts, merge=True) == []
    (tmp_path / "llava").mkdir()
    write_transformers_model(
        Llava(), parts, tmp_path / "llava", GenerationSettings(tokenizer.end_of_turn, tokenizer.pad, 12)
    )
    model = LlavaForConditionalGeneration.from_pretrained(tmp_path / "llava")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    ours = frozen.causal_lm.get_decoder().layers[0].mlp.up_proj.weight
    assert torch.equal(model.model.language_model.layers[0].mlp.up_proj.weight, ours)


def test_rows_beyond_the_tokenizers_tokens_are_not_generated(build, tokenizer, tmp_path):
    parts = build("siglip_vision_model")
    parts.language_model.vocabulary -= 3
    model, _ = exported(parts, tokenizer, tmp_path)
    last = parts.language_model.vocabulary
    assert model.generation_config.suppress_tokens == [last, last + 1, last + 2]


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"tower": "deit"}, "vision_tower: 2 tokens precede the patches"),
        ({"tower": "dinov2_with_registers", "layer": -1}, "vision_tower: 5 tokens precede the patches"),
        (
            {"tower": "dinov2"},
            "vision_tower.feature_layer: null is the output after the last norm, Llava reads a dinov2",
        ),
        ({"tower": "dinov3_vit"}, "vision_tower.feature_layer: null"),
        ({"first_patch_only": True}, "vision_tower.first_patch_only"),
        ({"projector": ProjectorSettings()}, "projector.layer_norm"),
        ({"projector": ProjectorSettings(layer_norm=False, hidden_size=48)}, "projector.hidden_size: 48"),
        ({"projector": ProjectorSettings(layer_norm=False, kind="linear")}, "projector.kind: linear"),
        ({"language_model": "phi"}, "language_model: a phi has layers that Llava does not support"),
        ({"language_model": "cohere"}, "language_model: a cohere has layers that Llava does not support"),
    ],
)
def test_an_obstacle_to_the_export_is_named(build, change, messages):
    parts = build(**{"tower": "siglip_vision_model", **change})
    (problems,) = incompatibilities(Llava(), parts, merge=False)
    assert problems.startswith(messages)


def test_a_tower_that_transformers_lacks_is_not_exported_in_its_class(build):
    from transformers import SiglipVisionConfig

    class MixerConfig(SiglipVisionConfig):
        model_type = "patch_mixer"

    parts = build("siglip_vision_model")
    parts.tower.network.config.__class__ = MixerConfig
    (problem,) = incompatibilities(Llava(), parts, merge=False)
    assert problem.startswith("vision_tower: transformers does not have patch_mixer")


def test_all_obstacles_to_the_export_are_named(build, monkeypatch):
    parts = build("deit", projector=ProjectorSettings())._replace(layout=LAYOUT._replace(max_tiles=2))
    assert [problems.split(":")[0] for problems in incompatibilities(Llava(), parts, merge=False)] == [
        "vision_tower",
        "data.init_args.max_tiles",
        "projector.layer_norm",
    ]
    frozen = build("siglip_vision_model")
    for trainable in ("none", "lora"):
        settings = replace(frozen.language_model.settings, trainable=trainable)
        with monkeypatch.context() as patch:
            patch.setattr(frozen.language_model, "settings", settings)
            patch.setattr(LanguageModel, "causal_lm", property(lambda self: self.network))
            (problems,) = incompatibilities(Llava(), frozen, merge=False)
            assert problems.startswith("language_model: ")
            assert "add --merge" in problems
