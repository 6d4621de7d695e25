"""Computes a feature of each patch of an image by a vision transformer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from datamodules.multimodal.batch import Images
from lightning_modules.multimodal.flops import view_flops
from lightning_modules.multimodal.language.activation_checkpointing import recompute_activations
from lightning_modules.multimodal.language.compile import compile_layers
from lightning_modules.multimodal.language.precision import Precision, set_dtypes
from lightning_modules.multimodal.vision.architectures import KINDS, TowerShape, num_prefix_tokens, read_tower_shape
from lightning_modules.multimodal.vision.pixel_normalization import pixel_normalization
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower_loading import load_tower, tower_config

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


def tower_shape(settings: VisionTowerSettings) -> TowerShape:
    """Return the sizes of a tower, from its config alone."""
    settings.check()
    return _shape(settings, tower_config(settings))


def tower_background(settings: VisionTowerSettings) -> tuple[int, int, int]:
    """Return the color that the tower maps to zero: its mean, as RGB from 0 to 255, truncated as in LLaVA."""
    scale, mean, _ = pixel_normalization(settings, tower_config(settings))
    red, green, blue = (min(255, max(0, int(value / scale))) for value in mean)
    return red, green, blue


def _shape(settings: VisionTowerSettings, config: "PretrainedConfig") -> TowerShape:
    shape = read_tower_shape(config)
    return shape._replace(patches=1) if settings.first_patch_only else shape


class VisionTower(nn.Module):
    """Maps V views to features [V, N, C] of their N patches, in reading order, without class and register tokens.

    A frozen tower has no dropout and runs without gradients in `precision.frozen`. Features are of the format
    `precision.trained`.

    Args:
        settings: settings of the tower.
        precision: number formats of weights and computations.

    Raises:
        ValueError: the settings contradict each other, or `tower_config` or `load_tower` refuses them.
    """

    def __init__(self, settings: VisionTowerSettings, precision: Precision) -> None:
        super().__init__()
        settings.check()
        config = tower_config(settings)
        self.settings, self.precision, self.shape = settings, precision, _shape(settings, config)
        self.normalization = pixel_normalization(settings, config)
        self.num_prefix_tokens = num_prefix_tokens(config)
        self.frozen = settings.trainable == "none"
        self.network: PreTrainedModel = load_tower(
            settings, config, precision.frozen if self.frozen else precision.trained
        )
        self._choose_trained()
        # from_pretrained returns models in evaluation mode, in which transformers checkpoints no activations.
        self.train()

    @property
    def output_size(self) -> int:
        """Width C of the features."""
        return self.shape.output_size

    def forward(self, images: Images) -> Tensor:
        """Return the features [V, N, C] of images with V views."""
        with self._mode(images.pixels.device):
            # [V, prefix tokens + N, C] -> [V, N, C]
            features = self.network(**self._inputs(images.pixels)).last_hidden_state[:, self.num_prefix_tokens :]
        features = features[:, : self.shape.patches]  # drops none, but in the ablation
        # The projector trains in this format; a frozen tower may compute in a narrower format.
        return features.to(self.precision.trained)

    def flops(self) -> int:
        """Return the FLOPs of a view, forward and backward; see flops.py."""
        config = self.network.config
        patches = read_tower_shape(config).patches
        return view_flops(self.network, self._layers, self.output_size, patches, patches + self.num_prefix_tokens)

    @property
    def _layers(self) -> nn.ModuleList:
        layers = self.network.get_submodule(KINDS[self.network.config.model_type].layers)
        assert isinstance(layers, nn.ModuleList), "as in all of KINDS"
        return layers

    def _choose_trained(self) -> None:
        settings, layers = self.settings, self._layers
        self.network.requires_grad_(settings.trainable == "full")
        if settings.trainable == "last_n_layers":
            if settings.last_n_layers > len(layers):
                raise ValueError(
                    f"vision_tower.last_n_layers is {settings.last_n_layers}, but {len(layers)} layers are built"
                )
            layers[-settings.last_n_layers :].requires_grad_(True)
        # Formats follow the choice of trained weights, on which each weight's format depends.
        set_dtypes(self.network, self.precision)
        # A frozen tower keeps no activations: it runs without gradients.
        if settings.activation_checkpointing and not self.frozen:
            recompute_activations(self.network)
        if settings.compile:
            compile_layers(layers)

    @contextmanager
    def _mode(self, device: torch.device) -> Iterator[None]:
        dtype = self.precision.autocast
        if self.frozen:
            # Weights are stored in the format of the computation, so autocast would only cast back and forth.
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                yield
        elif dtype is None:
            yield
        else:
            with torch.autocast(device.type, dtype):
                yield

    def _inputs(self, pixels: Tensor) -> dict[str, Any]:
        # Python numbers instead of buffers, which Lightning would round to bf16 under bf16-true.
        scale, mean, deviation = self.normalization
        # In float32 at least: 255 * scale - mean in bf16 would round away differences between neighboring colors.
        wide = pixels.to(torch.promote_types(self.precision.trained, torch.float32)) * scale
        channels = [(wide[:, i] - mean[i]) / deviation[i] for i in range(3)]
        # [V, 3, size, size]
        values = torch.stack(channels, dim=1).to(next(self.network.parameters()).dtype)
        if self.network.config.model_type != "siglip2_vision_model":
            return {"pixel_values": values}
        edge = int(self.network.config.num_patches**0.5)
        # [V, 3, edge, patch, edge, patch] -> [V, edge, edge, patch, patch, 3]
        patches = values.unflatten(2, (edge, -1)).unflatten(4, (edge, -1)).permute(0, 2, 4, 3, 5, 1)
        # On the CPU, where transformers reads them.
        shapes = torch.tensor([[edge, edge]]).expand(len(pixels), 2)
        # [V, N, 3 patch^2]
        patches = patches.flatten(1, 2).flatten(2)
        return {"pixel_values": patches, "pixel_attention_mask": None, "spatial_shapes": shapes}
