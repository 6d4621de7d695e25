"""Exports a fine-tuned image-text model in its own class of transformers, or the adapters to it for peft.

DIR/config.json, generation_config.json, model.safetensors   the model
DIR/adapter_config.json, adapter_model.safetensors           or the adapters alone
DIR/tokenizer.json, chat_template.jinja, ...                 the processor's files, as the model came with them
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.vision_language.interface import ModelProcessor
from engine.export.artifacts import ExportedModel
from engine.io.atomic_file import remove
from lightning_modules.multimodal.export.model_card import base_model_licenses
from lightning_modules.multimodal.export.parts_export import without_progress_bars
from lightning_modules.vision_language.pretrained.image_text_network import ImageTextNetwork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger("lockstep")

_USAGE = """With `pip install {packages}`, in this directory:

```python
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
{load}
content = [{{"type": "image", "image": Image.open("picture.png")}}, {{"type": "text", "text": "What is shown here?"}}]
chat = [{{"role": "user", "content": content}}]
inputs = processor.apply_chat_template(
    chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
)
answer = model.generate(**inputs, do_sample=False, max_new_tokens=64)[0, inputs["input_ids"].shape[1] :]
print(processor.decode(answer, skip_special_tokens=True))
```"""
_PREFIX_USAGE = """With `pip install {packages}`, in this directory:

```python
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
{load}
inputs = processor(images=Image.open("picture.png"), text="<image>What is shown here?", return_tensors="pt")
answer = model.generate(**inputs, do_sample=False, max_new_tokens=64)[0, inputs["input_ids"].shape[1] :]
print(processor.decode(answer, skip_special_tokens=True))
```"""
_WHOLE = """
model = AutoModelForImageTextToText.from_pretrained(".")
processor = AutoProcessor.from_pretrained(".")"""
_ADAPTERS = """
from peft import PeftModel

model = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained({base!r}), ".")
processor = AutoProcessor.from_pretrained(".")"""


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
    load = _ADAPTERS.format(base=path) if adapters else _WHOLE
    packages = "transformers pillow torchvision" + (" peft" if adapters else "")
    usage = (_USAGE if processor.template else _PREFIX_USAGE).format(packages=packages, load=load)
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
