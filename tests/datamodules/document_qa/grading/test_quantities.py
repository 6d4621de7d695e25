"""Tests numbers with units."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from datamodules.document_qa.grading.quantities import is_quantity, quantities
from datamodules.document_qa.grading.quantity_match import same_quantities
from datamodules.document_qa.grading.units import normal_form, parse_unit

SAME = [
    ("3.5 A", "3500 mA"),
    ("3.5 A", "3,5A"),
    ("3.5 A", "The current is 3.5 amps."),
    ("3.5 A", "３．５Ａ"),
    ("3.5 A", "3.5 A at 230 V"),
    ("额定电流为3.5安培", "3500毫安"),
    ("12毫米", "12 mm"),
    ("12 mm", "1.2厘米"),
    ("1,234.5 mm", "1.234,5 mm"),
    ("1 234,5 mm", "1.2345 m"),
    ("1,234", "1234"),
    ("1'234'567", "1.234.567"),
    ("3.5 kg", "it weighs 3,500 grams"),
    ("25 °C", "298.15 K"),
    ("25℃", "25摄氏度"),
    ("25 °C", "77 °F"),
    ("25 °C", "25 degrees Celsius"),
    ("10-20 mm", "1 to 2 cm"),
    ("5 %", "5 percent"),
    ("1.2×10³ Pa", "1.2 kPa"),
    ("1e-3 V", "1 mV"),
    ("4.7 kΩ", "4700 ohms"),
    ("3 m3/h", "3 m³/h"),
    ("2平方毫米", "2 mm²"),
    ("5 km", "5 kilometers"),
    ("1500转/分", "1500 r/min"),
    ("36 km/h", "10 m/s"),
    ("2000 mAh", "2 Ah"),
    ("1kWh", "3.6 MJ"),
    ("5 kPa", "5 KPA"),
    ("12 µF", "12 uF"),
    ("-5 °C", "−5 °C"),
    ("7", "7 screws"),
    ("M8", "m8"),
    ("steel", "Steel."),
    ("5 teeth", "It has 5 teeth."),
    ("5 teeth", "teeth: 5"),
    ("1 screw", "1 screws"),
    ("5个齿", "5齿"),
    ("5个", "5"),
    ("10 to 20", "10-20"),
    ("<5 A", "< 5000 mA"),
    ("<5 A", "less than 5 A"),
    ("at most 5 A", "≤ 5 A"),
    ("≥5", ">= 5"),
    ("10 ± 0.5 mm", "10 mm +/- 0.5 mm"),
    ("不超过5 A", "≤5A"),
    ("5 A", "It is less than the fuse's: 5 A"),
    ("0.5 MPa以下", "at most 0.5 MPa"),
    ("0.5 MPa以下", "≤0.5 MPa"),
    ("up to 1.5 MPa", "1.5 MPa or less"),
    ("3 V", "3 V or more"),
    ("3 million", "3,000,000"),
    ("3万元", "30000元"),
    ("1.2亿", "120 million"),
    ("1 000 h or more", "at least 1 000 h"),
    ("10-20 mm or more", "at least 10-20 mm"),
    ("2万向节", "2个万向节"),
    ("5e3 h or more", "at least 5,000 h"),
    ("5 m3以下", "at most 5 m³"),
    ("±0.1 mm以内", "±0.1 mm"),
    ("230 VAC, 50 Hz", "230 VAC, 50 Hz"),
    ("100-240 VAC, 50/60 Hz", "100-240 VAC, 50/60 Hz"),
    ("230 V", "230 VAC"),
    ("24 V", "It needs 24Vdc."),
    ("230 VAC", "230 VAC"),
    ("-40 °C", "- 40 °C"),
    ("-40 °C", "It is \u2013 40 °C."),
    ("-40 to -10 °C", "\u2013 40 °C to \u2013 10 °C"),
    ("-40 °C", "温度为- 40 ℃"),
    ("10 to 20 mm", "10 - 20 mm"),
    ("5 V and 9 V", "The levels:\n- 5 V\n- 9 V"),
    ("5 V", "It is\n- 5 V"),
    ("10 to 20 mm", "from 10 mm \u2013 20 mm"),
    ("90 min", "1 h 30 min"),
    ("90 min", "It takes 1 hour and 30 minutes."),
    ("1小时5分钟", "65 min"),
    ("1小时零5分钟", "3900 s"),
    ("1 d 2 h 30 min", "26.5 h"),
    ("-1 m 20 cm", "-1.2 m"),
    ("2 kg 500 g", "2.5 kg"),
    ("at most 1 h 30 min", "≤ 90 min"),
    ("1 h to 1 h 30 min", "60 to 90 min"),
]
DIFFERENT = [
    ("3.5 A", "35 A"),
    ("3.5 A", "3.5"),
    ("3.5 A", "3.5 V"),
    ("3.5 A", "3.5 A or 4 A"),
    ("-5 °C", "5 °C"),
    ("5 mW", "5 MW"),
    ("2 Nm", "2 nm"),
    ("10 to 20 mm", "20 mm"),
    ("7", "part 7 of 12"),
    ("M8", "M6"),
    ("1,234", "1.234"),
    ("25 °C", "25 K"),
    ("3.5 A", ""),
    ("7", "seven"),
    ("0.25", "25"),
    ("5 teeth", "5 mm"),
    ("5 teeth", "5"),
    ("5个齿", "5毫米"),
    ("<5 A", ">5 A"),
    ("<5 A", "5 A"),
    ("5 A", "<5 A"),
    ("≤5 A", "<5 A"),
    ("±5", "5"),
    ("<5", "more than 5"),
    ("10 ± 0.5 mm", "10 to 0.5 mm"),
    ("≤5 A", "at least 5 A"),
    ("0.5 MPa以下", "1.5 MPa以下"),
    ("0.5 MPa以下", "0.5 MPa以上"),
    ("-10℃以上", "10 V以上"),
    ("up to 1.5 MPa", "up to 5 kPa"),
    ("at most 5 A", "at least 5 A"),
    ("5", "5 thousand"),
    ("3", "3万"),
    ("230 VAC", "230 VDC"),
    ("5 V", "5 kVAC"),
    ("40 °C", "- 40 °C"),
    ("5 V", "\u20135 V"),
    ("40 °C", "温度为-40 ℃"),
    ("90 min", "1 h 20 min"),
    ("30 min", "1 h 30 min"),
    ("1.5 h", "1.5 h 30 min"),
    ("150 min", "1 h 90 min"),
    ("1 h", "1 h 5 min"),
    ("1.005 h", "1 h, 18 s"),
    ("2.5 kV", "2 kV and 500 V"),
    ("24.5 V", "24 V 500 mV"),
    ("5.2 A", "5 A and 200 mA"),
    ("10.5 kN", "10 kN and 500 N"),
    ("2.5 kg", "2 kg and 500 g"),
    ("1.2 m", "1 m and 20 cm"),
]


@pytest.mark.parametrize(("right", "answer"), SAME)
def test_a_quantity_in_other_words_or_units_is_the_same(right, answer):
    assert same_quantities(right, answer) == 1.0


@pytest.mark.parametrize(("right", "answer"), DIFFERENT)
def test_another_number_unit_or_bound_is_another_quantity(right, answer):
    assert same_quantities(right, answer) == 0.0


def test_the_tolerance_is_relative():
    assert same_quantities("200 V", "0.199 kV") == 0.0
    assert same_quantities("200 V", "0.199 kV", relative_tolerance=0.01) == 1.0
    assert same_quantities("200 V", "197 V", relative_tolerance=0.01) == 0.0


def test_numbers_are_read_as_they_are_written():
    read = [quantity.number for quantity in quantities("1,234 and 0,5 and 1.234 and -7 and 3e2 and M8, 2.5×10⁻³")]
    assert read == [1234, 0.5, 1.234, -7, 300, 0.0025]


def test_numbers_with_units_are_quantities():
    assert all(map(is_quantity, ("3.5 A", "7", "12毫米", "1,234.5 mm.", "- 40 °C", "1 h 30 min")))
    assert not any(map(is_quantity, ("about 7", "steel", "M8", "10 to 20 mm", "1 h 90 min", "1 h 30 min later", "")))


def test_rare_words_are_no_units():
    assert parse_unit("at") is None
    assert parse_unit("screws") is None
    assert parse_unit("") is None


def test_composed_units_equal_their_named_unit():
    first, second = parse_unit(normal_form("N/mm²")), parse_unit("MPa")
    assert first.bases == second.bases
    assert first.factor == pytest.approx(second.factor)


@given(st.integers(1, 10**6), st.integers(0, 3), st.sampled_from(["m", "V", "Ω", "Hz", "g", "W"]))
def test_prefixes_are_powers_of_ten(number, decimals, unit):
    value = number / 10**decimals
    assert same_quantities(f"{value} {unit}", f"{value * 1000!r} m{unit}") == 1.0
    assert same_quantities(f"{value} {unit}", f"{value / 1000:.12f} k{unit}") == 1.0
    assert same_quantities(f"{value} {unit}", f"{value * 10!r} {unit}") == 0.0


@given(st.integers(0, 10**9), st.integers(0, 999))
def test_english_and_continental_notations_of_a_number_are_equal(whole, thousandths):
    english = f"{whole:,}.{thousandths:03}"
    assume("," in english)
    continental = english.translate(str.maketrans(",.", ".,"))
    assert same_quantities(english, continental) == 1.0
    assert quantities(english)[0].number == pytest.approx(whole + thousandths / 1000)


@given(st.text(max_size=40), st.text(alphabet="0123456789.,-e×10³ mAkΩ°C%毫米/ ", max_size=40))
def test_any_text_is_read(first, second):
    for text in (first, second):
        parsed = quantities(text)
        assert same_quantities(text, text) == 1.0 or len(parsed) != 1 or not math.isfinite(parsed[0].number)
    assert same_quantities(first, second) in (0.0, 1.0)
