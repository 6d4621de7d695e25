"""Tests that models with tiles or pixel shuffle compute and answer the same in transformers."""

import pytest
import torch

from datamodules.multimodal.images.idefics3 import idefics3_grid
from datamodules.multimodal.images.llava_next import llava_next_grid, llava_next_order
from datamodules.multimodal.text.tokenizer import load_tokenizer
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.export.idefics3_target import _arrange_positions
from lightning_modules.multimodal.export.image_text_export import choose_target
from lightning_modules.multimodal.export.transformers_compatibility import incompatibilities
from tests.support.families.image_text_exports import PROJECTORS, Computed, chat_item, export, noise, tiny_parts

PICTURES = [(20, 9), (57, 91), (32, 32), (97, 33), (30, 150), (3, 400)]
"""Height and width: smaller than a tile, of several aspect ratios, and longer than all tiles."""


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(None, ["what is it ? the same and without an image \n \n\n"] * 3)


def check(parts, tokenizer, folder):
    rows = parts.language_model.causal_lm.config.vocab_size
    questions = [("<image>\nwhat is it ?", [noise(number, *size)]) for number, size in enumerate(PICTURES)]
    questions += [("the same\n<image> and\n\n<image>", [noise(8, 40, 70), noise(9, 31, 32)]), ("without an image", [])]
    computed = [Computed(parts, tokenizer, chat_item(parts, *question)) for question in questions]
    expected = [(here.scores(), here.answer()) for here in computed]
    model, processor = export(parts, tokenizer, folder)
    for (question, pictures), here, (scores, answer) in zip(questions, computed, expected, strict=True):
        chat = [{"role": "user", "content": question}]
        text = processor.apply_chat_template(chat, add_generation_prompt=True)
        model_inputs = processor(images=pictures or None, text=text, return_tensors="pt")
        own = model_inputs["input_ids"] < parts.placeholder
        assert torch.equal(model_inputs["input_ids"][own], here.tokens[own]), "the same texts at the same positions"
        if pictures:
            pixels = model_inputs["pixel_values"].flatten(0, 1)
            pixels = pixels[pixels.flatten(1).any(1)]  # some images of a batch are padded with views of zeros
            torch.testing.assert_close(pixels, here.pixels, atol=1e-6, rtol=0)
        with torch.no_grad():
            actual = model(**model_inputs).logits[..., :rows]
        torch.testing.assert_close(actual[:, -1], scores[:, -1], atol=1e-5, rtol=0)
        torch.testing.assert_close(actual, scores, atol=2e-5, rtol=0)
        written = model.generate(**model_inputs)[0, here.tokens.shape[1] :].tolist()
        assert len(answer) >= 2
        assert written[: len(answer)] == answer


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tiles": 3},
        {"max_tiles": 2, "tower": "clip_vision_model", "layer": -2, "model_type": "llama"},
        {"max_tiles": 2, "tower": "siglip2_vision_model", "tie_word_embeddings": False},
        {"max_tiles": 2, "tower": "dinov2", "layer": -1, "edge": 40},
    ],
    ids=["siglip", "clip", "siglip2", "dinov2"],
)
def test_llava_next_computes_and_answers_the_same(tokenizer, tmp_path, settings):
    check(tiny_parts(tokenizer, "llava_next", **settings), tokenizer, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_tiles": 3},
        {"edge": 48, "max_tiles": 2, "tie_word_embeddings": False},  # 6 patches, which Idefics3 rounds
        {"max_tiles": 2, "tower": "siglip2_vision_model", "model_type": "llama"},
    ],
    ids=["no tiles", "tiles", "rounded positions", "siglip2"],
)
def test_idefics3_computes_and_answers_the_same(tokenizer, tmp_path, settings):
    check(tiny_parts(tokenizer, "idefics3", **settings), tokenizer, tmp_path)


@pytest.mark.parametrize("tiling", ["llava_next", "idefics3"])
def test_a_batch_answers_as_its_chats_alone(tokenizer, tmp_path, tiling):
    model, processor = export(tiny_parts(tokenizer, tiling, 2), tokenizer, tmp_path)
    questions = ["<image>\nwhat is it ?", "the <image> and the <image>"]
    pictures = [[noise(0, 70, 40)], [noise(1, 20, 20), noise(2, 30, 90)]]
    texts = [
        processor.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
        for question in questions
    ]
    flat = [picture for some in pictures for picture in some]
    together = processor(images=flat, text=texts, padding=True, return_tensors="pt")
    both = model.generate(**together)[:, together["input_ids"].shape[1] :].tolist()
    for answer, text, own in zip(both, texts, pictures, strict=True):
        alone = processor(images=own, text=text, return_tensors="pt")
        written = model.generate(**alone)[0, alone["input_ids"].shape[1] :].tolist()
        assert answer[: len(written)] == written


def test_the_grid_is_that_of_transformers(tokenizer):
    from transformers.image_processing_utils import select_best_resolution

    parts = tiny_parts(tokenizer, "llava_next", 4)
    size, resolutions = parts.layout.size, parts.layout.grid_resolutions
    processor = choose_target(parts.layout, parts.projector).processor(parts)
    for height in (1, 7, 31, 32, 33, 64, 100, 129, 1000):
        for width in (1, 8, 30, 32, 35, 65, 99, 128, 990):
            rows, columns = llava_next_grid(height, width, parts.layout)
            assert (rows * size, columns * size) == tuple(select_best_resolution((height, width), resolutions))
            assert len(llava_next_order(height, width, parts.layout)) == processor._get_number_of_features(
                height, width, size, size
            )


def test_rows_and_columns_are_those_of_idefics3(tokenizer):
    parts = tiny_parts(tokenizer, "idefics3", 3, edge=16)
    processor = choose_target(parts.layout, parts.projector).image_processor(parts)
    for height in (1, 15, 16, 17, 47, 48, 49, 95, 130):
        for width in (1, 16, 17, 33, 46, 48, 50, 96, 200):
            found = processor([[noise(0, height, width)]], return_row_col_info=True)
            assert idefics3_grid(height, width, parts.layout) == (found["rows"][0][0], found["cols"][0][0])


@pytest.mark.parametrize("tiling", ["llava_next", "idefics3"])
def test_weights_of_several_formats_are_written_in_the_language_models(tokenizer, tmp_path, tiling):
    parts = tiny_parts(tokenizer, tiling, 2, precision="bf16-mixed")  # the frozen tower in bf16, what trains in fp32
    model, _ = export(parts, tokenizer, tmp_path)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("edge", range(1, 65))
def test_each_patch_has_its_own_position_in_idefics3(edge):
    from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
    from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionEmbeddings

    table, wide = _arrange_positions(torch.arange(1.0, edge * edge + 1)[:, None])
    config = Idefics3VisionConfig(hidden_size=1, num_attention_heads=1, patch_size=1, image_size=wide)
    embeddings = Idefics3VisionEmbeddings(config)
    embeddings.load_state_dict(
        {
            "position_embedding.weight": table,
            "patch_embedding.weight": torch.zeros(1, 3, 1, 1),
            "patch_embedding.bias": torch.zeros(1),
        }
    )
    embedded = embeddings(torch.zeros(1, 3, edge, edge), torch.ones(1, edge, edge, dtype=torch.bool))
    assert embedded.flatten().tolist() == list(range(1, edge * edge + 1))


@pytest.mark.parametrize(
    ("tiling", "settings", "message"),
    [
        ("llava_next", {"tower": "deit"}, "vision_tower: 2 tokens precede the patches, LlavaNext skips"),
        ("llava_next", {"tower": "dinov2"}, "vision_tower.feature_layer: null"),
        ("llava_next", {"projector": PROJECTORS["idefics3"]}, "projector.kind: pixel_shuffle, LlavaNext has mlp"),
        ("llava_next", {"projector": ProjectorSettings()}, "projector.layer_norm: LlavaNext's"),
        ("llava_next", {"model_type": "phi"}, "language_model: a phi has layers that LlavaNext does not support"),
        ("idefics3", {"tower": "clip_vision_model"}, "vision_tower: a clip_vision_model, Idefics3 has SigLIP alone"),
        ("idefics3", {"layer": -1}, "vision_tower.feature_layer: Idefics3 reads the output"),
        (
            "idefics3",
            {"projector": PROJECTORS["tile_positions"]},
            "projector.kind: mlp, Idefics3 has pixel_shuffle alone",
        ),
        ("idefics3", {"projector": ProjectorSettings("pixel_shuffle", layer_norm=False)}, "projector.bias: Idefics3's"),
        ("idefics3", {"projector": ProjectorSettings("pixel_shuffle", bias=False)}, "projector.layer_norm: Idefics3's"),
        (
            "tile_positions",
            {"projector": PROJECTORS["idefics3"]},
            "data.init_args.tiling: tile_positions, Idefics3 frames each view",
        ),
        ("tile_positions", {"max_tiles": 2}, "data.init_args.max_tiles: Llava splits no images; LlavaNext does"),
    ],
)
def test_an_obstacle_is_named(tokenizer, tiling, settings, message):
    parts = tiny_parts(tokenizer, tiling, **{"max_tiles": 2 if tiling != "tile_positions" else 1, **settings})
    (problems,) = incompatibilities(choose_target(parts.layout, parts.projector), parts, merge=False)
    assert problems.startswith(message)


@pytest.mark.parametrize(
    ("tower", "layer"),
    [
        ("siglip_vision_model", -1),
        ("siglip2_vision_model", -2),
        ("clip_vision_model", None),
        ("vit", None),
        ("vit", -1),
        ("dinov2", -2),
        ("dinov3_vit", -1),
    ],
)
def test_each_tower_of_the_documentation_fits_llava_next(tokenizer, tower, layer):
    parts = tiny_parts(tokenizer, "llava_next", 2, tower, layer=layer)
    assert incompatibilities(choose_target(parts.layout, parts.projector), parts, merge=False) == []


def test_idefics3_takes_no_blank_color(tokenizer):
    parts = tiny_parts(tokenizer, "idefics3")
    parts.tower.normalization = parts.tower.normalization._replace(mean=(0.0, 0.0, 0.0))
    (problems,) = incompatibilities(choose_target(parts.layout, parts.projector), parts, merge=False)
    assert "becomes zeros" in problems


def test_the_check_leaves_the_language_model_as_it_was(tokenizer):
    parts = tiny_parts(tokenizer, "idefics3", 2)
    causal = parts.language_model.causal_lm
    before = causal.get_input_embeddings(), causal.get_output_embeddings(), causal.config.vocab_size
    assert incompatibilities(choose_target(parts.layout, parts.projector), parts, merge=False) == []
    assert (causal.get_input_embeddings(), causal.get_output_embeddings(), causal.config.vocab_size) == before
