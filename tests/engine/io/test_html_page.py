"""Tests that a page runs only its own scripts, and shows its content as text."""

import base64
import hashlib
import json
import math

import pytest

from engine.io.html_page import html_page, replace_non_finite


def test_content_and_title_are_no_markup(tmp_path):
    script, style = tmp_path / "own.js", tmp_path / "own.css"
    script.write_text("own();"), style.write_text("own {}")
    attack = "</script><script>alert(1)</script>"
    page = html_page(attack, json.dumps([attack]), [script], [style])
    assert "<script>alert" not in page
    assert "</script><script" not in page.lower()
    assert "own();" in page
    assert "own {}" in page


def test_the_policy_allows_the_script_of_the_page_alone(tmp_path):
    page = html_page("title", "{}", [], [])
    source = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_null(number):
    assert replace_non_finite({"a": [number, (1.5, "nan", True)]}) == {"a": [None, [1.5, "nan", True]]}
