"""Tests how documents are divided into splits without common content."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.document_qa.questions.splits import (
    SPLITS,
    SplitSettings,
    find_shared_documents,
    group_documents,
    split_documents,
)


@st.composite
def folders(draw):
    """Documents, some of them the same under several names, some parts of others."""
    number = draw(st.integers(4, 40))
    contents = {}
    for document in range(number):
        own = draw(st.integers(0, number + 10))
        part_of = draw(st.one_of(st.none(), st.integers(0, number)))
        contents[f"d{document}.pdf"] = (f"c{own}", *([f"o{part_of}"] if part_of is not None else []))
    shares = st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.4])
    return contents, SplitSettings(draw(shares), draw(shares), draw(st.integers(0, 5)))


@settings(max_examples=200, deadline=None)
@given(folders(), st.randoms())
def test_no_content_is_in_two_splits(folder, random):
    """Whatever the names, the line order and the shares."""
    contents, how = folder
    try:
        dealt = split_documents(contents, how)
    except ValueError as error:
        groups = len(set(group_documents(contents).values()))
        least = sum(max(1, round(share * groups)) if share else 0 for share in (how.validation, how.test))
        assert f"found {groups} different documents" in str(error)
        assert least >= groups
        return
    assert dealt.keys() == contents.keys()
    where = defaultdict(set)
    for document, split in dealt.items():
        for content in contents[document]:
            where[content].add(split)
    assert all(len(splits) == 1 for splits in where.values())
    shuffled = list(contents.items())
    random.shuffle(shuffled)
    assert split_documents(dict(shuffled), how) == dealt
    renamed = split_documents({f"other-{name}": found for name, found in contents.items()}, how)
    assert {name.removeprefix("other-"): split for name, split in renamed.items()} == dealt


def test_shares_are_of_the_documents_and_the_seed_deals_otherwise():
    contents = {f"{number}.pdf": (f"content {number}",) for number in range(200)}
    first, second = (split_documents(contents, SplitSettings(0.1, 0.25, seed)) for seed in (0, 1))
    for dealt in (first, second):
        assert [list(dealt.values()).count(split) for split in SPLITS] == [130, 20, 50]
    assert first != second
    few = split_documents(dict(list(contents.items())[:3]), SplitSettings(0.1, 0.1))
    assert sorted(few.values()) == ["test", "train", "validation"]
    assert set(split_documents(contents, SplitSettings(0, 0)).values()) == {"train"}
    with pytest.raises(ValueError, match="found 2 different documents, .* 0.1 for validation, 0.1 for test; add"):
        split_documents(dict(list(contents.items())[:2]), SplitSettings())


def test_one_document_under_two_names_and_the_parts_of_one_are_one():
    contents = {"a.pdf": ("1",), "b.pdf": ("2",), "copy of a.pdf": ("1",), "x": ("3", "long"), "y": ("4", "long")}
    groups = group_documents(contents)
    assert groups["a.pdf"] == groups["copy of a.pdf"] != groups["b.pdf"]
    assert groups["x"] == groups["y"] == "3"
    assert find_shared_documents(contents, {"c.pdf": ("1", "9"), "z": ("long",)}) == [
        ("a.pdf", "c.pdf"),
        ("copy of a.pdf", "c.pdf"),
        ("x", "z"),
        ("y", "z"),
    ]
    assert find_shared_documents(contents, {"c.pdf": ("7",)}) == []


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        (SplitSettings(validation=-0.1), "split.validation must be at least 0 and less than 1, got -0.1"),
        (SplitSettings(test=1.0), "split.test must be at least 0 and less than 1, got 1.0"),
        (SplitSettings(0.5, 0.5), "leave no document for training: 0.5 \\+ 0.5"),
    ],
)
def test_impossible_shares_are_refused(settings, messages):
    with pytest.raises(ValueError, match=messages):
        settings.check()
