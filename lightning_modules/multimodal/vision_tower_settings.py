"""What a config says about the vision tower."""

from dataclasses import dataclass
from typing import Any, Literal

TowerTrainable = Literal["none", "full", "last_n_layers"]


@dataclass(frozen=True)
class VisionTowerSettings:
    """A vision transformer of transformers: pretrained (`path`) or with random weights (`config`).

    Args:
        path: name on the Hugging Face hub or local directory of a pretrained model: CLIP, SigLIP, SigLIP 2, DINOv2 (with or without registers), ViT or DeiT; of a CLIP or SigLIP with a text model its vision part.
        config: `model_type` and sizes of a model with random weights, such as {model_type: siglip_vision_model, image_size: 32, patch_size: 8, hidden_size: 64, ...}.
        trainable: what trains: `none`, `full`, or `last_n_layers`.
        last_n_layers: layers that train under `last_n_layers`, of those that are kept.
        feature_layer: which hidden state the features are, as transformers numbers them: -1 is what the last layer hands out, before the last norm, -2 (as in LLaVA) the layer before; layers after it are not built. null: the model's own output, behind the last norm where it has one.
        activation_checkpointing: of what trains, keep only the states between layers and compute the rest again in the backward pass.
        compile: compile the layers with torch.compile, once for all of them.
        first_patch_only: hand out the feature of the first patch alone; an ablation, of a fault that cost another program all others.
    """  # noqa: E501

    path: str | None = None
    config: dict[str, Any] | None = None
    trainable: TowerTrainable = "none"
    last_n_layers: int = 2
    feature_layer: int | None = None
    activation_checkpointing: bool = False
    compile: bool = False
    first_patch_only: bool = False

    def check(self) -> None:
        """Raises ValueError when the settings contradict each other; jsonargparse would bury the message."""
        if (self.path is None) == (self.config is None):
            raise ValueError(
                "vision_tower takes either path (a pretrained model) or config (one with random weights); "
                + ("neither is" if self.path is None else "both are")
                + " given"
            )
        if self.trainable == "last_n_layers" and self.last_n_layers < 1:
            raise ValueError(f"vision_tower.last_n_layers must be at least 1, got {self.last_n_layers}")
