"""Evaluates questions about series: options by their likelihood, open questions by the generated answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from datamodules.multimodal.batch import ChatEvaluationBatch
from datamodules.temporal.interface import TemporalData
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.evaluation.evaluator import PredictionLine
from lightning_modules.multimodal.evaluation.generative_evaluation import GenerativeEvaluation
from lightning_modules.multimodal.language.prefix_cache import PrefixCache, maximum_over_ranks

if TYPE_CHECKING:
    from lightning_modules.multimodal.multimodal_module import MultimodalModule

    SeriesModule = MultimodalModule[TemporalData]

CHANCE = "chance"


class SeriesEvaluation(GenerativeEvaluation["SeriesModule"]):
    """Answers of a model: of a question with options, the option of the largest log-likelihood.

    The log-likelihood of an option is the sum over its tokens, the end of the turn among them, after the prompt.
    For arguments see GenerativeEvaluation.
    """

    @override
    def update(self, module: "SeriesModule", batch: ChatEvaluationBatch) -> None:
        super().update(module, batch)
        if CHANCE in module.data.baselines:
            for sample in batch.prompts.samples.tolist():
                if sample >= 0:
                    self.metrics.add_outcomes(CHANCE, module.data.chance(sample))

    @override
    def answer(self, module: "SeriesModule", batch: ChatEvaluationBatch, features: Features) -> list[str]:
        return self._answer(module, batch, features)[0]

    @override
    def predict(self, module: "SeriesModule", batch: ChatEvaluationBatch) -> list[PredictionLine]:
        texts, likelihoods = self._answer(module, batch, module.features(batch.encoder_input))
        lines = self.lines(module, batch, texts)
        # In a prediction, samples are rows of the predicted set.
        by_row = dict(zip(batch.prompts.samples.tolist(), likelihoods, strict=True))
        return [(row, fields | ({"log_likelihoods": by_row[row]} if by_row.get(row) else {})) for row, fields in lines]

    def _answer(
        self, module: "SeriesModule", batch: ChatEvaluationBatch, features: Features
    ) -> tuple[list[str], list[list[float]]]:
        """Return the answers to a batch, and the log-likelihoods of the options of each question."""
        data, agree = module.data, maximum_over_ranks(module.sharded, module.device)
        options = [data.options(sample) for sample in batch.prompts.samples.tolist()]
        # Summed over all ranks: under FSDP a rank without options must join the passes of the others.
        number = agree(sum(map(len, options)))
        if not number:
            return module.generate(batch.prompts, features, self.max_new_tokens), [[] for _ in options]
        # One pass over the prompts serves the options and the open questions.
        cache = PrefixCache(module.language_model, module.embed(batch.prompts, features), batch.prompts.mask)
        likelihoods = option_log_likelihoods(
            cache, [[data.option_tokens(option) for option in row] for row in options], batch.prompts.mask.device, agree
        )
        texts = [row[_argmax(scores)] if row else "" for row, scores in zip(options, likelihoods, strict=True)]
        open_rows = [index for index, row in enumerate(options) if not row]
        if agree(len(open_rows)):  # a rank without an open question generates for its first prompt, and drops it
            prompts = torch.tensor(open_rows or [0], device=batch.prompts.mask.device)
            tokens = cache.generate(prompts, self.max_new_tokens, [data.tokenizer.end_of_turn], module.sharded)
            for index, answer in zip(open_rows, tokens, strict=False):
                texts[index] = data.tokenizer.decode(answer.tokens)
        return texts, likelihoods


def option_log_likelihoods(
    cache: PrefixCache, options: list[list[tuple[int, ...]]], device: torch.device, agree: Callable[[int], int]
) -> list[list[float]]:
    """Return the log-likelihood of each option of each prompt, in nats.

    Args:
        cache: the prompts.
        options: tokens of the options of each prompt.
        device: device of the model.
        agree: see PrefixCache.log_likelihoods.
    """
    # All options of all prompts in one batch; `rows` finds the prompt of each again.
    flat = [(row, tokens) for row, texts in enumerate(options) for tokens in texts]
    rows = torch.tensor([row for row, _ in flat], dtype=torch.int64, device=device)
    lengths = torch.tensor([len(tokens) for _, tokens in flat], dtype=torch.int64, device=device)
    sequences = [torch.tensor(tokens, dtype=torch.int64, device=device) for _, tokens in flat]
    padded = pad_sequence(sequences, batch_first=True) if sequences else rows.view(0, 1)
    scores = iter(cache.log_likelihoods(padded, lengths, rows, agree).tolist())
    return [[next(scores) for _ in texts] for texts in options]


def _argmax(scores: list[float]) -> int:
    """Return the index of the largest score, the first if several are equal."""
    return max(range(len(scores)), key=scores.__getitem__)
