"""Checks whether a trained model can be exported as a LlavaForConditionalGeneration of transformers."""

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor

from datamodules.multimodal.batch import Images
from lightning_modules.multimodal.export.llava_model import Parts, assembled, image_processor, weight_format
from lightning_modules.multimodal.language.compile import uncompiled
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.logit_processing import plain_scores


def obstacles(parts: Parts, merge: bool) -> list[str]:
    """Return the reasons why there is no such Llava, part by part; none if there is.

    Args:
        parts: parts of the trained model.
        merge: whether the language model is written whole, with its adapters merged.
    """
    reasons = [*_of_tower(parts), *_of_projector(parts), *_of_language_model(parts.language_model, merge)]
    return reasons or _of_outputs(parts)


def _of_tower(parts: Parts) -> list[str]:
    tower, found = parts.tower, []
    if tower.network.config.model_type == "siglip2_vision_model":
        found.append("vision_tower: a siglip2_vision_model reads patches, Llava passes images")
    if tower.own_tokens > 1:
        found.append(f"vision_tower: {tower.own_tokens} tokens precede the patches, Llava skips one at most")
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

    trainable, causal = language_model.settings.trainable, language_model.causal_lm
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
def _of_outputs(parts: Parts) -> list[str]:
    """Compare outputs: some towers return another layer's states, some language models scale embeddings or logits."""
    kinds = parts.tower.network.config.model_type, parts.language_model.causal_lm.config.model_type
    allowed = 1e-4 if weight_format(parts.language_model) == torch.float32 else 0.05
    for part, kind, (theirs, ours) in zip(("vision_tower", "language_model"), kinds, _computed(parts), strict=True):
        difference = float((theirs.float() - ours.float()).abs().max() / ours.float().abs().max())
        if not difference <= allowed:
            return [f"{part}: inside Llava a {kind} computes otherwise (by {difference:.1%})"]
    return []


def _computed(parts: Parts) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features, then logits, by Llava and by the parts, for a random chat with a random image."""
    numbers = torch.Generator().manual_seed(0)
    size, tower, language_model = parts.layout.size, parts.tower, parts.language_model
    pixels = torch.randint(256, (1, 3, size, size), generator=numbers, dtype=torch.uint8)
    words = torch.randint(parts.placeholder, (16,), generator=numbers)
    tokens = torch.cat((words[:6], torch.full((parts.layout.tokens,), parts.placeholder), words[6:])).unsqueeze(0)
    values = image_processor(parts)(images=[pixels[0].numpy()], return_tensors="pt")["pixel_values"]
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
            yield theirs, language_model.causal_lm.get_output_embeddings()(states)
    finally:
        for network, training in modes:
            network.train(training)
