"""Tests the vision-language model: features replace placeholders for any number of images."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from datamodules.multimodal.batch import IGNORE
from engine.data.samplers import MicroBatchRequest
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.part_parameter_groups import parameter_table
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.vision_language.module import VisionLanguageModel
from tests.support.families.attached_trainer import attach
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER, ColoredSquares, write_language_model


def built(
    images=(1,),
    edge=16,
    max_tiles=1,
    tiling="tile_positions",
    packed_length=None,
    path=None,
    projector="linear",
    trainable="full",
    tower="full",
    **model,
):
    """A model and its data, as a Trainer puts them together."""
    torch.manual_seed(7)
    data = ColoredSquares(
        images=list(images),
        edge=edge,
        max_tiles=max_tiles,
        batch_size=6,
        num_samples=6,
        packed_length=packed_length,
        tiling=tiling,
        tokenizer=None if path is None else str(path),
    )
    where = {"config": LANGUAGE_MODEL} if path is None else {"path": str(path)}
    language_model = LanguageModelSettings(**where, trainable=trainable, last_n_layers=1)
    vision_tower = VisionTowerSettings(config=TOWER, trainable=tower, last_n_layers=1)
    module = VisionLanguageModel(language_model, vision_tower, ProjectorSettings(kind=projector), **model)
    attach(module, data)
    return module, data


def batch_of(data, size=6, epoch=0):
    return data.train_set[MicroBatchRequest(epoch, np.arange(size))]


def by_hand(module, data, part):
    """The loss of each chat alone, put together step by step: no splice, no packing, one image after the other."""
    total = count = 0
    tile_positions = iter(part.encoder_input.tile_positions)
    pixels = iter(part.encoder_input.pixels)
    source = data.train_set.source
    for sample, views in zip(part.rows.samples.tolist(), part.encoder_input.views.tolist(), strict=True):
        item = source.item(0, sample)
        chat = data.chat_encoder.chat(item.messages, item.counts, sample)
        vectors = []
        for _ in range(views):
            values = (next(pixels).float() / 255 - 0.5) / 0.5
            features = module.projector(module.encoder.network(values[None]).last_hidden_state)[0]
            tile_position = next(tile_positions)
            if module.places is not None and item.encoder_input.order is None:
                vectors.append(module.places.weight[tile_position])
            vectors.extend(features)
        if item.encoder_input.order is not None:
            vectors = [*module.places.weight, *vectors]
            vectors = [vectors[index] for index in item.encoder_input.order]
        vectors, embeddings = iter(vectors), []
        for token in chat.tokens.tolist():
            seen = token == data.tokenizer.placeholder
            embeddings.append(next(vectors) if seen else module.language_model.embed(torch.tensor(token)))
        assert next(vectors, None) is None
        states = module.language_model.causal_lm(inputs_embeds=torch.stack(embeddings)[None]).logits[0]
        labels = torch.where(torch.tensor(chat.supervised), torch.tensor(chat.tokens), IGNORE)
        total = total + F.cross_entropy(states[:-1], labels[1:], ignore_index=IGNORE, reduction="sum")
        count += int(chat.supervised.sum())
    assert next(tile_positions, None) is None
    return total, count


CASES = {
    "one image": {},
    "none, one and two": {"images": (0, 1, 2)},
    "two, packed": {"images": (2, 0, 1), "packed_length": 80},
    "tiles": {"images": (1, 2, 0), "edge": 20, "max_tiles": 2},
    "tiles, packed": {"images": (1, 0), "edge": 40, "max_tiles": 3, "packed_length": 200},
    "tiles of LLaVA-NeXT": {"images": (1, 2, 0), "edge": 20, "max_tiles": 2, "tiling": "llava_next"},
    "tiles of Idefics3": {"images": (1, 2, 0), "edge": 20, "max_tiles": 2, "tiling": "idefics3", "packed_length": 200},
    "pixel shuffle": {"images": (1, 2), "projector": "pixel_shuffle"},
    "resampler": {"images": (1, 2), "projector": "resampler"},
}


@pytest.mark.parametrize("case", CASES)
def test_features_stand_in_their_placeholders(case):
    module, data = built(**CASES[case])
    for part in batch_of(data):
        loss, count = module.part_loss(part)
        expected, number = by_hand(module, data, part)
        assert int(count) == number
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-3)


def test_each_image_is_read_where_it_stands():
    """Exchanging two images changes the sample; the images of a sample do not reach other samples."""
    module, data = built(images=(2,), packed_length=80)
    (part,) = batch_of(data)
    swapped = part.encoder_input._replace(pixels=part.encoder_input.pixels.clone())
    swapped.pixels[[0, 1]] = part.encoder_input.pixels[[1, 0]]
    assert not torch.equal(swapped.pixels, part.encoder_input.pixels)
    states = [module.states(part.rows, module.features(images)) for images in (part.encoder_input, swapped)]
    changed = (states[0] - states[1]).abs().amax(-1) > 1e-5  # [R, L]
    first = part.rows.positions[0].argmin() if part.rows.positions[0, 0] else 0
    ends = (part.rows.positions[0] == 0).nonzero().flatten().tolist() + [part.rows.tokens.shape[1]]
    own = slice(ends[first], ends[first + 1])
    assert changed[0, own].any()
    outside = changed.clone()
    outside[0, own] = False
    assert not outside.any()


@pytest.mark.parametrize("tiling", ["tile_positions", "llava_next", "idefics3"])
def test_no_image_at_all_still_gives_every_weight_a_gradient(tiling):
    """Other processes wait for it; it is zero in the tower and in the projector."""
    module, data = built(images=(0,), edge=20, max_tiles=2, tiling=tiling)
    (part,) = batch_of(data)
    features = module.features(part.encoder_input)
    assert features.vectors.shape == (0, 32)
    assert features.counts.tolist() == [0] * 6
    module.language_model.loss(module.states(part.rows, features), part.rows.labels)[0].backward()
    for name, weight in module.named_parameters():
        assert weight.grad is not None, name
        seen = name.split(".")[0] in ("encoder", "projector", "places")
        assert not (seen and weight.grad.any()), name
    assert module.language_model.causal_lm.get_input_embeddings().weight.grad.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tiling": "llava_next", "projector": "resampler"}, "llava_next joins the features of tiles to one grid"),
        ({"tiling": "idefics3", "max_tiles": 257}, "257 tiles of 16 pixels are longer than the 4096 pixels"),
    ],
)
def test_a_tiling_that_the_parts_do_not_allow_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        built(**settings)


def test_no_image_and_nothing_trains_but_the_projector(tmp_path):
    """A frozen language model, as in the first stage, gives a loss and a gradient of zero."""
    write_language_model(tmp_path)
    module, data = built(images=(0,), path=tmp_path, trainable="none", tower="none")
    (part,) = batch_of(data)
    loss = module.part_loss(part)[0]
    loss.backward()
    assert loss > 0
    grads = {name: weight.grad for name, weight in module.named_parameters() if weight.requires_grad}
    assert grads
    assert all(name.startswith("projector.") and not grad.any() for name, grad in grads.items())


@pytest.mark.parametrize("tiles", [1, 3])
def test_the_layout_is_known_before_anything_is_built(tiles):
    module, data = built(max_tiles=tiles, projector="pixel_shuffle")
    assert data.image_layout == module.image_layout
    assert data.image_layout[:3] == (16, 1, tiles)
    assert (module.places is None) == (tiles == 1)
    if module.places is not None:
        assert module.places.weight.shape == (10, 32)


def test_a_blind_model_sees_black_images():
    module, data = built()
    (part,) = batch_of(data)
    black = module.modality.blinded(part.encoder_input)
    assert black.pixels.shape == part.encoder_input.pixels.shape
    assert not black.pixels.any()
    seen, unseen = module.features(part.encoder_input).vectors, module.features(black).vectors
    assert not torch.allclose(seen, unseen)
    assert torch.equal(unseen[:4], unseen[4:8])
    module.modality.blind = True
    assert torch.equal(module.features(part.encoder_input).vectors, unseen)


@pytest.mark.parametrize("trainable", ["full", "lora", "last_n_layers"])
@pytest.mark.parametrize("tower", ["none", "full", "last_n_layers"])
def test_the_table_lists_what_trains(trainable, tower):
    """The table counts the weights of each part that require a gradient, and each of them gets one."""
    module, data = built(images=(1, 0), edge=20, max_tiles=2, trainable=trainable, tower=tower)
    groups = module.optimizer_groups()
    lines = [line for line in parameter_table(module.parts, groups).splitlines() if "│" in line]
    rows = {cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.strip("│").split("│")] for line in lines)}
    prefixes = {"vision_tower": "encoder.", "projector": ("projector.", "places."), "language_model": "language_model."}
    assert list(rows) == [*prefixes, "all"]
    totals = [0, 0]
    for part, starts in prefixes.items():
        own = [weight for name, weight in module.named_parameters() if name.startswith(starts)]
        counts = [sum(w.numel() for w in own), sum(w.numel() for w in own if w.requires_grad)]
        assert [int(cell.replace(",", "")) for cell in rows[part][:2]] == counts, part
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    assert [int(cell.replace(",", "")) for cell in rows["all"][:2]] == totals
    (part,) = batch_of(data)
    module.part_loss(part)[0].backward()
    assert {name for name, weight in module.named_parameters() if weight.grad is not None} == {
        name for name, weight in module.named_parameters() if weight.requires_grad
    }


def test_each_part_has_its_rate():
    rates = {"vision_tower": 1e-5, "projector": 1e-2, "language_model": 1e-4}
    module, _ = built(max_tiles=2, learning_rates=rates)
    found = {group["name"].split("/")[0]: group["lr"] for group in module.optimizer_groups()}
    assert found == rates
    groups = module.optimizer_groups()
    assert [group["lr"] for group in groups if any(w is module.places.weight for w in group["params"])] == [1e-2]
    with pytest.raises(ValueError, match="learning_rates: found encoder, expected some of vision_tower, projector"):
        built(learning_rates={"encoder": 1e-3})[0].optimizer_groups()


def test_pixel_shuffle_of_one_patch_is_refused():
    module, _ = built()
    module.modality.settings = VisionTowerSettings(config=TOWER, first_patch_only=True)
    module.projector_settings = ProjectorSettings(kind="pixel_shuffle")
    del module.image_layout
    with pytest.raises(ValueError, match="square grid of edge n x 2, got 1"):
        _ = module.image_layout
