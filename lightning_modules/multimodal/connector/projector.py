"""Projects a modality's features to a language model's embeddings."""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from typing_extensions import override

from engine.number_check import check_number, check_numbers
from lightning_modules.multimodal.connector.resampler import Resampler
from lightning_modules.multimodal.flops import stack_flops

ProjectorKind = Literal["linear", "mlp", "deep_mlp", "pixel_shuffle", "resampler"]


@dataclass(frozen=True)
class ProjectorSettings:
    """Settings of a projector; its input and output sizes follow from the encoder and the language model.

    Args:
        kind: `linear`; `mlp` (two layers, as in LLaVA 1.5); `deep_mlp` (`depth` layers with norms); `pixel_shuffle`
            (factor x factor features of a grid are joined, then linear, as in nanoVLM); `resampler`
            (`queries` learned vectors attend to the features in `depth` layers, as in Flamingo).
        hidden_size: inner width of `mlp`, `deep_mlp` and `resampler`; null is the language model's width.
        depth: linear layers of `deep_mlp`, layers of `resampler`.
        factor: edge of the squares of `pixel_shuffle`.
        queries: number of embeddings of an image under `resampler`, whatever its size.
        heads: attention heads of `resampler`.
        bias: false for a linear layer of `pixel_shuffle` without bias, as in Idefics3 and nanoVLM.
        dropout: share of the inner activations of `mlp` and `deep_mlp` dropped in training.
        layer_norm: end with a LayerNorm.
        layer_norm_scale: initial weight of the LayerNorm. With 1 a feature is about 30 times as long as a token's
            embedding.
        trainable: false to freeze the projector.
    """

    kind: ProjectorKind = "mlp"
    hidden_size: int | None = None
    depth: int = 3
    factor: int = 2
    queries: int = 64
    heads: int = 8
    bias: bool = True
    dropout: float = 0.0
    layer_norm: bool = True
    layer_norm_scale: float = 0.1
    trainable: bool = True

    def check(self) -> None:
        """Raise ValueError if a number is outside its range, or the kind has no use for `bias`."""
        check_number("projector.dropout", self.dropout, at_least=0, below=1)
        check_number("projector.layer_norm_scale", self.layer_norm_scale, above=0)
        sizes = {"hidden_size": self.hidden_size, "depth": self.depth, "factor": self.factor, "queries": self.queries}
        check_numbers("projector.", {**sizes, "heads": self.heads}, at_least=1)
        if not self.bias and self.kind != "pixel_shuffle":
            raise ValueError(f"projector.bias: false is for the kind pixel_shuffle, got {self.kind}")

    def count(self, features: int) -> int:
        """Return the number of embeddings for a number of features.

        Raises:
            ValueError: the projector does not take this number of features.
        """
        if self.kind == "resampler":
            return self.queries
        if self.kind != "pixel_shuffle":
            return features
        _require_squares(features, self.factor)
        return features // self.factor**2


class Projector(nn.Module):
    """Maps [..., input_size] to [..., output_size]; `pixel_shuffle` and `resampler` map [S, N, C] to [S, count(N), C].

    Args:
        settings: settings of the projector.
        input_size: width of the encoder's features.
        output_size: width of the language model's embeddings.
    """

    def __init__(self, settings: ProjectorSettings, input_size: int, output_size: int) -> None:
        super().__init__()
        settings.check()
        self.settings, self.input_size, self.output_size = settings, input_size, output_size
        hidden = settings.hidden_size or output_size
        layers: list[nn.Module]
        if settings.kind == "linear":
            layers = [nn.Linear(input_size, output_size)]
        elif settings.kind == "pixel_shuffle":
            width = input_size * settings.factor**2
            layers = [PixelShuffle(settings.factor), nn.Linear(width, output_size, settings.bias)]
        elif settings.kind == "resampler":
            layers = [Resampler(input_size, hidden, settings.queries, settings.depth, settings.heads)]
            layers += [nn.Linear(hidden, output_size)]
        elif settings.kind == "mlp":
            layers = [nn.Linear(input_size, hidden), nn.GELU(), nn.Dropout(settings.dropout)]
            layers += [nn.Linear(hidden, output_size)]
        else:
            layers, width = [], input_size
            for _ in range(settings.depth - 1):
                layers += [nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(settings.dropout)]
                width = hidden
            layers += [nn.Linear(width, output_size)]
        if settings.layer_norm:
            norm = nn.LayerNorm(output_size)
            # An embedding of a language model has entries near 0.02; a LayerNorm of gain 1 returns entries near 1.
            nn.init.constant_(norm.weight, settings.layer_norm_scale)
            layers.append(norm)
        self.layers = nn.Sequential(*layers).requires_grad_(settings.trainable)

    @override
    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)

    def flops(self, features: int, behind_trained: bool) -> int:
        """Return the FLOPs for a number of features, forward and backward; see flops.py."""
        count, layers = self.settings.count(features), self.layers
        if not isinstance(layers[0], Resampler):
            return count * stack_flops(layers, behind_trained)
        # The resampler computes on all features, the layers after it on its queries.
        resampled = layers[0].flops(features, behind_trained)
        return resampled + count * stack_flops([*layers][1:], behind_trained or self.settings.trainable)


class PixelShuffle(nn.Module):
    """Concatenates the features of each square of a grid: [S, N, C] -> [S, N / factor^2, C factor^2].

    As in InternVL 1.5 (arXiv 2404.16821) and nanoVLM. Input and output are in reading order.
    """

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, grid: Tensor) -> Tensor:
        """Map [S, N, C] to [S, N / factor^2, C factor^2].

        Raises:
            ValueError: N is not the square of a multiple of the factor.
        """
        samples, count, width = grid.shape
        factor = self.factor
        edge = _require_squares(count, factor)
        # [S, rows, factor, columns, factor, C]: exchanging the inner two axes brings each square's features together.
        squares = grid.view(samples, edge // factor, factor, edge // factor, factor, width).transpose(2, 3)
        return squares.reshape(samples, count // factor**2, factor**2 * width)


def _require_squares(features: int, factor: int) -> int:
    """Return the edge of the grid."""
    # Exact for any size, unlike the root of a float.
    edge = math.isqrt(features)
    if edge * edge != features or edge % factor:
        raise ValueError(f"pixel_shuffle takes a square grid of edge n x {factor}, got {features} features")
    return edge
