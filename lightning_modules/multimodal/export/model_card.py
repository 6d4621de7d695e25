"""Writes model cards of exported models that read another modality."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datamodules.multimodal.batch import ImageLayout
from engine.export.artifacts import ExportedModel
from engine.io.yaml_file import YamlFileError, parse_yaml
from lightning_modules.multimodal.checkpoints.base_model_identity import folder_of
from lightning_modules.multimodal.export.export_target import ExportTarget

_LONGEST_FRONT_MATTER = 1 << 16  # characters of a README that are searched

_IMAGE_TEXT = """With `pip install transformers pillow`, in this directory:

```python
from PIL import Image, ImageOps
from transformers import AutoProcessor, CLASS


READ_IMAGE


model = CLASS.from_pretrained(".")
processor = AutoProcessor.from_pretrained(".")
chat = [{"role": "user", "content": "<image>\\nWhat is shown here?"}]
text = processor.apply_chat_template(chat, add_generation_prompt=True)
inputs = processor(images=[read_image("picture.png")], text=text, return_tensors="pt")
answer = model.generate(**inputs)[0, inputs["input_ids"].shape[1] :]
print(processor.decode(answer, skip_special_tokens=True))
```"""
_READ_IMAGE = '''def read_image(path):
    """Read an image as in training: upright, 16 bits scaled to 8, transparency on white."""
    with Image.open(path) as file:
DRAFT        image = ImageOps.exif_transpose(file)
    if image.mode.startswith("I"):
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")'''
_DRAFT = """        file.draft(None, ({edge}, {edge}))  # decodes a large JPEG at a smaller scale
"""
_WHOLE = """The language model, with `pip install transformers`, in this directory:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
```"""
_ADAPTERS = """Adapters to {base}, with `pip install peft transformers`, in this directory:

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained({base!r})
model, tokenizer = PeftModel.from_pretrained(base, "."), AutoTokenizer.from_pretrained(".")
```"""
_FROZEN = "The language model is {base}, unchanged. This directory has its tokenizer, but not its weights."
_PARTS = """

The networks that compute the embeddings of the other modality are in `modality/`: `settings.json` describes them and
the token at which their outputs are inserted; `modality/*.safetensors` has their weights. Lockstep's classes of the
same names read them; transformers has no class for them."""


_IMAGE_TEXT_FILES = {
    "config.json": "how the model is built",
    "model.safetensors": "its weights",
    "generation_config.json": "the settings of generation",
    "processor_config.json": "how images are prepared and where their tokens go",
    "chat_template.jinja": "how a chat becomes text",
}


def image_text_card(
    target: ExportTarget, module: str, layout: ImageLayout, pretrained: Mapping[str, str | None]
) -> ExportedModel:
    """Return the model card's content for a model of images and text.

    Args:
        target: class of transformers that it is exported as.
        module: name of the class that trained it.
        layout: layout of its images.
        pretrained: see ExportedModel.
    """
    content = (
        f"Generates text answers to chats with images. Trained with Lockstep's {module}. Like every language model, it "
        "may state false facts. Its evaluation is below; it has not been evaluated in other respects."
    )
    edge = 2 * layout.size * layout.max_tiles  # as `decode` of the DataModules
    usage = _IMAGE_TEXT.replace("READ_IMAGE", read_image_code(edge)).replace("CLASS", target.class_name)
    return ExportedModel(
        title=f"{target.article} {target.class_name}",
        content=content,
        files=_IMAGE_TEXT_FILES,
        usage=usage,
        library="transformers",
        tags=(target.tag,),
        pipeline="image-text-to-text",
        pretrained=dict(pretrained),
    )


def read_image_code(edge: int | None) -> str:
    """Return the code of a function `read_image(path)`, which reads an image file as training does.

    Args:
        edge: length of the longest edge that is needed, in pixels; None to decode at full size.
    """
    return _READ_IMAGE.replace("DRAFT", "" if edge is None else _DRAFT.format(edge=edge))


def parts_card(
    module: str, trainable: str, merged: bool, settings: Mapping[str, Any], pretrained: Mapping[str, str | None]
) -> ExportedModel:
    """Return the model card's content for a language model, or its adapters, and the networks of its modality.

    Args:
        module: name of the class that trained it.
        trainable: `trainable` of the language model's settings.
        merged: whether the whole language model was written, with its adapters merged.
        settings: content of modality/settings.json.
        pretrained: see ExportedModel.
    """
    base = str(settings["language_model"]["name"])
    writes_whole_model = merged or trainable not in ("lora", "none")
    usage = _WHOLE if writes_whole_model else (_ADAPTERS if trainable == "lora" else _FROZEN).format(base=base)
    content = (
        f"A language model that also reads features of another modality, computed by a {settings['encoder']['class']}. "
        f"Trained with Lockstep's {module}. Like every language model, it may state false facts. Its evaluation is "
        "below; it has not been evaluated in other respects."
    )
    files = {
        "modality/settings.json": "how the networks are built, where their outputs go, and on which language model",
        "modality/encoder.safetensors": "the weights of the encoder of the other modality",
        "modality/projector.safetensors": "the weights of the projector to the language model's embeddings",
        "adapter_model.safetensors": "the adapters' weights",
        "model.safetensors": "the language model's weights",
    }
    library = "transformers" if writes_whole_model or trainable == "none" else "peft"
    return ExportedModel(
        title=f"{module}, in parts",
        content=content,
        files=files,
        usage=usage + _PARTS,
        library=library,
        tags=("multimodal",),
        pipeline=None,
        pretrained=dict(pretrained),
    )


def base_model_licenses(paths: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return {name of a pretrained model: the license in its files, or None}.

    Args:
        paths: {part: directory or name on the hub of its pretrained weights, or None}.
    """
    # A dict drops duplicates and keeps the order of the parts: vision tower, language model.
    return {path: _license(folder_of(path)) for path in dict.fromkeys(paths.values()) if path is not None}


def _license(folder: Path) -> str | None:
    """Return `license` of the front matter of a model's README."""
    readme = folder / "README.md"
    if not readme.is_file():
        return None
    with readme.open(encoding="utf-8", errors="replace") as file:
        # A README of a hub model is foreign text: of any length, in any encoding, with or without front matter.
        text = file.read(_LONGEST_FRONT_MATTER)
    if not text.startswith("---\n") or "\n---" not in text[4:]:
        return None
    try:
        front = parse_yaml(text[4 : text.index("\n---", 3) + 1], str(readme))
    except YamlFileError:
        return None
    if not isinstance(front, dict):
        return None
    name = front.get("license_name") or front.get("license")
    return None if name is None else str(name)
