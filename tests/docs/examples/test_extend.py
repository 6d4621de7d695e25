"""docs/extend.md: the rows of its vision tower and of its ranking metric work without another change."""

import re

import pytest
import torch
import yaml

from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.vision import architectures
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower
from lightning_modules.recommender.item_ranks import rank_metrics
from tests.docs.pages import read
from tests.lightning_modules.multimodal.vision import test_vision_tower
from tests.lightning_modules.multimodal.vision.test_vision_tower import SIZES, SQUARE

PAGE = read("docs/extend.md")
METRICS, TOWER = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(CONFIG,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def kind(monkeypatch):
    """The model type of the page's tower, which is registered."""
    (name, row), *others = eval(f"{{{TOWER}}}", vars(architectures)).items()
    assert not others
    assert name not in architectures.KINDS
    monkeypatch.setitem(architectures.KINDS, name, row)
    monkeypatch.setitem(test_vision_tower.KINDS, name, {**SIZES, **SQUARE})
    monkeypatch.setitem(test_vision_tower.MEANS, name, test_vision_tower.MEANS["dinov2"])
    return name


@pytest.mark.parametrize("layer", [None, -1])
def test_the_vision_tower_computes_what_transformers_computes(kind, layer, tmp_path):
    test_vision_tower.test_the_tower_returns_the_patches_of_the_hidden_state(kind, layer, tmp_path)


def test_the_config_of_the_vision_tower_has_a_feature_for_each_patch(kind):
    settings = yaml.safe_load(CONFIG)["model"]["init_args"]["vision_tower"]
    assert settings["config"]["model_type"] == kind
    tower = VisionTower(VisionTowerSettings(**settings), precision_of("32-true", has_bf16=True))
    pictures = test_vision_tower.images()._replace(pixels=torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    assert tower(pictures).shape == (2, 16, 96)


def test_the_ranking_metric_is_one_of_every_evaluation(monkeypatch):
    rows = METRICS.replace("...", "*RANK_METRICS")
    names = {**vars(rank_metrics)}
    exec(rows, names)
    monkeypatch.setattr(rank_metrics, "RANK_METRICS", names["RANK_METRICS"])
    table = rank_metrics.gains([2])
    assert table.names[-1] == "rbp@2"
    assert table.values[:, -1] == pytest.approx([0.2, 0.16, 0])
