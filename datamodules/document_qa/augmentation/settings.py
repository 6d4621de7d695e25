"""Defines the settings of the augmentation."""

from dataclasses import dataclass
from typing import Literal

from engine.number_check import check_number, check_numbers

MAX_SKEW = 2.0
"""Degrees: about the skew of a page that is laid on a scanner by hand."""


@dataclass(frozen=True)
class AugmentationSettings:
    """Random changes of training samples that keep the right answers. Evaluations use the original data.

    Args:
        enabled: augment training samples.
        option_order: shuffle the options.
        paraphrase: fraction of questions to paraphrase; numbers, names and relations are kept.
        distractors: largest number of distractor pages: unranked pages of the same document, and text pages of other
            documents that share no word with the question. The budget drops them first.
        scan: fraction of documents whose images get noise, like a scanner's.
        skew: largest rotation of images in degrees, up to 2.
        jpeg: fraction of documents whose images are JPEG-compressed.
        blur: fraction of documents whose images are slightly blurred.
        drop_irrelevant: fraction of samples from which a kind of chunk (texts, tables or figures) is removed that no
            question needs (`evidence_sources`). Not for data in which captions answer questions about figures.
        flips: mirror figures and the direction words of their questions: `none`, `horizontal`, `vertical`. Only for
            drawings without text, which would be mirrored too.
    """

    enabled: bool = False
    option_order: bool = True
    paraphrase: float = 0.3
    distractors: int = 1
    scan: float = 0.3
    skew: float = 1.0
    jpeg: float = 0.3
    blur: float = 0.2
    drop_irrelevant: float = 0.0
    flips: Literal["none", "horizontal", "vertical"] = "none"

    def check(self, name: str = "data.init_args.augmentation.") -> None:
        """Check the settings.

        Args:
            name: prefix of the settings in messages.

        Raises:
            ValueError: a value is invalid.
        """
        shares = {key: getattr(self, key) for key in ("paraphrase", "scan", "jpeg", "blur", "drop_irrelevant")}
        check_numbers(name, shares, at_least=0, at_most=1)
        check_number(f"{name}skew", self.skew, at_least=0, at_most=MAX_SKEW)
        check_number(f"{name}distractors", self.distractors, at_least=0)
