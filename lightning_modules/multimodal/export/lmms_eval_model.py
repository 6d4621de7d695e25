"""Evaluates an exported image-text model of transformers in lmms-eval, as its model `lockstep`.

    python -m lmms_eval --model lockstep --model_args pretrained=DIRECTORY --tasks mme --batch_size 1

lmms-eval finds the model by the entry point in setup.cfg. It has the interface of the "simple" models of lmms-eval 0.7.
Source: https://github.com/EvolvingLMMs-Lab/lmms-eval, lmms_eval/api/model.py and lmms_eval/api/task.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from lmms_eval.api.model import lmms
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from engine.data.rgb_image import to_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

_PLACEHOLDER = "<|modality|>"
"""Stands in the chat templates of exports that keep the newline between an image and the question as text."""

_MAX_NEW_TOKENS = 128
"""Length of an answer if the task sets none."""


def manifest() -> Any:
    """Return the ModelManifest that registers the model; see the entry points in setup.cfg."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest("lockstep", simple_class_path=f"{__name__}.{LmmsEvalModel.__name__}")


class LmmsEvalModel(lmms):  # type: ignore[misc]  # lmms-eval is not installed where mypy runs
    """An exported model that answers requests of lmms-eval one at a time, greedily.

    Args:
        pretrained: directory that `export --merge` wrote.
        device: where the model computes; `auto` is a GPU where torch finds it, else the CPU.
        dtype: format of the weights; `auto` is the format in the directory.
        batch_size: must be 1.

    Raises:
        ValueError: another batch size is set.
    """

    is_simple = True

    def __init__(self, pretrained: str, device: str = "auto", dtype: str = "auto", batch_size: int | str = 1) -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        super().__init__()
        if int(batch_size) != 1:
            raise ValueError(f"batch_size must be 1, as the model answers one request at a time; got {batch_size}")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        self.processor = AutoProcessor.from_pretrained(pretrained)
        model: Any = AutoModelForImageTextToText.from_pretrained(pretrained, dtype=dtype)
        self.model = model.to(self.device).eval()

    @override
    @torch.inference_mode()
    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Return the greedy answer to each request, whose `args` are (text, options, images, document, task, split).

        Of the options, `max_new_tokens` limits an answer, and `until` has texts at which it is cut.
        """
        answers = []
        for request in requests:
            text, options, *document = request.args
            inputs = self._inputs(text, self._images(*document))
            tokens = int(options.get("max_new_tokens") or _MAX_NEW_TOKENS)
            written = self.model.generate(**inputs, max_new_tokens=tokens, do_sample=False, num_beams=1)
            # `generate` returns the prompt before the answer.
            answer = self.processor.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
            answers.append(_truncate_at(answer, options.get("until") or ()))
        return answers

    @override
    @torch.inference_mode()
    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Return (loss, is the answer the greedy answer) of each request; the loss is a mean over the answer's tokens.

        The base class documents a log-likelihood, but lmms-eval chooses the option with the smallest number, and its
        other models return the loss. The `args` are (text, answer, images, document, task, split), or (text, answer)
        without images. The answer may be a function of the document. One leading space, by which tasks separate it
        from the text, is removed, because the chat template separates them.

        Raises:
            ValueError: an answer is empty.
        """
        results = []
        for request in requests:
            text, answer, *document = request.args
            if callable(answer):
                answer = answer(self._document(*document[1:]))
            target = self.processor.tokenizer(answer.removeprefix(" "), add_special_tokens=False)["input_ids"]
            if not target:
                raise ValueError(f"expected an answer with a token, found {answer!r} for the question {text!r}")
            inputs, tokens = self._inputs(text, self._images(*document)), torch.tensor([target], device=self.device)
            # [T, V]: position i predicts token i + 1, so the logits of the answer's last token are dropped.
            logits = self.model(**_append_tokens(inputs, tokens)).logits[0, -tokens.shape[1] - 1 : -1]
            loss = functional.cross_entropy(logits.float(), tokens[0]).item()
            results.append((loss, bool((logits.argmax(-1) == tokens[0]).all())))
        return results

    @override
    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refuse tasks whose next question depends on the last answer.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the model `lockstep` has no tasks of several rounds; choose another task")

    def _document(self, number: Any, task: str, split: str) -> Any:
        return self.task_dict[task][split][number]

    def _images(self, find: Callable[[Any], Any] | None = None, *document: Any) -> "list[Image]":
        """Return the images of a request's document, in RGB as in training."""
        images = (find(self._document(*document)) or []) if find is not None else []
        return [_as_trained(image) for image in images]

    def _inputs(self, text: str, images: "list[Image]") -> dict[str, Tensor]:
        """Return what the model reads: the chat with one question about the images, tokens of shape (1, length)."""
        # Such exports were trained with a newline between image and question, and their template does not add it.
        keeps_newline = images and _PLACEHOLDER in (self.processor.chat_template or "")
        question = {"type": "text", "text": f"\n{text}" if keeps_newline else text}
        chat = [{"role": "user", "content": [*({"type": "image", "image": image} for image in images), question]}]
        inputs = self.processor.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        # Pixels are float32; the model may have been loaded in bf16.
        floats = {name: value.to(self.model.dtype) for name, value in inputs.items() if value.is_floating_point()}
        return {name: value.to(self.device) for name, value in {**inputs, **floats}.items()}


def _as_trained(image: Any) -> "Image":
    """Return an image as the model was trained with it: upright, 16 bits scaled to 8, transparency on white."""
    from PIL import Image, ImageOps

    if not isinstance(image, Image.Image):
        raise ValueError(
            f"expected images, found a {type(image).__name__}; tasks of videos and sounds are not supported"
        )
    return to_rgb(ImageOps.exif_transpose(image))


def _append_tokens(inputs: Mapping[str, Tensor], tokens: Tensor) -> dict[str, Tensor]:
    """Append the tokens of an answer, of shape (1, length): attended to, and of the type text where there are types."""
    length = inputs["input_ids"].shape
    fill = {name: torch.zeros_like(tokens) for name, value in inputs.items() if value.shape == length}
    fill.update(input_ids=tokens, attention_mask=torch.ones_like(tokens))
    return {name: torch.cat([value, fill[name]], 1) if name in fill else value for name, value in inputs.items()}


def _truncate_at(answer: str, until: str | Sequence[str]) -> str:
    """Return an answer up to the first of some texts."""
    for end in [until] if isinstance(until, str) else until:
        answer = answer.partition(end)[0] if end else answer
    return answer.strip()
