"""Predicts the memory of a training step of a pretrained image-text model from its config and a row of chats."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from datamodules.multimodal.batch import IGNORE, TokenRows
from engine.io.error_line import first_line
from engine.lightning_internals.tensors import ValuedIntegers
from lightning_modules.multimodal.language.memory_estimate import network_without_weights, supervised_loss
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.step_trace import MemoryEstimate, TracedStep, Workload, estimate_step
from lightning_modules.vision_language.pretrained.image_text_classes import find_image_text_class
from lightning_modules.vision_language.pretrained.image_text_network import ImageTextNetwork
from lightning_modules.vision_language.pretrained.settings import PartSettings

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_MIN_LAYERS = 2


def estimate_image_text_memory(
    config: "PretrainedConfig",
    settings: LanguageModelSettings,
    parts: Mapping[str, PartSettings],
    precision: Precision,
    work: Workload,
    rows: TokenRows,
    images: Mapping[str, Tensor],
) -> MemoryEstimate:
    """Return the memory of a training step, vision tower and connector included.

    The step of two models with few decoder layers and the whole tower runs on tensors without values. Only tokens,
    positions and sizes of images have values, from which the shapes follow. Nothing is loaded.

    Args:
        config: config of the model.
        settings: settings of its language model, with the `path` of the whole model.
        parts: which weights of `vision_tower` and `connector` train.
        precision: number formats.
        work: the step; its `tokens` and `rows` are those of `rows`.
        rows: chats.
        images: inputs of their images.

    Raises:
        ValueError: the model cannot be built from its config, or its step needs values.
    """
    settings = replace(settings, compile=False)

    def build(resized: Any) -> TracedStep:
        return _ImageTextStep(resized, settings, parts, precision, rows, images)

    # Qwen3-VL adds features of tower layers to the states of as many decoder layers.
    taps = getattr(getattr(config, "vision_config", None), "deepstack_visual_indexes", None) or ()
    fewest = max(_MIN_LAYERS, len(taps))
    try:
        return estimate_step(config, build, settings, precision, work, fewest)
    except RuntimeError as error:
        kind = find_image_text_class(str(settings.path), config).title
        raise ValueError(f"a step of {kind} does not run on tensors without values: {first_line(error)}") from error


class _ImageTextStep(TracedStep):
    """The loss of rows of chats with images."""

    phases = 5
    """Of the forward pass, the first has embeddings, vision tower and connector."""

    def __init__(
        self,
        config: Any,
        settings: LanguageModelSettings,
        parts: Mapping[str, PartSettings],
        precision: Precision,
        rows: TokenRows,
        images: Mapping[str, Tensor],
    ) -> None:
        from transformers import AutoModelForImageTextToText

        others_train = any(part.trainable != "none" for part in parts.values())
        network = network_without_weights(AutoModelForImageTextToText, config, settings, precision, others_train)
        loading = sum(parameter.nbytes for parameter in network.parameters())
        super().__init__(ImageTextNetwork(network, settings, parts, 1, precision), loading)
        self._rows, self._images = rows, images

    @override
    def batch(self) -> dict[str, Tensor]:
        """Return the images, with values of whole numbers alone."""
        return {
            name: torch.empty(array.shape, dtype=array.dtype) if array.is_floating_point() else array
            for name, array in self._images.items()
        }

    @override
    def context(self) -> AbstractContextManager[Any]:
        return ValuedIntegers()

    @override
    def forward(self, images: Mapping[str, Tensor], end_phase: Callable[[], None]) -> Tensor:
        """Return the loss, given the inputs of the images."""
        model = self.language_model
        assert isinstance(model, ImageTextNetwork)

        def on_gradient(gradient: Tensor) -> None:
            end_phase()

        def enter_decoder(module: object, args: object, options: Mapping[str, Any]) -> None:
            end_phase()
            if options["inputs_embeds"].requires_grad:
                options["inputs_embeds"].register_hook(on_gradient)

        hook = model.causal_lm.get_decoder().register_forward_pre_hook(enter_decoder, with_kwargs=True)
        states = model.row_states(self._rows, images)
        hook.remove()
        states.register_hook(on_gradient)
        targets = self._rows.labels[:, 1:]
        supervised = targets != IGNORE
        return supervised_loss(model, states[:, :-1][supervised], targets[supervised])
