"""Answers questions that have several prompts: ranks options, generates open answers, and searches evidence.

Options are ranked by their log-likelihood per token (T. Brown et al., "Language Models are Few-Shot Learners", 2020,
section 2.4), averaged over the orders in which the prompts list them, because models prefer certain positions (C. Zheng
et al., "Large Language Models Are Not Robust Multiple Choice Selectors", ICLR 2024). Evidence is what the answer's
likelihood loses when a chunk of the context is omitted (J. Li et al., "Understanding Neural Networks through
Representation Erasure", 2016).
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch.nn.utils.rnn import pad_sequence

from datamodules.document_qa.batch import (
    FIRST_CHUNK,
    QUESTION_ONLY,
    WHOLE,
    AnswerRecord,
    EvaluationBatch,
    Evidence,
    ModelAnswer,
)
from lightning_modules.document_qa.answering.length_buckets import PromptBucket, bucket_prompts, dummy_bucket
from lightning_modules.document_qa.answering.question_batch import QuestionBatch, Text, TextLikelihood
from lightning_modules.multimodal.language.prefix_cache import PrefixCache

ANSWER = 0
"""Number of the model's answer among the texts that are scored after prompts without a chunk."""


class QuestionAnswerer:
    """Answers the questions of a batch with a model.

    Args:
        read: runs the model on prompts.
        decode: converts the tokens of an answer to text.
        end: token that ends an answer.
        max_new_tokens: maximum length of a generated answer.
        right: returns the index of a sample's right option, or None if it is unknown or the question is open.
        sharded: whether each rank holds a shard of the weights, so that all must run the same number of forward passes.
        agree: maximum of a number over the ranks, see `maximum_over_ranks`.
    """

    def __init__(
        self,
        read: Callable[[PromptBucket], PrefixCache],
        decode: Callable[[list[int]], str],
        end: int,
        max_new_tokens: int,
        right: Callable[[int], int | None],
        sharded: bool = False,
        agree: Callable[[int], int] = lambda number: number,
    ) -> None:
        self._read, self._decode, self._right = read, decode, right
        self._end, self._max_new_tokens = end, max_new_tokens
        self._sharded, self._agree = sharded, agree

    def records(self, questions: EvaluationBatch) -> list[AnswerRecord]:
        """Return the records of a batch's samples, in the order of their prompts."""
        batch = QuestionBatch(questions)

        def answer(bucket: PromptBucket, cache: PrefixCache) -> None:
            self._score(batch, bucket, cache, batch.options_of_prompt)
            self._generate(batch, bucket, cache)

        # The variants below FIRST_CHUNK: the context in each order of the options, and the question alone
        with_context = [prompt for prompt, variant in enumerate(batch.variants) if variant < FIRST_CHUNK]
        self._read_all(questions, with_context, answer)

        # The answer is known now. It is scored again without each chunk of the context.
        answers = {
            prompt: [(ANSWER, self._answer_tokens(batch, sample))]
            for sample, prompts in batch.prompts.items()
            for variant, prompt in prompts.items()
            if variant >= FIRST_CHUNK
        }
        # A second round, because the text to score is the answer of the first.
        self._read_all(questions, list(answers), lambda bucket, cache: self._score(batch, bucket, cache, answers))
        return [self._record(batch, sample) for sample in batch.prompts]

    # -- forward passes ----------------------------------------------------------------------------------------------

    def _read_all(
        self, questions: EvaluationBatch, prompts: list[int], use: Callable[[PromptBucket, PrefixCache], None]
    ) -> None:
        buckets = bucket_prompts(questions.prompts, questions.images, prompts)
        # Agreed on before the first bucket, because `use` contains collectives too.
        missing = self._agree(len(buckets)) - len(buckets)
        # A rank with fewer buckets joins the passes of the others; the results of a dummy belong to no prompt.
        for bucket in [*buckets, *[dummy_bucket(questions.prompts, questions.images)] * missing]:
            use(bucket, self._read(bucket))

    def _score(
        self, batch: QuestionBatch, bucket: PromptBucket, cache: PrefixCache, texts: dict[int, list[Text]]
    ) -> None:
        continuations = [
            (row, prompt, number, text)
            for row, prompt in enumerate(bucket.indices.tolist())
            for number, text in texts.get(prompt, ())
        ]
        device = bucket.indices.device
        rows, lengths = (
            torch.tensor(numbers, dtype=torch.int64, device=device)
            for numbers in ([row for row, *_ in continuations], [len(text) for *_, text in continuations])
        )
        sequences = [torch.tensor(text, dtype=torch.int64, device=device) for *_, text in continuations]
        tokens = pad_sequence(sequences, batch_first=True) if sequences else rows.view(0, 1)
        # All texts of the bucket in one call, which copies the cached keys and values of their prompts.
        log_likelihoods = cache.log_likelihoods(tokens, lengths, rows, self._agree).tolist()
        for (_, prompt, number, text), log_likelihood in zip(continuations, log_likelihoods, strict=True):
            batch.scored[prompt, number] = TextLikelihood(log_likelihood, len(text))

    def _generate(self, batch: QuestionBatch, bucket: PromptBucket, cache: PrefixCache) -> None:
        prompts = bucket.indices.tolist()
        rows = [row for row, prompt in enumerate(prompts) if batch.is_open(prompt)]
        if self._agree(len(rows)):  # a rank without an open question generates for its first prompt, and drops it
            open_rows = torch.tensor(rows or [0], device=bucket.indices.device)
            texts = cache.generate(open_rows, self._max_new_tokens, [self._end], all_steps=self._sharded)
            batch.generated.update((prompts[row], text) for row, text in zip(rows, texts, strict=False))

    # -- records -----------------------------------------------------------------------------------------------------

    def _answer_tokens(self, batch: QuestionBatch, sample: int) -> list[int]:
        """Return the tokens of the answer that the model gave with the whole context."""
        prompt = batch.prompts[sample][WHOLE]
        if prompt not in batch.generated:
            return dict(batch.options_of_prompt[prompt])[self._answer_with_context(batch, sample).chosen]
        text = batch.generated[prompt]
        # The end of the turn is scored only if the model wrote it; an answer cut at the maximum has none.
        return [*text.tokens, *([self._end] if text.terms > len(text.tokens) else [])]

    def _record(self, batch: QuestionBatch, sample: int) -> AnswerRecord:
        prompts, context = batch.prompts[sample], batch.contexts[sample]
        question_only = prompts.get(QUESTION_ONLY)
        answer = self._answer_with_context(batch, sample)
        return AnswerRecord(
            sample,
            answer,
            None if question_only is None else self._answer(batch, sample, [question_only]),
            context.ranked,
            tuple(dict.fromkeys(chunk.page for chunk in context.chunks)),
            tuple(self._evidence(batch, sample, answer)),
        )

    def _answer_with_context(self, batch: QuestionBatch, sample: int) -> ModelAnswer:
        prompts = batch.prompts[sample]
        orders = [prompts[order] for order in sorted(prompts) if WHOLE <= order < FIRST_CHUNK]
        return self._answer(batch, sample, orders)

    def _answer(self, batch: QuestionBatch, sample: int, prompts: list[int]) -> ModelAnswer:
        """Return the answer to prompts that differ only in the order of the options, the original order first."""
        first = prompts[0]
        options: tuple[float, ...] = ()
        right: int | None = -1  # the number of an open question's right answer
        if first in batch.generated:
            generated = batch.generated[first]
            text = self._decode(generated.tokens)
            # The geometric mean of the tokens' probabilities, so a long answer is not less certain for its length.
            confidence = math.exp(generated.log_likelihood / generated.terms)
        else:
            scores = [[batch.scored[each, option].per_token for each in prompts] for option in batch.options(first)]
            text, right = "", self._right(sample)
            # Exactly rounded sums, so the mean does not depend on the order of the prompts.
            options = tuple(math.fsum(order_scores) / len(order_scores) for order_scores in scores)
            # A softmax over options, in which the best has the numerator exp(0)
            confidence = 1 / math.fsum(math.exp(score - max(options)) for score in options)
        reference = None if right is None else batch.scored.get((first, right))
        loss, terms = (0.0, 0) if reference is None else (-reference.log_likelihood, reference.terms)
        return ModelAnswer(text, options, confidence, loss, terms)

    def _evidence(self, batch: QuestionBatch, sample: int, answer: ModelAnswer) -> Iterable[Evidence]:
        prompts = batch.prompts[sample]
        first = prompts[WHOLE]
        if first in batch.generated:
            full_score = batch.generated[first].log_likelihood / batch.generated[first].terms
        else:
            full_score = batch.scored[first, answer.chosen].per_token
        for variant in sorted(variant for variant in prompts if variant >= FIRST_CHUNK):
            chunk = batch.contexts[sample].chunks[variant - FIRST_CHUNK]
            cost = full_score - batch.scored[prompts[variant], ANSWER].per_token
            yield Evidence(chunk.page, chunk.kind, chunk.box, cost)
