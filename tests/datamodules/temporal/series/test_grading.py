"""Tests forms and grades of answers."""

import pytest

from datamodules.temporal.series.grading import (
    AnswerForm,
    chosen_option,
    find_number,
    form_of,
    grade,
    is_right,
    points_of,
)
from datamodules.temporal.series.series_question import SeriesQuestion


def question(answer, options=(), kind=""):
    return SeriesQuestion("a.jsonl, line 1", "", "?", (), options, answer, kind)


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("20 °C", "20 °C", True),
        ("20 °C", "about 21 °C.", True),  # 5 % is within the tolerance
        ("20 °C", "21.1 °C", False),
        ("20 °C", "20 K", False),
        ("20 °C", "20", False),
        ("20", "20", True),
        ("20", "It is 20 on average", True),
        ("-1,200.5 kW", "-1200.5 kW", True),
        ("1e3", "1000", True),
        ("0", "0.04", True),
        ("0", "0.06", False),
        ("30%", "30 %", True),
        ("\N{MINUS SIGN}5 m/s", "-5 m/s", True),
        ("20", "no idea", False),
        ("21.5 °C", "21.5°C。", True),
        ("21.5 °C", "平均温度为21.5°C，最高为25°C", True),
        ("21.5 °C", "平均温度为21.5°C左右", True),
        ("21.5 °C", "The mean (21.5 °C) is high", True),
        ("21.5 °C", "**21.5 °C**", True),
        ("21.5 °C", "21.5 °C: the mean", True),
        ("21.5 °C", '"21.5 °C"', True),
        ("21.5 °C", "21.5 \u2103", True),
        ("21.5 \u2103", "21.5 °C", True),
        ("21.5 °C", "21.5 °F", False),
        ("5小时", "大约5小时左右。", True),
        ("5小时", "5分钟", False),
        ("12%", "占１２％。", True),
        ("-5 °C", "\u20135 °C", True),
        ("-5 °C", "\uff0d5 °C", True),
        ("5 °C", "\u20135 °C", False),
        ("3 V", "3\u20134 V", False),
        ("12 kW", "(12 kW)", True),
        ("12 kW", "12 KW", True),
        ("5 MW", "5 mW", False),
        ("5 MB", "5 Mb", False),
        ("5 s", "5 S", False),
        ("20 V", "20 v", True),
        ("5 minutes", "5 Minutes", True),
        ("5 MPa", "5 mPa", False),
        ("3 dB", "3 db", True),
        ("5 米/秒", "5 米/秒。", True),
        ("5 米", "5 米/秒", False),
        ("5 米", "5 米每秒", False),
        ("3 立方米/小时", "约3立方米/小时左右", True),
        ("5 N*m", "It is 5 N*m.", True),
        ("0.5 W/(m·K)", "0.5 W/(m·K)", True),
        ("45 dB(A)", "45 dB(A) at night", True),
        ("5 m", "5 m2", False),
        ("5 千瓦", "5 千瓦时", False),
        ("3 个", "3 个月", False),
        ("5 度", "5 度以上的时间", True),
        ("5 N", "5 N*m", False),
        ("5 W", "5 W-h", False),
        ("5 V", "5 V(rms)", False),
        ("5 V", "5 V (rms)", True),
        ("0.9", "R\N{SUPERSCRIPT TWO} is 0.9", True),
        ("21.5 °C", "答案——21.5 °C", True),
        ("7 \N{MICRO SIGN}s", "7 \N{GREEK SMALL LETTER MU}s", True),
    ],
)
def test_numbers_are_graded_with_a_tolerance(reference, answer, right):
    assert form_of(question(reference)) == AnswerForm.NUMBER
    assert is_right(question(reference), answer, 0.05) == right


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [("It rises", "it  rises.", True), ("It rises", "It rises slowly", False), ("between 3 and 4", "3", False)],
)
def test_texts_are_right_if_all_their_words_are(reference, answer, right):
    assert form_of(question(reference)) == AnswerForm.TEXT
    assert is_right(question(reference), answer, 0.05) == right


@pytest.mark.parametrize(
    ("answer", "option"),
    [("up", "up"), (" down ", "down"), ("B", "down"), ("(a)", "up"), ("b)", "down"), ("C", None), ("sideways", None)],
)
def test_options_are_named_by_text_or_letter(answer, option):
    assert chosen_option(answer, ("up", "down")) == option


def test_a_grade_counts_all_its_form_and_its_kind():
    right = (1.0, 1.0)
    assert grade(question("up", ("up", "down"), "trend"), "up", 0.05) == {
        "right": right,
        "accuracy": right,
        "trend/right": right,
    }
    assert grade(question("3 h"), "4 h", 0.05) == {"right": (0.0, 1.0), "number_within_tolerance": (0.0, 1.0)}
    assert points_of(question("x"), (0.25, 1.0)) == {"right": (0.25, 1.0), "text_exact": (0.25, 1.0)}


def test_the_first_number_of_a_long_answer_is_read_in_bounded_time():
    assert find_number("1" * 100_000, "") is not None
    assert find_number("," * 100_000 + "1", "") is None
