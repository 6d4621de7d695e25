"""Checks whether a trained model can be exported as a class of transformers."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lightning_modules.multimodal.connector.feature_order import order_features
from lightning_modules.multimodal.export.export_target import ExportTarget, ModelParts, weight_format
from lightning_modules.multimodal.language.compile import uncompiled
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.logit_processing import has_plain_logits

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def incompatibilities(target: ExportTarget, parts: ModelParts, merge: bool) -> list[str]:
    """Return the reasons why a model cannot be exported as a class, part by part; none if it can.

    Args:
        target: the class.
        parts: parts of the trained model.
        merge: whether the language model is written whole, with its adapters merged.
    """
    # Settings first: the comparison of outputs builds the whole model, and needs parts that fit.
    reasons = [*target.incompatibilities(parts), *_check_language_model(parts.language_model, merge, target.name)]
    return reasons or _compare_outputs(target, parts)


def _check_language_model(language_model: LanguageModel, merge: bool, name: str) -> list[str]:
    from transformers import AutoModel

    trainable, causal = language_model.settings.trainable, language_model.causal_lm
    if not merge and trainable in ("none", "lora"):
        why = "it is frozen" if trainable == "none" else "adapters to it are written"
        return [f"language_model: {why}, {name} needs it whole: add --merge"]
    kind = causal.config.model_type
    try:
        with torch.device("meta"):
            # The class builds its language model by AutoModel; without values, only to learn which class that is.
            plain = AutoModel.from_config(causal.config)
    except ValueError:
        return [f"language_model: {name} cannot be built on a {kind}"]
    scores = causal.get_output_embeddings()
    # The class has an output layer of its own, a linear layer without bias, and does not process its logits.
    altered = getattr(scores, "bias", None) is not None or not has_plain_logits(causal.config)
    if type(plain) is not type(causal.get_decoder()) or altered:
        return [f"language_model: a {kind} has layers that {name} does not support"]
    return []


@torch.no_grad()
def _compare_outputs(target: ExportTarget, parts: ModelParts) -> list[str]:
    """Compare outputs: some towers return another layer's states, some language models scale embeddings or logits."""
    kinds = parts.tower.network.config.model_type, parts.language_model.causal_lm.config.model_type
    # Relative to the largest value. In 16 bits the same sums in another order differ by some percent.
    allowed = 1e-4 if weight_format(parts.language_model) == torch.float32 else 0.05
    for part, kind, (theirs, ours) in zip(
        ("vision_tower", "language_model"), kinds, _compute_outputs(target, parts), strict=True
    ):
        difference = float((theirs.float() - ours.float()).abs().max() / ours.float().abs().max())
        # Written with `not`, so that NaN counts as different.
        if not difference <= allowed:
            return [f"{part}: outputs of a {kind} differ by {difference:.1%} inside {target.name}"]
    return []


def _compute_outputs(target: ExportTarget, parts: ModelParts) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features, then logits, by the class and by the parts, for a random chat with a random image."""
    from PIL import Image

    numbers = np.random.default_rng(0)
    size, language_model, placeholder = parts.layout.size, parts.language_model, parts.placeholder
    # Wider than high, so that padding, cropping and tiling matter; noise, so that a wrong order of patches shows.
    noise = Image.fromarray(numbers.integers(0, 256, (size, size + size // 2, 3), np.uint8))
    images = parts.prepare([noise])
    inputs = dict(target.image_processor(parts)(images=[noise], return_tensors="pt"))
    dtype = language_model.precision.autocast
    with (
        _evaluation_mode(parts),
        _restore_embeddings(language_model.causal_lm),
        uncompiled(True),
        nullcontext() if dtype is None else torch.autocast("cpu", dtype),
    ):
        model = target.build_model(parts)
        vectors = parts.projector(parts.tower(images))
        learned = target.tokens(parts)
        if learned:  # rows of the embeddings, which are not rounded as features are
            vectors = vectors.to(language_model.embed(torch.tensor(learned)).dtype)
        features = (
            vectors.flatten(0, 1) if images.order is None else order_features(vectors, parts.learned, images.order)[0]
        )
        theirs = torch.cat(list(model.get_image_features(**inputs).pooler_output))
        yield theirs, vectors.flatten(0, 1) if learned else features

        # Below the placeholder, so that no word is taken for a feature.
        words = torch.from_numpy(numbers.integers(0, placeholder, 16))
        tokens = torch.cat((words[:6], torch.full((len(features),), placeholder), words[6:])).unsqueeze(0)
        embeddings = language_model.embed(tokens)
        embeddings[tokens == placeholder] = features.to(embeddings.dtype)
        states = language_model.hidden_states(embeddings, torch.arange(tokens.shape[1]).unsqueeze(0))
        # The class finds learned vectors by tokens of their own, where training has the placeholder for all of them.
        transformers_tokens = tokens.clone()
        if learned and images.order is not None:
            names = torch.tensor([*learned, model.config.image_token_id])
            transformers_tokens[tokens == placeholder] = names[images.order.indices.clamp_max(len(learned))]
        logits = model(input_ids=transformers_tokens, use_cache=False, **inputs).logits
        yield logits, language_model.causal_lm.get_output_embeddings()(states)


@contextmanager
def _evaluation_mode(parts: ModelParts) -> Iterator[None]:
    """Put the networks into evaluation mode inside the context."""
    # Restored one by one, as each network may have a mode of its own.
    networks: tuple[nn.Module, ...] = parts.tower, parts.projector, parts.language_model
    modes = [network.training for network in networks]
    for network in networks:
        network.eval()
    try:
        yield
    finally:
        for network, training in zip(networks, modes, strict=True):
            network.train(training)


@contextmanager
def _restore_embeddings(causal: "PreTrainedModel") -> Iterator[None]:
    """Restore the embeddings of a language model after the context."""
    embeddings: Any = causal.get_input_embeddings()
    scores: Any = causal.get_output_embeddings()
    try:
        yield
    finally:
        # The target may have widened them, and the user may export as parts if the class does not fit.
        causal.set_input_embeddings(embeddings)
        causal.set_output_embeddings(scores)
        causal.config.vocab_size = len(embeddings.weight)
