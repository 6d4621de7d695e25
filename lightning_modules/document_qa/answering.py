"""What a model says to questions that are asked in several prompts: options scored, answers written, chunks left out.

Options are compared by their log-likelihood per token (T. Brown et al., "Language Models are Few-Shot Learners", 2020,
section 2.4), averaged over the orders that they are shown in, as models prefer places (C. Zheng et al., "Large Language
Models Are Not Robust Multiple Choice Selectors", ICLR 2024). Evidence is found by leaving each chunk out (J. Li et al.,
"Understanding Neural Networks through Representation Erasure", 2016).
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch.nn.utils.rnn import pad_sequence

from datamodules.document_qa.batch import FIRST_CHUNK, QUESTION_ONLY, WHOLE, AnswerRecord, Asked, Evidence, Said
from lightning_modules.document_qa.asked_batch import AskedBatch, Scored, Text
from lightning_modules.document_qa.prompt_parts import Part, blank, parts
from lightning_modules.multimodal.reading import Reading

ANSWERED = 0
"""How the text that was answered is called among what is scored after the prompts with a chunk left out."""


class Answering:
    """Asks a model.

    Args:
        read: has the model read prompts.
        decode: tokens of an answer as text.
        end: the token that ends an answer.
        max_new_tokens: where an answer that is written ends at the latest.
        right: the place of a sample's right option; None: it is not known, or the question is open.
        agree: makes of a number that differs from process to process the largest of all; None: processes need not
            compute equally often.
    """

    def __init__(
        self,
        read: Callable[[Part], Reading],
        decode: Callable[[list[int]], str],
        end: int,
        max_new_tokens: int,
        right: Callable[[int], int | None],
        agree: Callable[[int], int] | None = None,
    ) -> None:
        self._read, self._decode, self._right = read, decode, right
        self._end, self._max_new_tokens = end, max_new_tokens
        self._in_step, self._agree = agree is not None, agree or (lambda number: number)

    def records(self, asked: Asked) -> list[AnswerRecord]:
        """Of the samples of a batch, in the order of their prompts."""
        batch = AskedBatch(asked)

        def answer(part: Part, reading: Reading) -> None:
            self._score(batch, part, reading, batch.given)
            self._write(batch, part, reading)

        with_context = [place for place, variant in enumerate(batch.variants) if variant < FIRST_CHUNK]
        self._go_through(asked, with_context, answer)

        # What was answered is looked at again without each chunk.
        answered = {
            place: [(ANSWERED, self._answered(batch, sample))]
            for sample, prompts in batch.prompts.items()
            for variant, place in prompts.items()
            if variant >= FIRST_CHUNK
        }
        self._go_through(asked, list(answered), lambda *read: self._score(batch, *read, answered))
        return [self._record(batch, sample) for sample in batch.prompts]

    # -- with the model ----------------------------------------------------------------------------------------------

    def _go_through(self, asked: Asked, places: list[int], use: Callable[[Part, Reading], None]) -> None:
        found = parts(asked.prompts, asked.images, places)
        # Agreed on before the first of them, as within each there is more to agree on.
        more = self._agree(len(found)) - len(found)
        for part in [*found, *[blank(asked.prompts, asked.images)] * more]:
            use(part, self._read(part))

    def _score(self, batch: AskedBatch, part: Part, reading: Reading, texts: dict[int, list[Text]]) -> None:
        followed = [
            (row, place, option, text)
            for row, place in enumerate(part.places.tolist())
            for option, text in texts.get(place, ())
        ]
        device = part.places.device
        rows, lengths = (
            torch.tensor(numbers, dtype=torch.int64, device=device)
            for numbers in ([row for row, *_ in followed], [len(text) for *_, text in followed])
        )
        told = [torch.tensor(text, dtype=torch.int64, device=device) for *_, text in followed]
        tokens = pad_sequence(told, batch_first=True) if told else rows.view(0, 1)
        found = reading.log_likelihoods(tokens, lengths, rows, self._agree).tolist()
        for (_, place, option, text), log_likelihood in zip(followed, found, strict=True):
            batch.scored[place, option] = Scored(log_likelihood, len(text))

    def _write(self, batch: AskedBatch, part: Part, reading: Reading) -> None:
        places = part.places.tolist()
        rows = [row for row, place in enumerate(places) if batch.is_open(place)]
        if self._agree(len(rows)):
            chosen = torch.tensor(rows or [0], device=part.places.device)
            written = reading.write(chosen, self._max_new_tokens, [self._end], all_steps=self._in_step)
            batch.written.update((places[row], answer) for row, answer in zip(rows, written, strict=False))

    # -- what it comes to --------------------------------------------------------------------------------------------

    def _answered(self, batch: AskedBatch, sample: int) -> list[int]:
        """The tokens of what was said with the whole context."""
        place = batch.prompts[sample][WHOLE]
        if place not in batch.written:
            return dict(batch.given[place])[self._with_context(batch, sample).chosen]
        written = batch.written[place]
        return [*written.tokens, *([self._end] if written.count > len(written.tokens) else [])]

    def _record(self, batch: AskedBatch, sample: int) -> AnswerRecord:
        prompts, shown = batch.prompts[sample], batch.shown[sample]
        alone = prompts.get(QUESTION_ONLY)
        whole = self._with_context(batch, sample)
        return AnswerRecord(
            sample,
            whole,
            None if alone is None else self._said(batch, sample, [alone]),
            shown.ranked,
            tuple(dict.fromkeys(chunk.page for chunk in shown.chunks)),
            tuple(self._evidence(batch, sample, whole)),
        )

    def _with_context(self, batch: AskedBatch, sample: int) -> Said:
        prompts = batch.prompts[sample]
        return self._said(batch, sample, [prompts[order] for order in sorted(prompts) if WHOLE <= order < FIRST_CHUNK])

    def _said(self, batch: AskedBatch, sample: int, places: list[int]) -> Said:
        """To prompts that differ in the order of the options alone, the first order first."""
        first = places[0]
        if first in batch.written:
            written = batch.written[first]
            text, options, right = self._decode(written.tokens), (), -1
            confidence = math.exp(written.log_likelihood / written.count)
        else:
            scores = [[batch.scored[place, option].per_token for place in places] for option in batch.options(first)]
            text, options, right = "", tuple(math.fsum(some) / len(some) for some in scores), self._right(sample)
            confidence = 1 / math.fsum(math.exp(score - max(options)) for score in options)
        known = None if right is None else batch.scored.get((first, right))
        loss, terms = (0.0, 0) if known is None else (-known.log_likelihood, known.count)
        return Said(text, options, confidence, loss, terms)

    def _evidence(self, batch: AskedBatch, sample: int, whole: Said) -> Iterable[Evidence]:
        prompts = batch.prompts[sample]
        first = prompts[WHOLE]
        if first in batch.written:
            with_all = batch.written[first].log_likelihood / batch.written[first].count
        else:
            with_all = batch.scored[first, whole.chosen].per_token
        for variant in sorted(variant for variant in prompts if variant >= FIRST_CHUNK):
            chunk = batch.shown[sample].chunks[variant - FIRST_CHUNK]
            cost = with_all - batch.scored[prompts[variant], ANSWERED].per_token
            yield Evidence(chunk.page, chunk.kind, chunk.box, cost)
