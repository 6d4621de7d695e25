"""Holds a batch of questions on the host, with the model's scores and generated texts."""

from typing import NamedTuple

from datamodules.document_qa.batch import QUESTION_ONLY, WHOLE, EvaluationBatch, RetrievedContext
from lightning_modules.multimodal.language.prefix_cache import GeneratedText

Text = tuple[int, list[int]]
"""The number of a text, such as the index of an option, and its tokens with the end of the turn."""


class TextLikelihood(NamedTuple):
    """Likelihood of a text after a prompt."""

    log_likelihood: float  # nats, of all its tokens
    terms: int  # number of tokens, at least 1

    @property
    def per_token(self) -> float:
        """Log-likelihood per token, in nats."""
        return self.log_likelihood / self.terms


class QuestionBatch:
    """Questions by sample, and their prompts by index in the batch.

    Attributes:
        variants: variant of each prompt (WHOLE, QUESTION_ONLY, an order of the options, or an omitted chunk).
        prompts: {sample: {variant: prompt}}.
        contexts: {sample: its context}.
        options_of_prompt: {prompt: texts to score after it}.
        scored: {(prompt, number of a text): its likelihood}.
        generated: {prompt: generated answer}.
    """

    def __init__(self, questions: EvaluationBatch) -> None:
        # Everything is copied from the device at once: a read for each question would synchronize each time.
        self.variants: list[int] = questions.variants.tolist()
        self.prompts: dict[int, dict[int, int]] = {}
        self._real_prompts: set[int] = set()
        for prompt, sample in enumerate(questions.prompts.samples.tolist()):
            if sample >= 0:  # padding of the batch has no sample
                self.prompts.setdefault(sample, {})[self.variants[prompt]] = prompt
                self._real_prompts.add(prompt)
        self.contexts: dict[int, RetrievedContext] = {context.sample: context for context in questions.contexts}
        self.options_of_prompt: dict[int, list[Text]] = {}
        for tokens, length, prompt, option in zip(*(part.tolist() for part in questions.continuations), strict=True):
            self.options_of_prompt.setdefault(prompt, []).append((option, tokens[:length]))
        self.scored: dict[tuple[int, int], TextLikelihood] = {}
        self.generated: dict[int, GeneratedText] = {}

    def options(self, prompt: int) -> list[int]:
        """Return the indices of the options of a prompt's question, ascending; none if it is open."""
        return sorted(option for option, _ in self.options_of_prompt.get(prompt, ()) if option >= 0)

    def is_open(self, prompt: int) -> bool:
        """Return whether the model generates an answer to the prompt."""
        answered = prompt in self._real_prompts and self.variants[prompt] in (WHOLE, QUESTION_ONLY)
        return answered and not self.options(prompt)
