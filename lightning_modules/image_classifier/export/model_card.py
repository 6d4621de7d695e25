"""Writes the model card of an exported image classifier."""

from engine.export.artifacts import ExportedModel
from lightning_modules.image_classifier.export.onnx_export import Classifier

_SOURCES = {
    "resnet18": 'a ResNet-18 for small images (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016)',
    "vit": 'a small Vision Transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021)',
}
_FILES = {
    "model.onnx": "the graph, for onnxruntime in any language",
    "model.safetensors": "the network's weights",
    "config.json": "how the network is built, its classes, the size of its images",
}
_USAGE = """Without Lockstep, with `pip install onnxruntime numpy pillow`, in this directory:

```python
import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

settings = json.loads(Path("config.json").read_text(encoding="utf-8"))
channels, height, width = settings["shape"]
image = ImageOps.exif_transpose(Image.open("picture.png")).convert("RGB" if channels == 3 else "L")
image = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
images = np.asarray(image).reshape(1, height, width, channels).transpose(0, 3, 1, 2)
session = onnxruntime.InferenceSession("model.onnx")
scores, probabilities = session.run(None, {{"images": images}})
answer = settings["classes"][probabilities[0].argmax()], float(probabilities[0].max())
print(answer)
```

With Lockstep:

```python
import torch

from lightning_modules.image_classifier.export.runtime import load_classifier

model = load_classifier(".")
print(model.classify(torch.from_numpy(images.copy())))
```

Input of the graph: `images` uint8 [batch, {channels}, {height}, {width}], values 0 to 255. Outputs: `scores` and
`probabilities`, float32 [batch, {classes}], in the order of `classes` in `config.json`."""


def model_card(classifier: Classifier, averaged: bool, checked: str) -> ExportedModel:
    """Return the content of the model card.

    Args:
        classifier: exported classifier.
        averaged: whether the weights are a moving average of the trained weights.
        checked: sentence on the comparison of graph and network.
    """
    (channels, height, width), number = classifier.shape, len(classifier.classes)
    weights = " Its weights are a moving average over the training." if averaged else ""
    shift = classifier.evaluation_shift
    shifted = f" A probability is the mean over all shifts of the image by up to {shift} pixels." if shift else ""
    content = (
        f"Classifies images of {height} x {width} pixels into {number} classes. It is "
        f"{_SOURCES[classifier.architecture.network]}.{weights}{shifted} "
        "It assigns one of these classes to every image, also to images of none of them."
    )
    usage = _USAGE.format(channels=channels, height=height, width=width, classes=number)
    kind = classifier.architecture.network
    title, files, tags = "image classifier", _FILES, (kind,)
    return ExportedModel(
        title=title,
        content=content,
        files=files,
        usage=usage,
        library="onnx",
        tags=tags,
        pipeline="image-classification",
        checked=checked,
    )
