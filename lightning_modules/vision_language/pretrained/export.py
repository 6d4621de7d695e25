"""Exports a fine-tuned image-text model in its own class of transformers, or the adapters to it for peft.

DIR/config.json, generation_config.json, model.safetensors   the model
DIR/adapter_config.json, adapter_model.safetensors           or the adapters alone
DIR/tokenizer.json, chat_template.jinja, ...                 the processor's files, as the model came with them
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.vision_language.interface import ModelProcessor
from engine.export.artifacts import ExportedModel
from engine.io.atomic_file import remove
from lightning_modules.multimodal.export.model_card import base_model_licenses, read_image_code
from lightning_modules.multimodal.export.parts_export import without_progress_bars
from lightning_modules.vision_language.pretrained.image_text_network import ImageTextNetwork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger("lockstep")

_USAGE = """With `pip install {packages}`, in this directory:

```python
{imports}


{read_image}


{load}
processor = AutoProcessor.from_pretrained(".")
{inputs}
answer = model.generate(**inputs, {options})[0, inputs["input_ids"].shape[1] :]
print(processor.decode(answer, skip_special_tokens=True))
```"""
_CHAT = """content = [{{"type": "image", "image": read_image("picture.png")}}, {{"type": "text", "text": {question}}}]
chat = [{{"role": "user", "content": content}}]
inputs = processor.apply_chat_template(
    chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
)"""
_PREFIX = 'inputs = processor(images=read_image("picture.png"), text="<image>What is shown here?", return_tensors="pt")'
_WHOLE = 'model = AutoModelForImageTextToText.from_pretrained(".")'
_ADAPTERS = 'model = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained({base}), ".")'
_IMPORTS = ["from PIL import Image, ImageOps", "from transformers import AutoModelForImageTextToText, AutoProcessor"]
_PEFT = "from peft import PeftModel"


def export_pretrained_model(
    network: ImageTextNetwork, processor: ModelProcessor, folder: Path, merge: bool, trained: Sequence[str]
) -> ExportedModel:
    """Write the model, or its adapters if these alone were trained and are not merged. The network is spent then.

    Args:
        network: trained model.
        processor: its processor, whose files are copied.
        folder: existing, empty directory.
        merge: write the whole model, with adapters merged.
        trained: names of trained parts beside the language model.

    Raises:
        ValueError: adapters would be exported without other weights that were trained with them.
    """
    settings = network.settings
    adapters = settings.trainable == "lora" and not merge
    # peft stores adapters alone; a trained connector or tower would be lost.
    if adapters and trained:
        raise ValueError(
            f"{' and '.join(trained)} trained beside the adapters, so these do not fit the files of {settings.path}: "
            "export the whole model with --merge"
        )
    without_progress_bars()
    title = type(network.causal_lm).__name__
    if adapters:
        # Otherwise peft asks the hub whether the embeddings were widened.
        network.adapted.save_pretrained(str(folder), save_embedding_layers=False)
        remove(folder / "README.md")  # a template without content
    else:
        _write_whole(network, processor, folder)
    processor.save(folder)
    log.info("exported as %s %s of transformers, with its processor", "adapters to a" if adapters else "a", title)
    return _describe_export(title, network, processor, adapters)


def _write_whole(network: ImageTextNetwork, processor: ModelProcessor, folder: Path) -> None:
    model: PreTrainedModel = network.merge()
    # transformers reads all weights in one format: the language model's.
    model.to(next(model.get_decoder().parameters()).dtype)
    model.generation_config.eos_token_id = network.end_tokens(processor.ends)
    model.save_pretrained(str(folder))


def _describe_export(title: str, network: ImageTextNetwork, processor: ModelProcessor, adapters: bool) -> ExportedModel:
    path = str(network.settings.path)
    packages = "transformers pillow torchvision" + (" peft" if adapters else "")
    usage = _USAGE.format(
        packages=packages,
        imports="\n".join(sorted([*_IMPORTS, _PEFT] if adapters else _IMPORTS)),
        load=_ADAPTERS.format(base=_quoted(_base_of(path))) if adapters else _WHOLE,
        read_image=read_image_code(None),
        inputs=_inputs_code(processor),
        options=_generation_code(network, processor, adapters),
    )
    content = (
        f"Generates text answers to chats with images: {path}, fine-tuned with Lockstep. Like every language model, it "
        "may state false facts. Its evaluation is below; it has not been evaluated in other respects."
    )
    files = {
        "config.json": "how the model is built",
        "model.safetensors": "its weights",
        "adapter_model.safetensors": "the adapters' weights",
        "generation_config.json": "the settings of generation",
        "preprocessor_config.json": "how images are prepared",
        "processor_config.json": "how images are prepared and where their tokens go",
        "chat_template.jinja": "how a chat becomes text",
    }
    library = "peft" if adapters else "transformers"
    licenses = base_model_licenses({"model": path})
    name = f"adapters to a {title}" if adapters else f"a {title}"
    return ExportedModel(
        title=name,
        content=content,
        files=files,
        usage=usage,
        library=library,
        tags=(),
        pipeline="image-text-to-text",
        pretrained=licenses,
    )


def _inputs_code(processor: ModelProcessor) -> str:
    if not processor.template:
        return _PREFIX
    return _CHAT.format(question=_quoted("\n" * processor.keeps_newlines + "What is shown here?"))


def _generation_code(network: ImageTextNetwork, processor: ModelProcessor, adapters: bool) -> str:
    """Return the arguments of `generate` with which answers end as those of `predict`."""
    options = "do_sample=False, max_new_tokens=64"
    ends = network.end_tokens(processor.ends)
    # An export of the whole model has these tokens in its own generation_config.json, adapters use the base model's.
    if adapters and ends != network.end_tokens(()):
        options += f", eos_token_id={ends}"
    return options


def _base_of(path: str) -> str:
    """Return the name on the hub, or the absolute path of a directory: the code runs in another directory."""
    folder = Path(path).expanduser()
    return str(folder.resolve()) if folder.is_dir() else path


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
