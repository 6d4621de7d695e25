"""What the model card says of an exported model that reads another modality."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from engine.exported import Exported
from lightning_modules.multimodal.base_identity import folder_of

_LONGEST_FRONT_MATTER = 1 << 16  # characters of a README that are looked at

_LLAVA = """With `pip install transformers pillow`, in this directory:

```python
from PIL import Image
from transformers import AutoProcessor, LlavaForConditionalGeneration

model = LlavaForConditionalGeneration.from_pretrained(".")
processor = AutoProcessor.from_pretrained(".")
chat = [{"role": "user", "content": "<image>\\nWhat is shown here?"}]
text = processor.apply_chat_template(chat, add_generation_prompt=True)
inputs = processor(images=[Image.open("picture.png").convert("RGB")], text=text, return_tensors="pt")
print(processor.decode(model.generate(**inputs)[0], skip_special_tokens=True))
```"""
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
_FROZEN = "The language model is {base} as its own files have it; here are its tokenizer and what reads for it."
_PARTS = """

What makes embeddings of the other modality lies in `modality/`: `settings.json` says how its networks are built and at
which token their outputs go; their weights are in `modality/*.safetensors`. Lockstep's classes of the same names read
them; there is no class of transformers for them."""


def described_llava(module: str, pretrained: Mapping[str, str | None]) -> Exported:
    """A LlavaForConditionalGeneration.

    Args:
        module: name of the class that trained it.
        pretrained: as in Exported.
    """
    content = (
        f"Answers in words to chats with images; trained by Lockstep's {module}. As every language model it may "
        "state what is not so; what it was evaluated on is below, and it has been examined for nothing else."
    )
    return Exported(
        "a LlavaForConditionalGeneration", content, _LLAVA_FILES, _LLAVA, "transformers", ("llava",),
        "image-text-to-text", dict(pretrained),
    )  # fmt: skip


_LLAVA_FILES = {
    "config.json": "how the model is built",
    "model.safetensors": "its weights",
    "generation_config.json": "how answers are written",
    "processor_config.json": "how images are prepared and where their tokens go",
    "chat_template.jinja": "how a chat becomes text",
}


def described_parts(
    module: str, trainable: str, merged: bool, settings: Mapping[str, Any], pretrained: Mapping[str, str | None]
) -> Exported:
    """A language model, or adapters to one, and the networks that read for it.

    Args:
        module: name of the class that trained it.
        trainable: of the language model, as in its settings.
        merged: it has been written whole, whatever trained.
        settings: as in modality/settings.json.
        pretrained: as in Exported.
    """
    base = str(settings["language_model"]["name"])
    whole = merged or trainable not in ("lora", "none")
    usage = _WHOLE if whole else (_ADAPTERS if trainable == "lora" else _FROZEN).format(base=base)
    content = (
        f"A language model that also reads what a {settings['encoder']['class']} makes of another modality; trained by "
        f"Lockstep's {module}. As every language model it may state what is not so; what it was evaluated on is below, "
        "and it has been examined for nothing else."
    )
    files = {
        "modality/settings.json": "how the networks are built, where their outputs go, and on which language model",
        "modality/encoder.safetensors": "what reads the other modality",
        "modality/projector.safetensors": "what makes embeddings of it",
        "adapter_model.safetensors": "the adapters' weights",
        "model.safetensors": "the language model's weights",
    }
    library = "transformers" if whole or trainable == "none" else "peft"
    return Exported(
        f"{module}, in parts", content, files, usage + _PARTS, library, ("multimodal",), None, dict(pretrained)
    )


def licences(paths: Mapping[str, str | None]) -> dict[str, str | None]:
    """Of pretrained models that have been loaded: by their names, the licence that their files state.

    Args:
        paths: by the part that was begun with it, its folder or its name on the hub; None: with random weights.
    """
    return {path: _stated(folder_of(path)) for path in dict.fromkeys(paths.values()) if path is not None}


def _stated(folder: Path) -> str | None:
    """`license` in the front matter of a model's README."""
    readme = folder / "README.md"
    if not readme.is_file():
        return None
    with readme.open(encoding="utf-8", errors="replace") as file:
        text = file.read(_LONGEST_FRONT_MATTER)
    if not text.startswith("---\n") or "\n---" not in text[4:]:
        return None
    try:
        front = yaml.safe_load(text[4 : text.index("\n---", 3) + 1])
    except yaml.YAMLError:
        return None
    if not isinstance(front, dict):
        return None
    stated = front.get("license_name") or front.get("license")
    return None if stated is None else str(stated)
