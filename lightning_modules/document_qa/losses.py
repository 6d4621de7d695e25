"""Computes training losses of a reader of documents: sums of terms, one per token of a right answer.

The sums of parts of a batch add up to the sum of the batch, so the mean does not depend on how it is split.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Loss = Literal["answer", "label_smoothing", "focal", "contrastive_options"]


def label_smoothing(share: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return cross-entropy with targets of which `share` is spread over all tokens.

    C. Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (CVPR 2016), section 7.
    """

    def terms(scores: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(scores, targets, reduction="none", label_smoothing=share)

    return terms


def focal(gamma: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the focal loss (1 - p)^gamma * -log(p), which gives tokens with a high probability p less weight.

    With gamma 0 it is cross-entropy. T.-Y. Lin et al., "Focal Loss for Dense Object Detection" (ICCV 2017), eq. 4.
    """

    def terms(scores: Tensor, targets: Tensor) -> Tensor:
        surprisal = F.cross_entropy(scores, targets, reduction="none")
        # expm1 keeps the digits of 1 - p near p = 1. It is never 0, where a power below 1 has no gradient.
        complement = (-torch.expm1(-surprisal)).clamp_min(torch.finfo(surprisal.dtype).tiny)
        return complement.pow(gamma) * surprisal

    return terms


def contrastive_options(
    log_likelihoods: Tensor, lengths: Tensor, questions: Tensor, right: Tensor, weight: float
) -> Tensor:
    """Return the cross-entropy of right answers, plus `weight` times the cross-entropy of choosing among the options.

    The score of an option is its log-likelihood per token, as in evaluation (T. Brown et al., "Language Models are
    Few-Shot Learners", 2020, section 2.4). The choice counts once for each token of the right answer, so that the
    whole loss is a mean over tokens. An open question has one option and no choice.

    Args:
        log_likelihoods: [S] of the options, one chat each, in nats.
        lengths: [S] number of tokens of each option.
        questions: [S] int64, index of each option's question, below S.
        right: [S] bool, whether it is the right option; one per question.
        weight: weight of the choice, per token.

    Returns:
        The sum over the tokens of the right answers, of which there are `lengths[right].sum()`.
    """
    scores = log_likelihoods / lengths
    # A log-sum-exp per question, shifted by the best score, a constant, against overflow.
    # [questions, at most S]: questions are numbered below S, so S slots suffice without asking for their number.
    best = torch.full_like(scores, -torch.inf).scatter_reduce(0, questions, scores.detach(), "amax")
    total = torch.zeros_like(scores).index_add(0, questions, (scores - best[questions]).exp())
    # [S]: -log softmax of each option among those of its question
    choice = best[questions] + total[questions].log() - scores
    # One term per token of the right answer, as the global mean divides by their number.
    return (weight * lengths * choice - log_likelihoods)[right].sum()


def sum_per_chat(terms: Tensor, labels: Tensor, positions: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    """Sum the loss terms of the supervised tokens of each chat.

    Args:
        terms: [N], as returned by LanguageModel.terms.
        labels: [R, L], `ignore` at unsupervised tokens.
        positions: [R, L], 0 at the first token of a chat, and in padding.
        ignore: label of unsupervised tokens.

    Returns:
        Sums [S] of the terms and their numbers [S], of chats with supervised tokens.
    """
    # Each position 0 starts a chat. The first column has no term, because state i predicts token i + 1.
    chat_of_token = (positions == 0).flatten().cumsum(0).view_as(positions)[:, 1:]
    chats, lengths = chat_of_token[labels[:, 1:] != ignore].unique_consecutive(return_counts=True)
    chat_of_term = torch.repeat_interleave(
        torch.arange(len(chats), device=terms.device), lengths, output_size=len(terms)
    )
    return terms.new_zeros(len(chats)).index_add(0, chat_of_term, terms), lengths
