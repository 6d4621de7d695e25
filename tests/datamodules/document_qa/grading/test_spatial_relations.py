"""Tests relations between two parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.document_qa.grading.spatial_relations import parse_relation, same_relation

QUESTION = "On page 3, figure 1, where is part 17 relative to part 18?"


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("17 is to the right of 18", (1, 0, "17", "18")),
        ("17位于18的右侧", (1, 0, "17", "18")),
        ("编号为17的部件位于编号为18的部件的右上方", (1, -1, "17", "18")),
        ("18的右侧是17", (1, 0, "17", "18")),
        ("17在18之上", (0, -1, "17", "18")),
        ("右侧", (1, 0, "", "")),
        ("to the left", (-1, 0, "", "")),
        ("Part 3 is above and to the left of part 8.", (-1, -1, "3", "8")),
        ("top-left", (-1, -1, "", "")),
        ("below part 4", (0, 1, "", "4")),
        ("The pump (10) is located on the right-hand side of the tank (4)", (1, 0, "10", "4")),
        ("the lever is directly underneath the bolt", (0, 1, "lever", "bolt")),
    ],
)
def test_a_text_is_parsed_to_its_relation(text, relation):
    assert parse_relation(text) == relation


@pytest.mark.parametrize(
    "text", ["steel", "left, no, right", "17 is not left of 18", "17 is left of 18 and above 19", "", "17不在18的左侧"]
)
def test_incomplete_and_ambiguous_relations_are_not_parsed(text):
    assert parse_relation(text) is None


@pytest.mark.parametrize(
    ("right", "messages", "same"),
    [
        ("17 is to the right of 18", "18 is left of 17", 1.0),
        ("17 is to the right of 18", "18 is right of 17", 0.0),
        ("17 is to the right of 18", "17 is right of 19", 0.0),
        ("17位于18的右侧", "18 is to the left of 17", 1.0),
        ("17位于18的右侧", "17位于18的左侧", 0.0),
        ("17位于18的右侧", "右", 1.0),
        ("17 is right of 18", "to the left of 17", 1.0),
        ("18 is left of 17", "right", 1.0),  # part 17 is what was asked about
        ("right", "18 is left of 17", 1.0),
        ("right", "18 is right of 17", 0.0),
        ("above left", "top left", 1.0),
        ("above left", "left", 0.0),
        ("left", "steel", 0.0),
        ("valve 1.2 is left of valve 1.3", "valve 2.2 is left of valve 3.3", 0.0),
    ],
)
def test_a_relation_is_the_same_from_either_side(right, messages, same):
    assert same_relation(right, messages, QUESTION) == same


SIDES = st.sampled_from([("left", "right"), ("right", "left"), ("above", "below"), ("below", "above")])


@given(SIDES, st.integers(1, 99), st.integers(100, 199))
def test_turned_around_it_is_the_same_and_mirrored_it_is_not(sides, first, second):
    side, opposite = sides
    output = f"part {first} is {side} of {second}"
    assert same_relation(output, f"{second} is {opposite} of {first}") == 1.0
    assert same_relation(output, f"{second} is {side} of {first}") == 0.0
    assert same_relation(output, f"{first} is {opposite} of {second}") == 0.0
