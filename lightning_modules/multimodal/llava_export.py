"""Writes a trained model as a LlavaForConditionalGeneration of transformers, where its parts allow that.

    DIR/config.json, generation_config.json, model.safetensors   the model, in one format of numbers
    DIR/tokenizer.json, tokenizer_config.json, chat_template.jinja
    DIR/processor_config.json                                    how images are prepared and where their tokens go
"""

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from datamodules.multimodal.batch import ImageLayout, Images
from lightning_modules.multimodal.compiled import uncompiled
from lightning_modules.multimodal.language_model import LanguageModel
from lightning_modules.multimodal.output_scores import plain_scores
from lightning_modules.multimodal.projector import Projector
from lightning_modules.multimodal.vision_tower import VisionTower

if TYPE_CHECKING:
    from transformers import LlavaConfig, LlavaForConditionalGeneration, PreTrainedModel, PreTrainedTokenizerFast

log = logging.getLogger("lockstep")

_NOT_USED = ("post_layernorm", "layernorm", "pooler", "head", "embeddings.mask_token")
"""Weights of a tower that its features are not made with; transformers builds them all the same."""


class Parts(NamedTuple):
    """What becomes one model."""

    tower: VisionTower
    projector: Projector
    language_model: LanguageModel
    layout: ImageLayout
    placeholder: int  # the token that stands where a feature goes
    fit: Literal["stretch", "pad", "crop"] = "stretch"  # how an image becomes a square


def obstacles(parts: Parts, merge: bool) -> list[str]:
    """Why it cannot be a LlavaForConditionalGeneration, part by part; nothing where it can.

    Args:
        merge: the language model is to be written whole in any case, with its adapters merged.
    """
    found = [*_of_tower(parts), *_of_projector(parts), *_of_language_model(parts.language_model, merge)]
    if not found:
        found = _of_what_it_computes(parts)
    return found


class Answering(NamedTuple):
    """How answers are written."""

    end_of_turn: int  # the token that ends an answer
    pad: int  # the token that prompts are padded with
    longest: int  # tokens of the longest answer


def write(parts: Parts, folder: Path, tokenizer: "PreTrainedTokenizerFast", answering: Answering) -> None:
    """Uses the language model up: its adapters are merged, its weights get one format.

    Args:
        folder: is there, and empty.
        tokenizer: with a chat template that takes images.
    """
    from transformers import GenerationConfig

    if parts.language_model.settings.trainable == "lora":
        parts.language_model.network.merge_and_unload()  # in its place: `causal` is the merged one from here on
    model = assembled(parts).to(_format(parts.language_model))
    # The most likely token, as in our own evaluations, whatever a pretrained model's own settings are; and none of the
    # spare rows that many models have beyond their tokenizer's tokens.
    spare = list(range(parts.language_model.vocabulary, model.config.text_config.vocab_size))
    model.generation_config = GenerationConfig(
        eos_token_id=answering.end_of_turn,
        pad_token_id=answering.pad,
        max_new_tokens=answering.longest,
        suppress_tokens=spare or None,
        do_sample=False,
    )
    model.save_pretrained(folder)
    processor(parts, tokenizer).save_pretrained(folder)


def assembled(parts: Parts) -> "LlavaForConditionalGeneration":
    """The model of transformers; projector, language model and what is in them are shared with ours."""
    from transformers import LlavaForConditionalGeneration

    config = _config(parts)
    with torch.device("meta"):  # its own weights are never needed
        model = LlavaForConditionalGeneration(config)
    causal = parts.language_model.causal
    model.model.vision_tower = _tower(parts.tower, config.vision_config)
    linear = [layer for layer in parts.projector.layers if isinstance(layer, nn.Linear)]
    model.model.multi_modal_projector.linear_1, model.model.multi_modal_projector.linear_2 = linear
    model.model.language_model = causal.get_decoder()
    model.lm_head = causal.get_output_embeddings()
    return model.eval()


def processor(parts: Parts, tokenizer: "PreTrainedTokenizerFast") -> Any:
    """A LlavaProcessor that makes of images and texts what ours are made of."""
    from transformers import LlavaProcessor

    return LlavaProcessor(
        image_processor=_image_processor(parts),
        tokenizer=tokenizer,
        patch_size=parts.tower.network.config.patch_size,
        vision_feature_select_strategy=_strategy(parts.tower),
        num_additional_image_tokens=parts.tower.own_tokens,
        image_token=tokenizer.convert_ids_to_tokens(parts.placeholder),
        chat_template=tokenizer.chat_template,
    )


def _image_processor(parts: Parts) -> Any:
    """Makes an image the tower's square, as ours does, to the same pixels; these need no torchvision."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    (scale, mean, deviation), edge = parts.tower.normalisation, parts.layout.size
    numbers = {"rescale_factor": scale, "image_mean": list(mean), "image_std": list(deviation)}
    square = {"height": edge, "width": edge}
    if parts.fit == "pad":
        return LlavaImageProcessorPil(size=square, do_pad=True, do_center_crop=False, **numbers)
    if parts.fit == "crop":
        return CLIPImageProcessorPil(size={"shortest_edge": edge}, crop_size=square, **numbers)
    return SiglipImageProcessorPil(size=square, **numbers)


def _config(parts: Parts) -> "LlavaConfig":
    from transformers import LlavaConfig

    tower = parts.tower.network.config.to_dict()
    for of_backbones in ("out_features", "out_indices", "stage_names"):  # they may name layers that were not built
        tower.pop(of_backbones, None)
    # Otherwise Llava would take what the last layer hands out before the norm behind it.
    tower["tie_last_hidden_states"] = parts.tower.settings.feature_layer is None
    return LlavaConfig(
        vision_config=tower,
        text_config=parts.language_model.causal.config.to_dict(),
        image_token_index=parts.placeholder,
        image_seq_length=parts.layout.tokens,
        projector_hidden_act="gelu",
        vision_feature_select_strategy=_strategy(parts.tower),
        vision_feature_layer=-1,  # of the layers that are there: those behind it were never built
    )


def _strategy(tower: VisionTower) -> str:
    return "default" if tower.own_tokens else "full"


def _tower(tower: VisionTower, config: Any) -> "PreTrainedModel":
    """The tower as transformers builds it, with ours' weights."""
    from transformers import AutoModel

    network = AutoModel.from_config(config)
    found = network.load_state_dict(tower.network.state_dict(), strict=False)
    lacking = [name for name in found.missing_keys if not name.startswith(_NOT_USED)]
    if lacking or found.unexpected_keys:
        raise ValueError(f"vision_tower: {type(network).__name__} lacks or does not know {lacking or found[1]}")
    return network.to(next(tower.network.parameters()).dtype)


def _format(language_model: LanguageModel) -> torch.dtype:
    """One for all, as transformers reads all weights in one: that of the language model, which is most of them."""
    mixed = language_model.settings.trainable == "last_n_layers"
    return language_model.precision.trained if mixed else language_model.causal.dtype


# -- what does not allow it ------------------------------------------------------------------------------------------


def _of_tower(parts: Parts) -> list[str]:
    tower, found = parts.tower, []
    if tower.network.config.model_type == "siglip2_vision_model":
        found.append("vision_tower: a siglip2_vision_model reads patches, Llava hands out images")
    if tower.own_tokens > 1:
        found.append(f"vision_tower: {tower.own_tokens} tokens stand before the patches, Llava leaves out one at most")
    if tower.settings.first_patch_only:
        found.append("vision_tower.first_patch_only: Llava takes all patches")
    if parts.layout.max_tiles > 1:
        found.append("data.init_args.max_tiles: Llava splits no images")
    return found


def _of_projector(parts: Parts) -> list[str]:
    settings, width = parts.projector.settings, parts.language_model.hidden_size
    if settings.kind != "mlp":
        return [f"projector.kind: {settings.kind}, Llava has mlp alone"]
    found = []
    if settings.layer_norm:
        found.append("projector.layer_norm: Llava's projector ends without one")
    if settings.hidden_size not in (None, width):
        found.append(f"projector.hidden_size: {settings.hidden_size}, Llava's is the language model's, {width}")
    return found


def _of_language_model(language_model: LanguageModel, merge: bool) -> list[str]:
    from transformers import AutoModel

    trainable, causal = language_model.settings.trainable, language_model.causal
    if not merge and trainable in ("none", "lora"):
        why = "it is frozen" if trainable == "none" else "adapters to it are written"
        return [f"language_model: {why}, Llava needs it whole: add --merge"]
    kind = causal.config.model_type
    try:
        with torch.device("meta"):
            plain = AutoModel.from_config(causal.config)
    except ValueError:
        return [f"language_model: Llava cannot be built on a {kind}"]
    scores = causal.get_output_embeddings()
    altered = getattr(scores, "bias", None) is not None or not plain_scores(causal.config)
    if type(plain) is not type(causal.get_decoder()) or altered:
        return [f"language_model: a {kind} has parts that Llava has no place for"]
    return []


@torch.no_grad()
def _of_what_it_computes(parts: Parts) -> list[str]:
    """Some towers hand out another layer's states, some language models scale embeddings or scores on their way."""
    kinds = parts.tower.network.config.model_type, parts.language_model.causal.config.model_type
    allowed = 1e-4 if _format(parts.language_model) == torch.float32 else 0.05
    for part, kind, (theirs, ours) in zip(("vision_tower", "language_model"), kinds, _computed(parts), strict=True):
        difference = float((theirs.float() - ours.float()).abs().max() / ours.float().abs().max())
        if not difference <= allowed:
            return [f"{part}: inside Llava a {kind} computes otherwise (by {difference:.1%})"]
    return []


def _computed(parts: Parts) -> Iterator[tuple[Tensor, Tensor]]:
    """By Llava and by ours: features, then scores, of a chat of nothing in particular with a picture of noise in it."""
    numbers = torch.Generator().manual_seed(0)
    size, tower, language_model = parts.layout.size, parts.tower, parts.language_model
    pixels = torch.randint(256, (1, 3, size, size), generator=numbers, dtype=torch.uint8)
    words = torch.randint(parts.placeholder, (16,), generator=numbers)
    tokens = torch.cat((words[:6], torch.full((parts.layout.tokens,), parts.placeholder), words[6:])).unsqueeze(0)
    values = _image_processor(parts)(images=[pixels[0].numpy()], return_tensors="pt")["pixel_values"]
    model, modes = assembled(parts), [(network, network.training) for network in parts[:3]]
    dtype = language_model.precision.autocast
    try:
        for network, _ in modes:
            network.eval()
        with uncompiled(True), nullcontext() if dtype is None else torch.autocast("cpu", dtype):
            features = parts.projector(tower(Images(pixels, torch.zeros(1, dtype=torch.int64), torch.tensor([1]))))
            yield model.get_image_features(values).pooler_output[0], features[0]
            embeddings = language_model.embed(tokens)
            embeddings[tokens == parts.placeholder] = features.flatten(0, 1).to(embeddings.dtype)
            states = language_model.hidden_states(embeddings, torch.arange(tokens.shape[1]).unsqueeze(0))
            theirs = model(input_ids=tokens, pixel_values=values, use_cache=False).logits
            yield theirs, language_model.causal.get_output_embeddings()(states)
    finally:
        for network, training in modes:
            network.train(training)
