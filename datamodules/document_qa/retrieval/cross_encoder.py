"""Re-orders the best pages of another retriever by a cross-encoder, which reads question and page together."""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from datamodules.document_qa.retrieval.bm25 import page_text
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question, Retriever

_STRIDE = 64  # tokens that two successive windows of a page have in common
_LONGEST = 512  # tokens of a window, if the model takes as many
_BATCH = 16  # windows that are computed at once


class CrossEncoder(Retriever):
    """A Retriever that re-ranks the first pages of another retriever by a model of transformers, on the CPU.

    The score of a page is the model's logit for (question with its options, text of the page). A page that is longer
    than the model's input is read in windows and has the score of its best window.

    Args:
        rest: ranks the pages that are re-ordered; the others follow in its order.
        folder: a local model for sequence classification with one logit, and its fast tokenizer.
        candidates: number of pages that are re-ordered.

    Raises:
        ValueError: the folder holds no such model.
    """

    def __init__(self, rest: Retriever, folder: Path, candidates: int) -> None:
        self._rest, self._folder, self._candidates = rest, folder, candidates
        config = _config(folder)
        if config.num_labels != 1:
            raise ValueError(
                f"retriever.reranker: {folder} has {config.num_labels} labels, expected one, the relevance"
            )

    def __getstate__(self) -> dict[str, Any]:
        # A loader worker loads the model itself, when it ranks for the first time.
        return {name: value for name, value in vars(self).items() if name not in ("_model", "_tokenizer")}

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        ranked = self._rest.rank(document, question)
        first = ranked[: self._candidates]
        text = "\n".join((question.question, *question.options))
        scores = self.scores(text, [page_text(document.pages[page - 1]) for page in first])
        order = sorted(range(len(first)), key=lambda index: -scores[index])  # stable: equal pages keep their order
        return [first[index] for index in order] + ranked[self._candidates :]

    def scores(self, question: str, pages: list[str]) -> list[float]:
        """Return the score of each page."""
        if not pages:
            return []
        room = self._length - self._tokenizer.num_special_tokens_to_add(pair=True)
        stride = min(_STRIDE, room // 4)
        # The tokenizer fails on a question that leaves no room for a page's windows; the question is truncated.
        offsets = self._tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) > room - 2 * stride:
            question = question[: offsets[room - 2 * stride - 1][1]]
        windows = self._tokenizer(
            [question] * len(pages),
            pages,
            truncation="only_second",
            max_length=self._length,
            stride=stride,
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        owners = windows.pop("overflow_to_sample_mapping").tolist()
        logits: list[float] = []
        with torch.inference_mode():
            for start in range(0, len(owners), _BATCH):
                part = {name: value[start : start + _BATCH] for name, value in windows.items()}
                logits += self._model(**part).logits[:, 0].float().tolist()
        best = [-torch.inf] * len(pages)
        for owner, logit in zip(owners, logits, strict=True):
            best[owner] = max(best[owner], logit)
        return best

    @property
    def _length(self) -> int:
        return min(
            _LONGEST,
            self._tokenizer.model_max_length,
            getattr(_config(self._folder), "max_position_embeddings", _LONGEST),
        )

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._folder, local_files_only=True)

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForSequenceClassification

        model = AutoModelForSequenceClassification.from_pretrained(
            self._folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
        return model.eval()


def _config(folder: Path) -> Any:
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise ValueError(
            f"retriever.reranker: {folder} has no config.json; expected a folder with a model of transformers, saved "
            "by save_pretrained, and its tokenizer"
        )
    return AutoConfig.from_pretrained(folder, local_files_only=True)
