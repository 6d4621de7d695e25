"""Tests that the model reads images: after 50 steps it is right with the image and at chance without."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import lightning_modules.multimodal.multimodal_module as base
from datamodules.multimodal.synthetic_split import Split
from datamodules.vision_language.rendered_scenes import RenderedScenes, SceneSamples
from datamodules.vision_language.scenes.grading import grade
from datamodules.vision_language.scenes.scene import World
from datamodules.vision_language.scenes.tasks import Tasks
from engine.data.samplers import MicroBatchRequest
from lightning_modules.multimodal.connector.merge_embeddings import merge_features_into_embeddings
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.vision_language.module import VisionLanguageModel
from tests.support.families.attached_trainer import attach
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER

STEPS, ASKED = 50, 200


def built() -> tuple[VisionLanguageModel, RenderedScenes]:
    """One shape in one of four positions; four colors, so the best guess is right in a quarter of the cases."""
    torch.manual_seed(0)
    tasks = Tasks(caption_share=0.0, task_mix={"colour_of": 1.0})
    world = World(colours=4, shapes=3, max_objects=1, size=16)
    data = RenderedScenes(world, tasks, batch_size=32, num_samples=32, packed_length=128)
    language_model = LanguageModelSettings(config=LANGUAGE_MODEL, trainable="full")
    vision_tower = VisionTowerSettings(config={**TOWER, "num_hidden_layers": 1}, trainable="full")
    projector = ProjectorSettings(kind="linear", layer_norm_scale=0.5)
    module = VisionLanguageModel(language_model, vision_tower, projector, max_new_tokens=4)
    attach(module, data)
    return module, data


def seeing_and_blind() -> tuple[float, float]:
    """Shares of right answers after a training of seconds, with the pictures and with black pictures."""
    module, data = built()
    optimizer = torch.optim.AdamW(module.parameters(), lr=4e-3, betas=(0.9, 0.95))
    for step in range(STEPS):
        (part,) = data.train_set[MicroBatchRequest(step, np.arange(32))]
        loss, count = module.part_loss(part)
        optimizer.zero_grad()
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    module.eval()
    # There are too few scenes of one shape to hold some back; these pictures of them were not in training.
    source = SceneSamples(data.scenes, Split.TRAIN, 32 + ASKED, data.image_layout)
    asked = data.questions(source, in_order=True)[MicroBatchRequest(0, np.arange(32, 32 + ASKED))]
    shares = []
    with torch.no_grad():
        for images in (asked.encoder_input, module.modality.blinded(asked.encoder_input)):
            texts = module.generate(asked.prompts, module.features(images), module.max_new_tokens)
            samples = asked.prompts.samples.tolist()
            output = zip(samples, texts, strict=True)
            hits = [grade(source.sample(0, sample), text)["exact"][0] for sample, text in output]
            shares.append(float(np.mean(hits)))
    return shares[0], shares[1]


@pytest.mark.slow
def test_after_fifty_steps_the_image_matters() -> None:
    seeing, blind = seeing_and_blind()
    assert seeing > 0.8
    assert blind < 0.4


def zeros(features: torch.Tensor) -> torch.Tensor:
    return features * 0


def of_the_next_sample(features: torch.Tensor) -> torch.Tensor:
    return features.roll(4, 0)  # an image has four


@pytest.mark.slow
@pytest.mark.parametrize("broken", [zeros, of_the_next_sample])
def test_misplaced_features_do_not_reach_the_accuracy(
    broken: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        base,
        "merge_features_into_embeddings",
        lambda embeddings, chats, features, *others: merge_features_into_embeddings(
            embeddings, chats, broken(features), *others
        ),
    )
    seeing, _ = seeing_and_blind()
    assert seeing < 0.5
