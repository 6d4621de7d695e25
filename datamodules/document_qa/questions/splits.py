"""Training, validation and test by document: no document, under whatever names, is in two of them."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from engine.randomness import hash_bits

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class SplitSettings:
    """How documents are dealt out, where the splits have no files of their own.

    Args:
        validation: share of the documents, with all their questions, to validate with; 0 for none: `fit` then trains
            without, and keeps its last checkpoint, not its best.
        test: share of the documents to test with; 0 for none.
        seed: another one deals them out otherwise.
    """

    validation: float = 0.1
    test: float = 0.1
    seed: int = 0

    def check(self, name: str = "split.") -> None:
        """
        Args:
            name: of these settings, for errors.

        Raises:
            ValueError: a value cannot be used.
        """
        for key, share in (("validation", self.validation), ("test", self.test)):
            if not 0 <= share < 1:
                raise ValueError(f"{name}{key} is a share of the documents, from 0 to below 1; got {share}")
        if self.validation + self.test >= 1:
            raise ValueError(
                f"{name}validation and {name}test leave no document to train on: "
                f"{self.validation} + {self.test} must be below 1"
            )


def groups_of(contents: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """{document: name of its group}. Documents that have a content in common, if by way of others, are one group.

    A group's name is the least of its contents: it depends neither on the documents' names nor on their order.

    Args:
        contents: {document: what it consists of, as hashes or names}; at least one of each.
    """
    holders: dict[str, list[str]] = defaultdict(list)
    for document, found in contents.items():
        for content in found:
            holders[content].append(document)
    groups: dict[str, str] = {}
    for content in sorted(holders):
        reached = [document for document in holders[content] if document not in groups]
        while reached:
            document = reached.pop()
            if document not in groups:
                groups[document] = content
                reached += [other for own in contents[document] for other in holders[own] if other not in groups]
    return groups


def split_documents(contents: Mapping[str, Sequence[str]], settings: SplitSettings) -> dict[str, Split]:
    """{document: split}. It depends on the documents' contents and the settings alone.

    Each group of documents (see groups_of) counts as one; a split with a share has at least one.

    Raises:
        ValueError: there are not documents enough.
    """
    groups = groups_of(contents)
    order = sorted(set(groups.values()), key=lambda group: (int(hash_bits(settings.seed, _number(group))), group))
    sizes = {
        split: max(1, round(share * len(order))) if share else 0
        for split, share in (("test", settings.test), ("validation", settings.validation))
    }
    if sum(sizes.values()) >= len(order):
        raise ValueError(
            f"found {len(order)} different documents, which cannot be split into training"
            + "".join(f", {share} for {split}" for split, share in vars(settings).items() if share and split != "seed")
            + ": add documents, make the shares smaller or 0, or give the splits files of their own"
        )
    dealt: dict[str, Split] = dict.fromkeys(order, "train")
    dealt |= dict.fromkeys(order[: sizes["test"]], "test")
    dealt |= dict.fromkeys(order[sizes["test"] : sum(sizes.values())], "validation")
    return {document: dealt[group] for document, group in groups.items()}


def shared_between(first: Mapping[str, Sequence[str]], second: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Pairs of documents of two sets that have a content in common: one for each such document of the first."""
    holder = {content: document for document, found in second.items() for content in found}
    pairs = ((document, holder.get(content)) for document, found in first.items() for content in found)
    return sorted({document: other for document, other in pairs if other is not None}.items())


def _number(group: str) -> int:
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big")
