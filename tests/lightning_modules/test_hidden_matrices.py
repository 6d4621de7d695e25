"""Tests by name which matrices `optimizer: muon` updates in each kind of model: the hidden matrices."""

from types import SimpleNamespace

from lightning_modules.image_classifier.module import ImageClassifier
from tests.lightning_modules.document_qa.reader import built
from tests.support.recommender.bare_module import Recommender


def turned(module):
    hidden = module.hidden_matrices()
    assert all(weight.ndim == 2 for weight in hidden)
    return {name for name, weight in module.named_parameters() if weight in hidden}


class Classifier(ImageClassifier):
    data = SimpleNamespace(shape=(1, 8, 8), classes=("a", "b"))


def test_muon_trains_the_hidden_matrices_of_a_language_model_that_sees():
    reader, _ = built()
    names = turned(reader)
    assert not [name for name in names if "embed" in name or "lm_head" in name]
    parts = {name.partition(".")[0] for name in names}
    assert {"encoder", "projector", "language_model"} <= parts, parts
    layers = sum(name.endswith("self_attn.q_proj.weight") for name in names)
    assert layers == 1 + reader.language_model.causal_lm.config.num_hidden_layers, "the tower's one, and the model's"


def test_hidden_matrices_of_a_recommender_exclude_embeddings():
    names = turned(Recommender(tie_output=False))
    assert names
    assert not [name for name in names if "embedding" in name or name == "network.output"]


def test_hidden_matrices_of_a_classifier_are_those_of_its_blocks():
    transformer = Classifier(network="vit", depth=2, width=24, heads=3)
    transformer.configure_model()
    names = turned(transformer)
    assert len(names) == 2 * 4
    assert all(name.startswith("network.blocks.") for name in names)
    convolutions = Classifier(network="resnet18", width=8)
    convolutions.configure_model()
    assert turned(convolutions) == set(), "its convolutions are no matrices"
