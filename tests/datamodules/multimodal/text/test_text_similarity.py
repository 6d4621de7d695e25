"""Tests the similarity of answers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.multimodal.text.text_similarity import (
    anls,
    character_f1,
    edit_distance,
    exact_match,
    normalize_text,
    token_f1,
    tokens,
)

TEXTS = st.text(alphabet="ab aA.,3-5%右侧the ", max_size=12)
MEASURES = (exact_match, token_f1, character_f1, anls)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("The pump", "pump.", 1.0),
        ("3.5 A", "3.5A", 1.0),
        ("3.5 A", "35 A", 0.0),
        ("3.5 A", "3.5", 0.0),  # an ampere is no article
        ("-5 °C", "5 °C", 0.0),
        ("5 %", "5", 0.0),
        ("除尘箱（1）", "除尘箱(1)", 1.0),
        ("ＡＢＣ", "abc", 1.0),
        ("左侧", "右侧", 0.0),
        ("1:50", "150", 0.0),
        ("1:50", "1 : 50", 1.0),
        ("1：50", "1:50", 1.0),
        ("1/2", "12", 0.0),
        ("½", "1/2", 1.0),
        ("10-20", "1020", 0.0),
        ("10–20", "10 - 20", 1.0),
        ("1, 2", "12", 0.0),
        ("10²", "102", 0.0),
        ("5 6", "56", 0.0),
        ("<5", ">5", 0.0),
        ("<5", "5", 0.0),
        ("< 5 mm", "<5mm", 1.0),
        ("A+", "A-", 0.0),
        ("A+", "A", 0.0),
        ("A-", "A", 0.0),
        ("A-.", "a-", 1.0),
        ("C++", "C", 0.0),
        ("C++", "C+", 0.0),
        ("+", "", 0.0),
        ("+", "-", 0.0),
        ("A/B", "AB", 0.0),
        ("the + pole", "the - pole", 0.0),
        ("left-hand", "left hand", 1.0),
        ("a: b", "a b", 1.0),
        ("A 相", "A相", 1.0),
        ("A 相", "相", 0.0),
        ("<= 5 V", ">= 5 V", 0.0),
        ("<= 5 V", "≤ 5 V", 1.0),
        ("U != 0", "U = 0", 0.0),
        ("+/-0.5 mm", "±0.5 mm", 1.0),
        ("+/-0.5 mm", "-0.5 mm", 0.0),
        ("between 1e-5 and 1e-6", "between 1e5 and 1e6", 0.0),
        ("M3 x .5", "M3 x 5", 0.0),
        ("from -Vcc to Vcc", "from Vcc to Vcc", 0.0),
        ("C#", "C", 0.0),
        ("PIN# 5", "PIN 5", 1.0),
        ("Part#5", "Part 5", 1.0),
        ("pump \u2013large", "pump large", 1.0),
        ("- 40 °C", "-40 °C", 1.0),
        ("- 40 °C", "40 °C", 0.0),
        ("- 40 °C to 85 °C", "40 °C to 85 °C", 0.0),
        ("温度为-40℃", "温度为40℃", 0.0),
        ("- 5 V\n- 9 V", "5 V, 9 V", 1.0),  # a list
    ],
)
def test_exact_match_keeps_signs_units_and_separators_of_numbers(first, second, same):
    assert exact_match(first, second) == exact_match(second, first) == same


def test_normalisation_keeps_what_tells_numbers_apart():
    assert normalize_text(" The 3.5 A, a fuse (-5 °C); x-y. ") == "3.5 a fuse -5 °c x y"


def test_chinese_counts_by_characters():
    assert tokens("17位于18") == ["17", "位", "于", "18"]
    assert token_f1("17位于18的右侧", "17位于18的左侧") == pytest.approx(6 / 7)


def test_token_f1_of_two_of_three_words():
    assert token_f1("steel pump housing", "housing steel") == pytest.approx(0.8)


def test_character_f1_equals_that_by_hand():
    assert character_f1("abcd", "ab") == pytest.approx(2 * 2 / 6)


def test_anls_forgives_wrong_relations_and_numbers_and_so_selects_no_model():
    assert anls("部件4位于部件5的右侧", "部件4位于部件5的左侧") == pytest.approx(10 / 11)
    assert anls("part 4 is to the left of part 5", "part 4 is to the right of part 5") > 0.85
    assert anls("3.5 A", "35 A") == pytest.approx(0.8)
    assert anls("left", "right") == 0.0
    assert anls("ab", "aX") == 0.5
    assert anls("ab", "aX", tau=0.6) == 0.0


@given(st.text(alphabet="abc", max_size=80), st.text(alphabet="abc", max_size=80))
def test_edit_distance_is_that_of_the_table(one, other):
    row = list(range(len(other) + 1))
    for length, first in enumerate(one, 1):
        above, row = row, [length]
        for column, second in enumerate(other):
            row.append(min(above[column + 1] + 1, row[-1] + 1, above[column] + (first != second)))
    assert edit_distance(one, other) == row[-1]


@given(TEXTS, TEXTS)
def test_every_measure_is_a_symmetric_share(first, second):
    for measure in MEASURES:
        assert 0.0 <= measure(first, second) <= 1.0
        assert measure(first, second) == pytest.approx(measure(second, first))
        assert measure(first, first) == 1.0


@given(TEXTS, TEXTS)
def test_an_exact_match_shares_all_characters(first, second):
    if exact_match(first, second):
        assert character_f1(first, second) == 1.0
