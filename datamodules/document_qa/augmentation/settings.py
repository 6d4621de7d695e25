"""How samples are altered in training without altering what is right."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AugmentationSettings:
    """Shares are of the samples of a training that something happens to. Evaluations see the data as they are.

    Args:
        enabled: alter samples at all.
        option_order: show the options in random orders.
        paraphrase: share of the questions that are worded another way; numbers, names and relations stay.
        distractors: the most further pages that are shown: of the same document ones that the retriever did not name, and text pages of other documents that share no word with the question. The budget drops them first.
        scan: share of the documents whose pictures are noisy, as a scanner's.
        skew: degrees by which pictures are turned at most, up to 2.
        jpeg: share of the documents whose pictures went through JPEG.
        blur: share of the documents whose pictures are blurred a little.
        unneeded: share of the samples that are shown without the texts, the tables or the figures, where no question rests on them (`evidence_sources`). Not where captions tell what a figure is asked for.
        flips: mirror figures, and relation words of their questions with them: `none`, `horizontal`, `vertical`. For drawings without any text alone: it would be mirrored, too.
    """  # noqa: E501

    enabled: bool = False
    option_order: bool = True
    paraphrase: float = 0.3
    distractors: int = 1
    scan: float = 0.3
    skew: float = 1.0
    jpeg: float = 0.3
    blur: float = 0.2
    unneeded: float = 0.0
    flips: Literal["none", "horizontal", "vertical"] = "none"

    def check(self, name: str = "data.init_args.augmentation.") -> None:
        """
        Raises:
            ValueError: a value cannot be used.
        """
        for key in ("paraphrase", "scan", "jpeg", "blur", "unneeded"):
            if not 0 <= getattr(self, key) <= 1:
                raise ValueError(f"{name}{key} is a share, from 0 to 1; got {getattr(self, key)}")
        if not 0 <= self.skew <= MOST_SKEW:
            raise ValueError(f"{name}skew must be 0 to {MOST_SKEW} degrees, got {self.skew}")
        if self.distractors < 0:
            raise ValueError(f"{name}distractors is a number of pages, 0 for none; got {self.distractors}")


MOST_SKEW = 2.0
"""Degrees: a page that was laid on a scanner by hand."""
