"""Defines the interface between a MultimodalModule and the modality that it reads."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from torch import nn

from datamodules.multimodal.batch import ChatTrainBatch
from datamodules.multimodal.interface import ChatData
from lightning_modules.multimodal.checkpoints.stage_init import WeightOrigin
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.connector.projector import Projector
from lightning_modules.multimodal.language.precision import Precision

DataT = TypeVar("DataT", bound=ChatData)


class FeatureNetworks(NamedTuple):
    """Networks that compute the features of a modality.

    The module owns them, and a strategy such as FSDP may replace them by wrappers. A ModalityFeatures therefore keeps
    no reference to them.
    """

    encoder: Any  # the class that `build_encoder` returns, or its wrapper
    projector: Projector
    view_embeddings: nn.Embedding | None = None  # learned vectors among the features of views


class ModalityFeatures(ABC, Generic[DataT]):
    """Features of one modality for a language model: a component of a MultimodalModule.

    It knows how to build the encoder, how to compute features, and what identifies the encoder in checkpoints and
    exports. The weights belong to the module.

    Args:
        blind: compute all features from empty samples, as a baseline.
    """

    encoder_part = "encoder"
    """Name of the encoder in `learning_rates` and in the parameter table."""

    token_metric = "feature_tokens"
    """Name under which Throughput logs the number of placeholder tokens."""

    optional_weights: tuple[str, ...] = ()
    """Name prefixes of weights that the checkpoint of an earlier stage may lack."""

    def __init__(self, blind: bool = False) -> None:
        self.blind = blind

    @abstractmethod
    def build_encoder(self, data: DataT, precision: Precision) -> nn.Module:
        """Return the encoder. It has an attribute `output_size`, the width of its features."""

    def build_view_embeddings(self, data: DataT, hidden_size: int) -> nn.Embedding | None:
        """Return embeddings of positions in a sample (of a tile, of a line end), of width `hidden_size`, or None."""
        return None

    @abstractmethod
    def compute(self, networks: FeatureNetworks, inputs: Any) -> Features:
        """Return the features that replace the placeholders of the samples' chats."""

    @abstractmethod
    def blinded(self, inputs: Any) -> Any:
        """Return the samples without content but with the same number of features."""

    def flops(self, networks: FeatureNetworks, batch: ChatTrainBatch) -> int | None:
        """Return the FLOPs of encoder and projector, forward and backward (see flops.py). None: not known."""
        return None

    def description(self, encoder: Any, data: DataT) -> dict[str, Any]:
        """Return the encoder's settings for an export, as numbers, strings and lists."""
        return {}

    @property
    def pretrained(self) -> dict[str, str | None]:
        """Source of the pretrained weights of each part. None: random initial weights."""
        return {}

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def origins(self, checkpoint: Mapping[str, Any]) -> dict[str, WeightOrigin]:
        """Return the sources of this encoder and of a checkpoint's encoder, by the prefix of their weights' names."""
        return {}

    def identity(self) -> dict[str, Any]:
        """Return the checkpoint entries that identify a pretrained encoder."""
        return {}

    def check_identity(self, checkpoint: Mapping[str, Any]) -> None:
        """Raise ValueError if the checkpoint was trained with another encoder."""
