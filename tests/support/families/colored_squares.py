"""Defines a minimal vision-language data set: chats about up to two single-colored images."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from datamodules.multimodal.batch import ImageLayout, Images, Tiling
from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.images.image_processing import prepare_images
from datamodules.multimodal.images.tiling import Views, collate_views
from datamodules.vision_language.datamodule import VisionLanguageDataModule

COLORS = {"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220), "white": (240, 240, 240)}

TOWER = {
    "model_type": "siglip_vision_model",
    "image_size": 16,
    "patch_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
LANGUAGE_MODEL = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.08,
    "tie_word_embeddings": True,
}


class ColoredSquares(VisionLanguageDataModule):
    """`images` is how many each chat has; a list for chats in turn."""

    outcomes = ("exact",)

    def __init__(
        self,
        images: list[int] | None = None,
        num_samples: int = 64,
        edge: int = 16,
        tiling: Tiling = "tile_positions",
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self.tiling = tiling
        self.number, self.num_samples, self.edge = images or [1], num_samples, edge

    def setup(self, stage: str) -> None:
        source = Squares(self.number, self.num_samples, self.edge, self.image_layout)
        self.train_set = self.examples(source)
        self.validation_set = self.test_set = self.questions(source)
        self.predict_set = self.questions(source, in_order=True)

    def texts(self) -> Iterator[str]:
        yield from ("what colours ?", "none", *COLORS)

    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        return {"exact": (float(text.strip() == self.right_answer(sample)), 1.0)}

    def describe(self, row: int) -> dict[str, Any]:
        return {"sample": row}

    def images(self, sample: int) -> list[Any]:
        return self.evaluated.decode_images(sample)


class Squares:
    def __init__(self, images: list[int], size: int, edge: int, layout: ImageLayout) -> None:
        self.images, self.size, self.edge, self.layout = images, size, edge, layout

    def __len__(self) -> int:
        return self.size

    def name(self, index: int, epoch: int = 0) -> str:
        return str(index)

    def colours(self, index: int) -> list[str]:
        number = self.images[index % len(self.images)]
        return list(np.random.default_rng(index).choice(list(COLORS), number))

    def decode_images(self, index: int) -> list[Any]:
        from PIL import Image

        return [Image.new("RGB", (self.edge, self.edge), COLORS[color]) for color in self.colours(index)]

    def item(self, epoch: int, index: int) -> ChatItem:
        counts, views = prepare_images(self.decode_images(index), self.layout)
        answer = " ".join(self.colours(index)) or "none"
        question = "<image>" * len(counts) + "what colours ?"
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return ChatItem(messages, counts, views)

    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.layout)


def write_config(folder: Path, **model: Any) -> list[str]:
    """The options of a run that takes a second."""
    data = {"class_path": "tests.support.families.colored_squares.ColoredSquares", "init_args": {"batch_size": 16}}
    return write_run(
        folder / "vision_language.yaml", "VisionLanguageModel", {"max_new_tokens": 4, **model}, data, "val/exact"
    )


def write_run(
    path: Path, model: str, model_options: dict[str, Any], data: dict[str, Any], monitor: str, steps: int = 2
) -> list[str]:
    """The options of a short run of a model with these parts."""
    parts = {"language_model": {"config": LANGUAGE_MODEL}, "vision_tower": {"config": TOWER, "trainable": "full"}}
    config = {
        "model": {"class_path": model, "init_args": {**parts, "learning_rate": 3e-3, **model_options}},
        "data": data,
        "trainer": {
            "max_steps": steps,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "log_every_n_steps": 1,
            "num_sanity_val_steps": 0,
        },
        "best_checkpoint": {"monitor": monitor, "mode": "max"},
    }
    path.write_text(yaml.safe_dump(config))
    return ["--config", str(path)]


def write_language_model(folder: Path, seed: int = 5) -> None:
    """A checkpoint of a tiny Qwen2 with random weights and its tokenizer, as transformers writes them."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = ColoredSquares(batch_size=1).tokenizer.tokenizer
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = AutoConfig.for_model(**LANGUAGE_MODEL, vocab_size=len(tokenizer))
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


def write_tower(folder: Path, seed: int = 6) -> None:
    """A checkpoint of a tiny SigLIP tower with random weights."""
    import torch
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(seed)
    AutoModel.from_config(AutoConfig.for_model(**TOWER)).save_pretrained(folder)
