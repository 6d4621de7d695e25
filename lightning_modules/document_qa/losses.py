"""What a reader of documents may be trained to make small: each a sum over the tokens of right answers.

So each is an exact mean over any split of a batch: a term weighs the same wherever it is computed.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Loss = Literal["answer", "label_smoothing", "focal", "contrastive_options"]


def label_smoothing(share: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Cross-entropy with targets of which `share` is spread over all tokens.

    C. Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (CVPR 2016), section 7.
    """

    def terms(scores: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(scores, targets, reduction="none", label_smoothing=share)

    return terms


def focal(gamma: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Cross-entropy times (1 - p) ** gamma: tokens that are known already weigh less; gamma 0 is cross-entropy.

    T.-Y. Lin et al., "Focal Loss for Dense Object Detection" (ICCV 2017).
    """

    def terms(scores: Tensor, targets: Tensor) -> Tensor:
        surprise = F.cross_entropy(scores, targets, reduction="none")
        # 1 - p without the loss of digits where p is nearly 1; never 0, where small powers have no gradient.
        missing = (-torch.expm1(-surprise)).clamp_min(torch.finfo(surprise.dtype).tiny)
        return missing.pow(gamma) * surprise

    return terms


def contrastive_options(
    log_likelihoods: Tensor, lengths: Tensor, questions: Tensor, right: Tensor, weight: float
) -> Tensor:
    """Cross-entropy of right answers, plus `weight` times that of choosing them among their questions' options.

    An option is chosen by its log-likelihood per token, as when the model is asked (T. Brown et al., "Language Models
    are Few-Shot Learners", 2020, section 2.4). A question's choice counts as often as its right answer has tokens, so
    that with it, too, the loss is a mean over tokens. An open question has nothing to choose from.

    Args:
        log_likelihoods: [S] of the options, one chat each, nats.
        lengths: [S] tokens of each.
        questions: [S] int64, number of the question that each belongs to, below S.
        right: [S] bool, whether it is the right one; one of each question's.
        weight: of the choice, per token.

    Returns:
        The sum over right answers' tokens, of which there are `lengths[right].sum()`.
    """
    scores = log_likelihoods / lengths
    # Shifted by the best option's score, a constant, so that nothing overflows.
    best = torch.full_like(scores, -torch.inf).scatter_reduce(0, questions, scores.detach(), "amax")
    total = torch.zeros_like(scores).index_add(0, questions, (scores - best[questions]).exp())
    choice = best[questions] + total[questions].log() - scores
    return (weight * lengths * choice - log_likelihoods)[right].sum()


def of_chats(terms: Tensor, labels: Tensor, positions: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    """Loss terms of supervised tokens, added up for each chat: sums [S] and numbers [S] of them.

    Args:
        terms: [N], as LanguageModel.terms gives them.
        labels: [R, L] with `ignore` where a token is not supervised.
        positions: [R, L], 0 where a chat begins, or padding.
    """
    begun = (positions == 0).flatten().cumsum(0).view_as(positions)[:, 1:]
    chats, lengths = begun[labels[:, 1:] != ignore].unique_consecutive(return_counts=True)
    owner = torch.repeat_interleave(torch.arange(len(chats), device=terms.device), lengths)
    return terms.new_zeros(len(chats)).index_add(0, owner, terms), lengths
