"""Wraps the processor of a pretrained image-text model, with the properties that chats and exports depend on."""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from datamodules.multimodal.text.bpe_tokenizer import PLACEHOLDER
from datamodules.vision_language.pretrained.processor_loading import load_processor

if TYPE_CHECKING:
    from transformers import ProcessorMixin

_FILES = (
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "chat_template.jinja",
    "chat_template.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt",
)  # fmt: skip
"""Files of a processor, of any release of transformers."""


class ProcessorSource(NamedTuple):
    """The processor of a pretrained image-text model, as the module names it for its data (`processor_source`)."""

    path: str  # the model's name in the config
    folder: Path  # its files
    image_settings: Mapping[str, Any]  # settings of the image processor that differ from its files
    unpacked: str | None  # why its chats cannot be packed; None if they can


@runtime_checkable
class ProcessorModule(Protocol):
    """A module whose pretrained model has a processor of its own. Its data are encoded with that processor."""

    @property
    def processor_source(self) -> ProcessorSource:
        """Where the processor is, and the settings of its images."""


class ModelProcessor:
    """Tokenizer, image processor and chat template of a pretrained image-text model.

    Args:
        path: the model's name in the config, for messages.
        folder: the model's files.
        image_settings: settings of the image processor that differ from its files.

    Raises:
        ValueError: see `load_processor`; or the tokenizer has no end-of-text token.
    """

    processor: "ProcessorMixin"
    image_token: int
    """Token that stands for a feature vector of an image."""

    def __init__(self, path: str, folder: Path, image_settings: Mapping[str, Any] | None = None) -> None:
        self.name, self.folder, self.image_settings = path, folder, dict(image_settings or {})
        self.processor, self.image_token = load_processor(path, folder, self.image_settings)
        tokenizer = self.processor.tokenizer
        # Files may have been saved with truncation and padding enabled.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        if tokenizer.eos_token_id is None:
            raise ValueError(f"model.init_args.path: the tokenizer of {path} has no end-of-text token (eos_token)")
        self.end_of_text: int = tokenizer.eos_token_id
        self.pad: int = self.end_of_text if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    @cached_property
    def template(self) -> str | None:
        """Chat template of the processor, else of its tokenizer; None if there is none."""
        found = getattr(self.processor, "chat_template", None) or self.processor.tokenizer.chat_template
        # Some tokenizers have several templates by name.
        if isinstance(found, dict):
            found = found.get("default")
        return found or None

    def render(self, turns: Any, **arguments: Any) -> tuple[str, list[tuple[int, int]]]:
        """Render a chat by the template.

        Args:
            turns: messages whose contents are lists of parts.
            arguments: of the template, or `return_assistant_tokens_mask`.

        Returns:
            The text, and the generations that the template marks in it, as (first character, end).
        """
        from transformers.utils.chat_template_utils import render_jinja_template

        special = self.processor.tokenizer.special_tokens_map
        options: dict[str, Any] = {**special, "chat_template": self.template, **arguments}
        rendered: Any = render_jinja_template(conversations=[turns], **options)
        texts, marks = rendered
        return texts[0], marks[0] if marks else []

    @cached_property
    def keeps_newlines(self) -> bool:
        """Whether the newline after an image belongs to the text: in directories that Lockstep exported."""
        # Some of its exports have another token at the place of an image, but all have this one in the vocabulary.
        return PLACEHOLDER in self.processor.tokenizer.get_vocab()

    @cached_property
    def control(self) -> re.Pattern[str]:
        """Pattern of special tokens, which in a text would be parsed as chat structure."""
        tokens = self.processor.tokenizer.added_tokens_decoder.values()
        special = {token.content for token in tokens if token.special}
        special |= {token for token in (getattr(self.processor, "image_token", None),) if token}
        return re.compile("|".join(sorted(map(re.escape, special), key=len, reverse=True)))

    @cached_property
    def end_of_turn(self) -> int | None:
        """Special token with which the chat template ends the assistant's turn; None if it does not end the turn."""
        answer = "42"
        turns = [("user", "7"), ("assistant", answer)]
        chat = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in turns]
        text, _ = self.render(chat)
        # Searched after the answer, because the template writes special tokens before it, too.
        match = self.control.search(text, text.rindex(answer))
        return None if match is None else self.processor.tokenizer.convert_tokens_to_ids(match.group())

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        turn = None if self.template is None else self.end_of_turn
        return tuple(dict.fromkeys(token for token in (turn, self.end_of_text) if token is not None))

    @cached_property
    def black(self) -> tuple[float, ...]:
        """Values of a black pixel after normalization, one per channel."""
        images: Any = self.processor.image_processor
        if not getattr(images, "do_normalize", False):
            return (0.0, 0.0, 0.0)
        # Pixels of 0 become (0 - mean) / std.
        return tuple(-mean / std for mean, std in zip(images.image_mean, images.image_std, strict=True))

    @cached_property
    def identity(self) -> str:
        """SHA-256 of vocabulary, chat template and image settings. Equal identities encode a chat alike."""
        tokenizer = self.processor.tokenizer
        images = {key: repr(value) for key, value in self.processor.image_processor.to_dict().items()}
        # The class of an image processor depends on whether torchvision is installed.
        images.pop("image_processor_type", None)
        content = json.dumps([sorted(tokenizer.get_vocab().items()), self.template, images], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode an answer up to its end token, without special tokens."""
        found = [int(token) for token in tokens]
        end = next((index for index, token in enumerate(found) if token in self.ends), len(found))
        return self.processor.tokenizer.decode(found[:end], skip_special_tokens=True).strip()

    def save(self, folder: Path) -> None:
        """Copy the processor's files, with the changed settings of the image processor in them."""
        for name in _FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)
        templates = self.folder / "additional_chat_templates"
        if templates.is_dir():
            shutil.copytree(templates, folder / templates.name)
        if self.image_settings:
            for name in _FILES[:2]:
                self._write_image_settings(folder / name)

    def _write_image_settings(self, file: Path) -> None:
        if not file.is_file():
            return
        settings = json.loads(file.read_text(encoding="utf-8"))
        section = settings if file.name == _FILES[0] else settings.get("image_processor")
        # preprocessor_config.json is the section itself, processor_config.json may contain it.
        if section is not None:
            section.update(self.image_settings)
            file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
