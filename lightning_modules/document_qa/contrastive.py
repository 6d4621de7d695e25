"""Computes the contrastive loss of a retriever: InfoNCE over the samples of all ranks.

A. van den Oord et al., "Representation Learning with Contrastive Predictive Coding" (2018). The negatives are the pages
of the whole global batch, as in CLIP (Radford et al., "Learning Transferable Visual Models From Natural Language
Supervision", ICML 2021), and further pages of the questions' own documents.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from engine.distributed.collectives import all_gather_rows_with_grad

_INITIAL_SCALE, _MAX_SCALE = 1 / 0.07, 100.0  # as in CLIP


class Temperature(nn.Module):
    """Learned inverse temperature that multiplies the scores. It starts at 1 / 0.07 and is at most 100."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor([math.log(_INITIAL_SCALE)]))  # [1], as FSDP takes no scalars

    def forward(self) -> Tensor:
        """Return the inverse temperature, [1] float32."""
        return self.log_scale.float().exp()

    @torch.no_grad()
    def clamp(self) -> None:
        """Clamp the inverse temperature after an optimizer step. Larger values make training unstable."""
        self.log_scale.clamp_(0, math.log(_MAX_SCALE))


class ProjectionHead(nn.Module):
    """Linear map of a language model's states [N, C] to unit vectors [N, D] float32."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, size, bias=False)

    @override
    def forward(self, states: Tensor) -> Tensor:
        # bf16 has less than three digits, too few for the cosines of similar pages.
        with torch.autocast(states.device.type, enabled=False):
            return F.normalize(F.linear(states.float(), self.linear.weight.float()), dim=-1)


def info_nce(
    questions: Tensor, pages: Tensor, evidence: Tensor, keys: Tensor, scale: Tensor, symmetric: bool
) -> Tensor:
    """Return the sum over this rank's questions of -log p(right page | question), among the pages of all ranks.

    A page that also answers the question, or a copy of the right page, is not a negative: it is omitted from the
    denominator. Collective: every rank must call it, also without a question.

    Args:
        questions: unit vectors [B, D] of this rank.
        pages: unit vectors [P, D]. Page i answers question i for i < B; the others are negatives of every question.
        evidence: [B, E] int64, keys of all pages that answer each question, padded with 0.
        keys: [P] int64 keys of the pages. A page has the same key on every rank; no key is 0.
        scale: [1], inverse temperature.
        symmetric: average with -log p(question | page), among the questions of all ranks.

    Returns:
        A scalar. It depends on `questions` and `pages` even if they are empty.
    """
    with torch.autocast(questions.device.type, enabled=False):
        own, right = torch.arange(len(questions), device=questions.device), pages[: len(questions)]
        # Gradients flow back through the gather: a page is a negative of questions of all ranks.
        every_page, first_page = all_gather_rows_with_grad(pages)
        every_key = all_gather_rows_with_grad(keys).rows
        # Which pages of all ranks answer each question, [B, pages of all ranks]. Its own page is its target, the others
        # are false negatives.
        answers = (evidence.unsqueeze(2) == every_key).any(dim=1)
        # [B, pages of all ranks]; the right page of question i is row first_page + i of all pages.
        total = _cross_entropy(scale * questions @ every_page.T, answers, first_page + own)
        if not symmetric:
            return total
        every_question, first_question = all_gather_rows_with_grad(questions)
        # The same relation seen from this rank's right pages: [B, questions of all ranks].
        answered = all_gather_rows_with_grad(answers.to(torch.uint8)).rows[:, first_page + own].T.bool()
        backward = _cross_entropy(scale * right @ every_question.T, answered, first_question + own)
        return (total + backward) / 2


def _cross_entropy(scores: Tensor, positives: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the cross-entropies of rows of scores [B, N] with targets [B].

    Positives [B, N] bool are omitted from the denominator, except for the target.
    """
    rows = torch.arange(len(scores), device=scores.device)
    # Out of place, as `answers` is used again for the symmetric term.
    positives = positives.index_put((rows, targets), torch.zeros_like(targets, dtype=torch.bool))
    candidates = scores.masked_fill(positives, -torch.inf)
    # A sum and not a mean: the mean is over the global batch, which LossSum knows.
    return (candidates.logsumexp(dim=1) - scores[rows, targets]).sum()
