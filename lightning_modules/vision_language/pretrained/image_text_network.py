"""Wraps a pretrained image-text model that reads rows of chats, packed or one per row."""

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from datamodules.multimodal.batch import IGNORE, Prompts, TokenRows
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import Precision, set_dtypes
from lightning_modules.multimodal.language.settings import LanguageModelSettings, LoraSettings
from lightning_modules.vision_language.pretrained.image_text_classes import (
    ImageTextClass,
    find_image_text_class,
    part_weights,
    unused_weights,
)
from lightning_modules.vision_language.pretrained.mrope_positions import mrope_positions
from lightning_modules.vision_language.pretrained.settings import PartSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ImageInputs = Mapping[str, Tensor]
"""Inputs of the model for the images of a batch, by the names of its arguments; empty without images."""


class ImageTextNetwork(LanguageModel):
    """A LanguageModel with its own vision tower and connector. For shapes see LanguageModel.

    Args:
        network: the model, see `load_image_text_model`.
        settings: settings of its language model, with the `path` of the whole model.
        parts: which weights of `vision_tower` and `connector` train.
        vocabulary: number of the tokenizer's tokens.
        precision: number formats of weights and computations.
        device: where weights are quantized, see LanguageModel.
    """

    def __init__(
        self,
        network: "PreTrainedModel",
        settings: LanguageModelSettings,
        parts: Mapping[str, PartSettings],
        vocabulary: int,
        precision: Precision,
        device: torch.device | None = None,
    ) -> None:
        assert settings.path is not None
        kind = find_image_text_class(settings.path, network.config)
        # peft matches names anywhere in the model, and tower and decoder both have a `q_proj`.
        settings = replace(settings, lora=_inside_decoder(settings.lora, network))
        weights = part_weights(network, kind)  # before adapters are added
        super().__init__(settings, vocabulary, precision, device, network)
        self.kind: ImageTextClass = kind
        self.image_token: int = network.config.image_token_id
        for name, part in parts.items():
            for weight in weights[name]:
                # `freeze_and_add_adapters` froze or unfroze all weights, by the setting of the language model.
                weight.requires_grad_(part.trainable == "full")
        for weight in unused_weights(network, kind):
            weight.requires_grad_(False)
        # Number formats are set again, because weights of tower and connector may train now.
        set_dtypes(self.network, precision)

    @property
    def part_weights(self) -> dict[str, nn.ParameterList]:
        """Weights of vision tower, connector and language model, with its adapters."""
        by_part = part_weights(self.causal_lm, self.kind)
        return {name: nn.ParameterList(weights) for name, weights in by_part.items()}

    def row_states(self, rows: TokenRows, images: ImageInputs) -> Tensor:
        """Return the states [R, L, C] after the last norm of chats and their images."""
        tokens, positions = rows.tokens, rows.positions
        if self.settings.attention == "flash_attention_2":  # it separates chats within one row only
            tokens, positions = tokens.reshape(1, -1), positions.reshape(1, -1)
        with self._autocast(tokens.device):
            options = self._mask_options(tokens, positions, rows.labels, images)
            # With a cache, transformers ignores the positions and would not separate the chats.
            output = self.causal_lm.base_model(input_ids=tokens, use_cache=False, **options, **images)
        return output.last_hidden_state.reshape(*rows.tokens.shape, -1)

    def _mask_options(
        self, tokens: Tensor, positions: Tensor, labels: Tensor, images: ImageInputs
    ) -> dict[str, Tensor]:
        """Return the arguments from which transformers derives positions and attention mask."""
        is_image = tokens == self.image_token
        if self.kind.spatial:
            grids = images.get("image_grid_thw")
            return {"position_ids": mrope_positions(self.causal_lm.base_model, tokens, positions, is_image, grids)}
        if self.kind.packing_obstacle is None:
            return {"position_ids": positions}
        # One chat per row: its positions equal the row's positions, while padding counts from 0 again.
        real = positions == torch.arange(positions.shape[1], device=positions.device)
        return {"attention_mask": real.long(), "token_type_ids": self._token_types(is_image, labels != IGNORE)}

    def _token_types(self, is_image: Tensor, is_answer: Tensor) -> Tensor:
        """Return the kinds of tokens: PaliGemma distinguishes answers from questions, Gemma 3 images from texts."""
        return (is_answer if self.causal_lm.config.model_type == "paligemma" else is_image).long()

    @torch.no_grad()
    def answer(
        self, prompts: Prompts, images: ImageInputs, max_new_tokens: int, ends: Iterable[int], pad: int
    ) -> Tensor:
        """Return the most likely answers [B, at most `max_new_tokens`] to prompts, padded on the right.

        The settings of generation are the model's own, without sampling.

        Args:
            prompts: the prompts.
            images: inputs of their images.
            max_new_tokens: maximum length of an answer.
            ends: tokens that end an answer, beside the model's own.
            pad: padding token.
        """
        is_image = prompts.tokens == self.image_token
        options: dict[str, Any] = {}
        if self.kind.spatial:
            options["mm_token_type_ids"] = is_image.long()
            model: Any = self.causal_lm.base_model
            model.rope_deltas = None  # transformers would reuse the offsets of an earlier batch
        if self.kind.token_types:
            options["token_type_ids"] = self._token_types(is_image, torch.zeros_like(is_image))
        with self.evaluation_mode(prompts.tokens.device):
            generate: Any = self.causal_lm.generate
            tokens = generate(
                input_ids=prompts.tokens,
                attention_mask=prompts.mask.long(),
                generation_config=self._greedy(max_new_tokens, ends, pad),
                **options,
                **images,
            )
        return tokens[:, prompts.tokens.shape[1] :]

    def end_tokens(self, ends: Iterable[int]) -> list[int]:
        """Return these tokens and those with which the model's own settings end an answer."""
        own_ends = self.causal_lm.generation_config.eos_token_id
        return sorted({*ends, *(own_ends if isinstance(own_ends, list) else [] if own_ends is None else [own_ends])})

    def _greedy(self, max_new_tokens: int, ends: Iterable[int], pad: int) -> Any:
        # A copy is changed, because the export writes the model's own settings. Sampling options would cause warnings.
        config = copy.deepcopy(self.causal_lm.generation_config)
        config.update(do_sample=False, temperature=None, top_p=None, top_k=None, max_length=None)
        config.update(max_new_tokens=max_new_tokens, eos_token_id=self.end_tokens(ends), pad_token_id=pad)
        return config


def _inside_decoder(lora: LoraSettings, network: "PreTrainedModel") -> LoraSettings:
    """Return the settings with a pattern of full names, so that no layer of the vision tower gets an adapter."""
    decoder = network.get_decoder()
    targets = lora.target_modules
    if targets == "all-linear":
        targets = sorted({name.split(".")[-1] for name, part in decoder.named_modules() if isinstance(part, nn.Linear)})
    if not isinstance(targets, list):
        return lora
    # The decoder's name depends on the class, `model.language_model` for example.
    inside = next(name for name, part in network.named_modules() if part is decoder)
    names = "|".join(map(re.escape, targets))
    return replace(lora, target_modules=rf"{re.escape(inside)}\.(?:.*\.)?(?:{names})")
