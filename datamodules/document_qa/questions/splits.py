"""Splits data into training, validation and test by document; documents with equal content share a split."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from engine.determinism.stateless_rng import hash_bits
from engine.number_check import check_numbers

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class SplitSettings:
    """How the documents of the training file are split, where validation and test have no files of their own.

    Args:
        validation: fraction of the documents, with all their questions, for validation; 0 for no validation, in which
            case `fit` keeps the last checkpoint instead of the best.
        test: fraction of the documents for test; 0 for no test set.
        seed: seed of the split.
    """

    validation: float = 0.1
    test: float = 0.1
    seed: int = 0

    def check(self, name: str = "split.") -> None:
        """Check the settings.

        Args:
            name: prefix of the settings in messages.

        Raises:
            ValueError: a value is invalid.
        """
        check_numbers(name, {"validation": self.validation, "test": self.test}, at_least=0, below=1)
        if self.validation + self.test >= 1:
            raise ValueError(
                f"{name}validation and {name}test leave no document for training: "
                f"{self.validation} + {self.test} must be below 1"
            )


def group_documents(contents: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Group documents that share content, directly or through others: {document: group}.

    The name of a group is its smallest content, so it does not depend on the names or the order of documents.

    Args:
        contents: {document: hashes or names of its content}; at least one each.
    """
    holders: dict[str, list[str]] = defaultdict(list)
    for document, hashes in contents.items():
        for content in hashes:
            holders[content].append(document)
    groups: dict[str, str] = {}
    for content in sorted(holders):
        reached = [document for document in holders[content] if document not in groups]
        while reached:
            document = reached.pop()
            if document not in groups:
                groups[document] = content
                reached += [other for part in contents[document] for other in holders[part] if other not in groups]
    return groups


def split_documents(contents: Mapping[str, Sequence[str]], settings: SplitSettings) -> dict[str, Split]:
    """Split documents: {document: split}. The result depends on the documents' content and the settings only.

    Documents of a group (see group_documents) belong to the same split. A split with a fraction above 0 has at least
    one group.

    Raises:
        ValueError: there are too few documents.
    """
    groups = group_documents(contents)
    # The order follows from the hash of each group, not from the order or the names of files.
    order = sorted(set(groups.values()), key=lambda group: (int(hash_bits(settings.seed, _hash_group(group))), group))
    sizes = {
        split: max(1, round(share * len(order))) if share else 0
        for split, share in (("test", settings.test), ("validation", settings.validation))
    }
    if sum(sizes.values()) >= len(order):
        raise ValueError(
            f"found {len(order)} different documents, too few to split into training"
            + "".join(f", {share} for {split}" for split, share in vars(settings).items() if share and split != "seed")
            + "; add documents, reduce the fractions, or give the splits files of their own"
        )
    dealt: dict[str, Split] = dict.fromkeys(order, "train")
    dealt |= dict.fromkeys(order[: sizes["test"]], "test")
    dealt |= dict.fromkeys(order[sizes["test"] : sum(sizes.values())], "validation")
    return {document: dealt[group] for document, group in groups.items()}


def find_shared_documents(
    first: Mapping[str, Sequence[str]], second: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]]:
    """Return pairs of documents that share content, at most one pair for each document of the first mapping."""
    holder = {content: document for document, found in second.items() for content in found}
    pairs = ((document, holder.get(content)) for document, found in first.items() for content in found)
    return sorted({document: other for document, other in pairs if other is not None}.items())


def _hash_group(group: str) -> int:
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big")
