"""Defines the model in plain transformers, and its samples as a plain data set, for other training loops.

Written from the description of LLaVA (Liu et al., 2023, arXiv 2304.08485, section 4): features of a frozen tower go
through two layers and replace the image tokens; every sample is a row, padded to the longest of its batch.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from benchmarks.vision_language.models import Sizes
from datamodules.multimodal.batch import IGNORE
from datamodules.multimodal.chat_dataset import ChatExamples
from engine.data.epoch_order import global_batches


class PlainLlava(nn.Module):
    """Tower, projector and language model; only the tower is frozen.

    Args:
        sizes: sizes of the parts; weights are random.
        vocabulary: number of tokens of the language model.
        placeholder: token that an embedding of an image replaces.
    """

    def __init__(self, sizes: Sizes, vocabulary: int, placeholder: int) -> None:
        from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

        super().__init__()
        tower, language_model = dict(sizes.tower), dict(sizes.language_model)
        kinds = tower.pop("model_type"), language_model.pop("model_type")
        self.tower = AutoModel.from_config(AutoConfig.for_model(kinds[0], vision_use_head=False, **tower))
        self.tower.eval().requires_grad_(False)
        settings = AutoConfig.for_model(kinds[1], **language_model, vocab_size=vocabulary)
        self.language_model = AutoModelForCausalLM.from_config(settings)
        width = language_model["hidden_size"]
        self.projector = nn.Sequential(nn.Linear(tower["hidden_size"], width), nn.GELU(), nn.Linear(width, width))
        self.placeholder = placeholder

    def forward(self, tokens: Tensor, labels: Tensor, pixels: Tensor, positions: Tensor | None = None) -> Any:
        """Return the mean loss in the form that Hugging Face's Trainer expects.

        Args:
            tokens: [R, L].
            labels: [R, L], IGNORE for positions without supervision.
            pixels: [V, 3, S, S] uint8, the views in the order of their tokens.
            positions: [R, L]; None: each row is a single chat.
        """
        embeddings = self.language_model.get_input_embeddings()(tokens)
        if len(pixels):
            with torch.no_grad():
                states = self.tower(pixel_values=pixels.float() / 127.5 - 1).last_hidden_state
            # [R, L, C] bool
            is_placeholder = (tokens == self.placeholder).unsqueeze(-1).expand_as(embeddings)
            embeddings = embeddings.masked_scatter(is_placeholder, self.projector(states).to(embeddings.dtype))
        scores = self.language_model(inputs_embeds=embeddings, position_ids=positions, use_cache=False).logits
        return {"loss": F.cross_entropy(scores[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())}


class PlainChat(NamedTuple):
    """A sample: the token ids of a chat, the labels of its answers, and the pixels of its views."""

    tokens: Tensor  # [n]
    labels: Tensor  # [n]
    pixels: Tensor  # [v, 3, S, S] uint8


class PlainChats(torch.utils.data.Dataset[PlainChat]):
    """Samples of Lockstep's first epoch in the order in which the engine trains on them."""

    def __init__(self, examples: ChatExamples, batch_size: int, seed: int) -> None:
        self.examples = examples
        self.batches = global_batches(len(examples), batch_size, seed, epoch=0)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, position: int) -> PlainChat:
        # The engine's order: without it, variants would pad different samples together.
        index = int(self.batches[position // self.batch_size][position % self.batch_size])
        item = self.examples.source.item(0, index)
        chat, _ = self.examples.encoder.chat(item, self.examples.source.name(index))
        tokens = torch.from_numpy(chat.tokens)
        labels = tokens.masked_fill(~torch.from_numpy(chat.supervised), IGNORE)
        return PlainChat(tokens, labels, torch.from_numpy(item.encoder_input.pixels))

    def collate(self, chats: list[PlainChat]) -> dict[str, Tensor]:
        """Collate with padding on the right."""
        pad = self.examples.encoder.pad
        return {
            "tokens": pad_sequence([chat.tokens for chat in chats], batch_first=True, padding_value=pad),
            "labels": pad_sequence([chat.labels for chat in chats], batch_first=True, padding_value=IGNORE),
            "pixels": torch.cat([chat.pixels for chat in chats]),
        }
