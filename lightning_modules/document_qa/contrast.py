"""Learns which page answers a question by telling it from other pages: InfoNCE over all processes' samples.

A. van den Oord et al., "Representation Learning with Contrastive Predictive Coding" (2018), with the negatives of the
whole global batch (Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021)
and further ones of the questions' own documents.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.gathered_rows import gathered_rows

_START, _SHARPEST = 1 / 0.07, 100.0  # as CLIP has them


class Temperature(nn.Module):
    """What scores are multiplied by: one over a temperature that is learnt. Starts at 1 / 0.07, is at most 100."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor([math.log(_START)]))  # FSDP takes no scalars

    def forward(self) -> Tensor:
        """[1] float32."""
        return self.log_scale.float().exp()

    @torch.no_grad()
    def bound(self) -> None:
        """To be called after each optimizer step: scores that are too sharp make training unstable."""
        self.log_scale.clamp_(0, math.log(_SHARPEST))


class ProjectionHead(nn.Module):
    """States [N, C] of a language model to vectors [N, D] of length 1, in float32."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, size, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return F.normalize(F.linear(states.float(), self.linear.weight.float()), dim=-1)


def contrast(
    questions: Tensor, pages: Tensor, evidence: Tensor, keys: Tensor, scale: Tensor, symmetric: bool
) -> Tensor:
    """Sum over this process's questions of the negative log-probability of the right page, among all processes' pages.

    Another page that answers the question too, or the same page once more, is no wrong one: it is left out of the sum
    that the probability is divided by. Every process must call, also one without a question.

    Args:
        questions: [B, D] of this process, of length 1.
        pages: [P, D]; the first B are right for the questions, the others for none of them.
        evidence: [B, E] int64, keys of all pages that answer each question, padded with 0.
        keys: [P] int64, of each page; the same page has the same one on every process, none has 0.
        scale: [1], one over the temperature.
        symmetric: half of each question's term is the probability of the question, among all of them, given its page.

    Returns:
        A scalar, connected to `questions` and `pages` also where there is none.
    """
    with torch.autocast(questions.device.type, enabled=False):
        own, right = torch.arange(len(questions), device=questions.device), pages[: len(questions)]
        every_page, first_page = gathered_rows(pages)
        answers = (evidence.unsqueeze(2) == gathered_rows(keys).rows).any(dim=1)  # [B, pages of all processes]
        total = _info_nce(scale * questions @ every_page.T, answers, first_page + own)
        if not symmetric:
            return total
        every_question, first_question = gathered_rows(questions)
        answered = gathered_rows(answers.to(torch.uint8)).rows[:, first_page + own].T.bool()
        backward = _info_nce(scale * right @ every_question.T, answered, first_question + own)
        return (total + backward) / 2


def _info_nce(scores: Tensor, alike: Tensor, targets: Tensor) -> Tensor:
    """Sum of the cross-entropies of rows of scores [B, N], without those that are as good as the target [B]."""
    rows = torch.arange(len(scores), device=scores.device)
    alike = alike.index_put((rows, targets), torch.zeros_like(targets, dtype=torch.bool))
    others = scores.masked_fill(alike, -torch.inf)
    return (others.logsumexp(dim=1) - scores[rows, targets]).sum()
