"""A pretrained vision transformer that makes one feature of each patch of an image."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from datamodules.multimodal.batch import Images
from lightning_modules.multimodal.compiled import compile_layers
from lightning_modules.multimodal.flops import view_flops
from lightning_modules.multimodal.precision import Precision, set_dtypes
from lightning_modules.multimodal.vision_loading import (
    KINDS,
    TowerShape,
    load_tower,
    normalisation_of,
    own_tokens,
    shape_of,
    tower_config,
)
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


def tower_shape(settings: VisionTowerSettings) -> TowerShape:
    """What the tower takes and makes, from its config alone."""
    settings.check()
    return _shape(settings, tower_config(settings))


def tower_background(settings: VisionTowerSettings) -> tuple[int, int, int]:
    """The colour that the tower takes for nothing: its mean, as RGB from 0 to 255, cut off as LLaVA does."""
    scale, mean, _ = normalisation_of(settings, tower_config(settings))
    red, green, blue = (min(255, max(0, int(value / scale))) for value in mean)
    return red, green, blue


def _shape(settings: VisionTowerSettings, config: "PretrainedConfig") -> TowerShape:
    shape = shape_of(config)
    return shape._replace(patches=1) if settings.first_patch_only else shape


class VisionTower(nn.Module):
    """V views to features [V, N, C] of their N patches, in reading order; class and register tokens are left out.

    A tower that is frozen has no dropout and runs without gradients and in `precision.frozen`. Features come out in
    `precision.trained`.

    Raises:
        ValueError: see vision_loading.
    """

    def __init__(self, settings: VisionTowerSettings, precision: Precision) -> None:
        super().__init__()
        settings.check()
        config = tower_config(settings)
        self.settings, self.precision, self.shape = settings, precision, _shape(settings, config)
        self.normalisation = normalisation_of(settings, config)
        self.own_tokens = own_tokens(config)
        self.frozen = settings.trainable == "none"
        self.network: PreTrainedModel = load_tower(
            settings, config, precision.frozen if self.frozen else precision.trained
        )
        self._choose_trained(KINDS[config.model_type].layers)
        # Pretrained models come in evaluation mode, in which transformers checkpoints no activations.
        self.train()

    @property
    def output_size(self) -> int:
        """C."""
        return self.shape.output_size

    def forward(self, images: Images) -> Tensor:
        """Images -> [V, N, C]."""
        with self._mode(images.pixels.device):
            features = self.network(**self._inputs(images.pixels)).last_hidden_state[:, self.own_tokens :]
        features = features[:, : self.shape.patches]  # all of them, but for the ablation
        return features.to(self.precision.trained)

    def flops(self) -> int:
        """What it takes of a view, forward and backward; see flops.py."""
        config = self.network.config
        layers = self.network.get_submodule(KINDS[config.model_type].layers)
        patches = shape_of(config).patches
        return view_flops(self.network, layers, self.output_size, patches, patches + self.own_tokens)

    def _choose_trained(self, place: str) -> None:
        settings = self.settings
        self.network.requires_grad_(settings.trainable == "full")
        if settings.trainable == "last_n_layers":
            layers = self.network.get_submodule(place)
            if settings.last_n_layers > len(layers):
                raise ValueError(
                    f"vision_tower.last_n_layers is {settings.last_n_layers}, but {len(layers)} layers are built"
                )
            layers[-settings.last_n_layers :].requires_grad_(True)
        set_dtypes(self.network, self.precision)
        if settings.activation_checkpointing and not self.frozen:
            self.network.activation_checkpointing_enable({"use_reentrant": False})
        if settings.compile:
            compile_layers(self.network.get_submodule(place))

    @contextmanager
    def _mode(self, device: torch.device) -> Iterator[None]:
        dtype = self.precision.autocast
        if self.frozen:
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                yield
        elif dtype is None:
            yield
        else:
            with torch.autocast(device.type, dtype):
                yield

    def _inputs(self, pixels: Tensor) -> dict[str, Any]:
        # Numbers instead of buffers: under bf16-true Lightning would round those.
        scale, mean, deviation = self.normalisation
        wide = pixels.to(torch.promote_types(self.precision.trained, torch.float32)) * scale
        channels = [(wide[:, i] - mean[i]) / deviation[i] for i in range(3)]
        values = torch.stack(channels, dim=1).to(next(self.network.parameters()).dtype)
        if self.network.config.model_type != "siglip2_vision_model":
            return {"pixel_values": values}
        edge = int(self.network.config.num_patches**0.5)
        patches = values.unflatten(2, (edge, -1)).unflatten(4, (edge, -1)).permute(0, 2, 4, 3, 5, 1)
        # On the CPU, as transformers reads them there.
        shapes = torch.tensor([[edge, edge]]).expand(len(pixels), 2)
        patches = patches.flatten(1, 2).flatten(2)
        return {"pixel_values": patches, "pixel_attention_mask": None, "spatial_shapes": shapes}
