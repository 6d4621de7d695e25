"""Defines the interface of transformers classes that a model of images and text can be exported as."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import nn

from datamodules.multimodal.batch import ImageLayout, Images
from lightning_modules.multimodal.connector.projector import Projector
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.vision.vision_tower import VisionTower

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


class ModelParts(NamedTuple):
    """Networks and settings of a trained model."""

    tower: VisionTower
    projector: Projector
    language_model: LanguageModel
    layout: ImageLayout
    placeholder: int  # token that a feature replaces
    tokenizer: "PreTrainedTokenizerFast"  # as it is exported
    prepare: Callable[[Sequence["Image"]], Images]  # prepares images as in training
    resize_mode: Literal["stretch", "pad", "crop"] = "stretch"  # how an image becomes a square
    learned: nn.Embedding | None = None  # learned vectors among the features


class ExportTarget(ABC):
    """A class of transformers that models can be exported as."""

    name: str
    """Short name, for messages."""

    class_name: str
    """Name of the class."""

    article: str = "a"
    """Article before the name of the class."""

    tag: str
    """Model type of the class."""

    @abstractmethod
    def incompatibilities(self, parts: ModelParts) -> Iterator[str]:
        """Yield the reasons why tower, projector and tiling of a model do not fit the class."""

    @abstractmethod
    def build_model(self, parts: ModelParts) -> Any:
        """Return the model of transformers. It shares networks with `parts`."""

    @abstractmethod
    def processor(self, parts: ModelParts) -> Any:
        """Return a processor that prepares images and texts as the DataModules do."""

    @abstractmethod
    def image_processor(self, parts: ModelParts) -> Any:
        """Return an image processor that computes the same pixels as the DataModules. It needs no torchvision."""

    def tokens(self, parts: ModelParts) -> list[int]:
        """Return the tokens of the exported tokenizer that stand for the learned vectors; none if all are features."""
        return []


def image_normalization(parts: ModelParts) -> dict[str, Any]:
    """Return the normalization of pixels as arguments of an image processor of transformers."""
    scale, mean, deviation = parts.tower.normalization
    return {"rescale_factor": scale, "image_mean": list(mean), "image_std": list(deviation)}


def has_tied_embeddings(parts: ModelParts) -> bool:
    """Return whether the language model's output layer has the weights of its embeddings."""
    embeddings: Any = parts.language_model.causal_lm.get_input_embeddings()
    scores: Any = parts.language_model.causal_lm.get_output_embeddings()
    return scores.weight is embeddings.weight


def tower_incompatibilities(parts: ModelParts, name: str) -> Iterator[str]:
    """Yield the reasons against any class that reads one feature per patch."""
    if parts.tower.settings.first_patch_only:
        yield f"vision_tower.first_patch_only: {name} takes all patches"
    config = parts.tower.network.config
    if type(config).__module__.partition(".")[0] != "transformers":
        yield f"vision_tower: transformers does not have {config.model_type}, and could not open a {name} with it"


def weight_format(language_model: LanguageModel) -> torch.dtype:
    """Return the number format of all weights, the language model's: transformers reads all weights in the same."""
    mixed = language_model.settings.trainable == "last_n_layers"
    return language_model.precision.trained if mixed else language_model.causal_lm.dtype


def load_tower_weights(
    network: "PreTrainedModel", weights: dict[str, Any], own: nn.Module, unused: tuple[str, ...]
) -> Any:
    """Load the weights of our own vision tower into a tower of transformers.

    Args:
        network: the tower as transformers builds it.
        weights: trained weights by the names of `network`.
        own: our own tower, whose number format is kept.
        unused: prefixes of weights that no feature depends on, which transformers builds in any case.
    """
    # strict is off because of the unused weights; what else is missing is an error below.
    result = network.load_state_dict(weights, strict=False)
    lacking = [name for name in result.missing_keys if not name.startswith(unused)]
    if lacking or result.unexpected_keys:
        raise ValueError(f"vision_tower: {type(network).__name__} lacks or does not know {lacking or result[1]}")
    return network.to(next(own.parameters()).dtype)  # type: ignore[arg-type]  # Its decorator hides `self`.
