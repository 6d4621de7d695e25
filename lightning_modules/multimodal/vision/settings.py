"""Defines the settings of the vision tower."""

from dataclasses import dataclass
from typing import Any, Literal

from engine.number_check import check_number

TowerTrainable = Literal["none", "full", "last_n_layers"]


@dataclass(frozen=True)
class VisionTowerSettings:
    """A vision transformer of transformers: pretrained (`path`) or with random weights (`config`).

    Args:
        path: name on the Hugging Face hub or local directory of a pretrained model: CLIP, SigLIP, SigLIP 2, DINOv2
            (with or without registers), DINOv3 (its vision transformers), ViT or DeiT; of a CLIP or SigLIP with a text
            model its vision part.
        config: `model_type` and sizes of a model with random weights, such as {model_type: siglip_vision_model,
            image_size: 32, patch_size: 8, hidden_size: 64, ...}.
        trainable: trainable weights: `none`, `full`, or `last_n_layers`.
        last_n_layers: number of trainable layers under `last_n_layers`, of those that are built.
        feature_layer: hidden state that the features are, as transformers numbers them: -1 is the output of the last
            layer before the last norm, -2 (as in LLaVA) of the layer before; later layers are not built. null: the
            model's output, after a last norm if there is any.
        activation_checkpointing: keep only the states between trainable layers, and recompute the others in the
            backward pass.
        compile: compile the layers with torch.compile.
        first_patch_only: return the feature of the first patch only; an ablation.
    """

    path: str | None = None
    config: dict[str, Any] | None = None
    trainable: TowerTrainable = "none"
    last_n_layers: int = 2
    feature_layer: int | None = None
    activation_checkpointing: bool = False
    compile: bool = False
    first_patch_only: bool = False

    def check(self) -> None:
        """Raise ValueError if the settings contradict each other.

        Not in __post_init__, because jsonargparse would bury the message.
        """
        if (self.path is None) == (self.config is None):
            raise ValueError(
                "vision_tower takes either path (a pretrained model) or config (one with random weights); "
                + ("neither is" if self.path is None else "both are")
                + " given"
            )
        if self.trainable == "last_n_layers":
            check_number("vision_tower.last_n_layers", self.last_n_layers, at_least=1)
