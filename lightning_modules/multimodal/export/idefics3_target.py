"""Exports as Idefics3ForConditionalGeneration: a SigLIP tower, pixel shuffle and one linear layer."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from lightning_modules.multimodal.export.export_target import (
    ExportTarget,
    ModelParts,
    has_tied_embeddings,
    image_normalization,
    load_tower_weights,
    tower_incompatibilities,
)
from lightning_modules.multimodal.export.vision_weights import (
    SIGLIP,
    SIGLIP2,
    SIGLIP_KEYS,
    siglip_config,
    tower_weights,
)

_POSITIONS = "embeddings.position_embedding.weight"


class Idefics3(ExportTarget):
    """Idefics3ForConditionalGeneration. Special tokens of its own stand for the learned vectors."""

    name, class_name, tag = "Idefics3", "Idefics3ForConditionalGeneration", "idefics3"
    article = "an"

    @override
    def incompatibilities(self, parts: ModelParts) -> Iterator[str]:
        kind = parts.tower.network.config.model_type
        if kind not in (SIGLIP, SIGLIP2):
            yield f"vision_tower: a {kind}, Idefics3 has SigLIP alone"
        elif parts.tower.settings.feature_layer is not None:
            yield "vision_tower.feature_layer: Idefics3 reads the output after the last norm; train with null"
        yield from tower_incompatibilities(parts, self.name)
        if any(_becomes_padding(parts, value) for value in range(256)):
            yield "vision_tower: an image of one color becomes zeros, which Idefics3 takes for padding"
        settings = parts.projector.settings
        if settings.kind != "pixel_shuffle":
            yield f"projector.kind: {settings.kind}, Idefics3 has pixel_shuffle alone"
        elif settings.bias:
            yield "projector.bias: Idefics3's projector has none; train with false"
        if settings.layer_norm:
            yield "projector.layer_norm: Idefics3's projector ends without one"
        if parts.layout.tiling != "idefics3":
            yield (
                f"data.init_args.tiling: {parts.layout.tiling}, Idefics3 frames each view with learned vectors; train "
                "with idefics3"
            )
        elif existing := [token for token in self._tokens(parts) if token < parts.language_model.vocabulary]:
            names = ", ".join(parts.tokenizer.convert_ids_to_tokens(existing[:3]))
            yield f"data.init_args.tokenizer: it has {names}, which Idefics3 places around images"
        if type(parts.language_model.causal_lm.get_input_embeddings()) is not nn.Embedding:
            yield "language_model: its embeddings are computed, Idefics3 looks up those of its special tokens"

    @override
    def tokens(self, parts: ModelParts) -> list[int]:
        return self._tokens(parts)[1:]

    def _tokens(self, parts: ModelParts) -> list[int]:
        """Return the token of a feature, and the tokens of the learned vectors."""
        # The last special token ends an utterance; Idefics3's tokenizer has it, and no vector stands for it.
        tokens = parts.tokenizer.convert_tokens_to_ids(list(parts.layout.special_tokens[:-1]))
        assert isinstance(tokens, list), "as there are several names"
        return tokens

    @override
    def build_model(self, parts: ModelParts) -> Any:
        """Return the model of transformers. The language model gets rows for the special tokens."""
        from transformers import AutoModel
        from transformers.models.idefics3.configuration_idefics3 import Idefics3Config
        from transformers.models.idefics3.modeling_idefics3 import Idefics3ForConditionalGeneration

        causal = parts.language_model.causal_lm
        # Before the config is built, which takes the size of the vocabulary from the language model.
        _add_rows(parts, self.tokens(parts))
        table, edge = _arrange_positions(tower_weights(parts.tower)[_POSITIONS])
        full = siglip_config(parts.tower)
        tower = {**{key: full[key] for key in SIGLIP_KEYS}, "image_size": edge * full["patch_size"]}
        config = Idefics3Config(
            vision_config=tower,
            text_config=causal.config.to_dict(),
            tie_word_embeddings=has_tied_embeddings(parts),
            image_token_id=self._tokens(parts)[0],
            scale_factor=parts.projector.settings.factor,
        )
        with torch.device("meta"):  # its own weights are replaced
            model = Idefics3ForConditionalGeneration(config)
        weights = {**tower_weights(parts.tower), _POSITIONS: table}
        model.model.vision_model = load_tower_weights(
            AutoModel.from_config(config.vision_config), weights, parts.tower, ()
        )
        # Networks are shared and not copied: two copies of a language model might not fit into memory.
        model.model.connector.modality_projection.proj = next(
            layer for layer in parts.projector.layers if isinstance(layer, nn.Linear)
        )
        model.model.text_model = causal.get_decoder()
        model.lm_head = causal.get_output_embeddings()
        return model.eval()

    @override
    def processor(self, parts: ModelParts) -> Any:
        from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

        return Idefics3Processor(
            image_processor=self.image_processor(parts),
            tokenizer=parts.tokenizer,
            image_seq_len=parts.layout.tokens,
            chat_template=parts.tokenizer.chat_template,
        )

    @override
    def image_processor(self, parts: ModelParts) -> Any:
        from PIL.Image import Resampling
        from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

        size, tiles = parts.layout.size, parts.layout.max_tiles
        return Idefics3ImageProcessorPil(
            size={"longest_edge": tiles * size},
            max_image_size={"longest_edge": size},
            do_resize=tiles > 1,
            do_image_splitting=tiles > 1,
            resample=Resampling.BICUBIC,
            **image_normalization(parts),
        )


def _becomes_padding(parts: ModelParts, value: int) -> bool:
    """Return whether pixels of a value become zero after normalization, which transformers takes for padding."""
    scale, mean, _ = parts.tower.normalization
    return all(value * scale == middle for middle in mean)


def _arrange_positions(table: Tensor) -> tuple[Tensor, int]:
    """Return the position embeddings as Idefics3 looks them up, and the edge of their grid.

    Idefics3 computes the row of a patch as a fraction of the edge. In a grid of the same edge, rounding gives some
    patches the row of a neighbor. In a grid with an additional row, patch n has row n.
    """
    edge = int(len(table) ** 0.5)
    wide = table.new_zeros(edge + 1, edge + 1, table.shape[1])
    wide[:edge, :edge] = table.view(edge, edge, -1)
    return wide.flatten(0, 1), edge + 1


def _add_rows(parts: ModelParts, tokens: list[int]) -> None:
    """Replace the embeddings of the language model by larger ones, with the learned vectors as rows of their tokens.

    Idefics3's other special tokens get zeros, and so do new rows of the output layer.
    """
    assert parts.learned is not None, "the tiling has learned vectors"
    causal = parts.language_model.causal_lm
    embeddings: Any = causal.get_input_embeddings()
    scores: Any = causal.get_output_embeddings()
    # A tokenizer's largest id may exceed its number of tokens.
    rows = max(len(embeddings.weight), max(parts.tokenizer.get_vocab().values()) + 1)
    table = _append_rows(embeddings.weight, rows)
    table[tokens] = parts.learned.weight.detach().to(table)
    wide = nn.Embedding(rows, table.shape[1], _weight=table)
    layer = nn.Linear(table.shape[1], rows, bias=False, device="meta")  # without memory: the weight follows
    layer.weight = wide.weight if has_tied_embeddings(parts) else nn.Parameter(_append_rows(scores.weight, rows))
    causal.set_input_embeddings(wide)
    causal.set_output_embeddings(layer)
    causal.config.vocab_size = rows


def _append_rows(table: Tensor, rows: int) -> Tensor:
    longer = table.new_zeros(rows, table.shape[1])
    longer[: len(table)] = table.detach()
    return longer
