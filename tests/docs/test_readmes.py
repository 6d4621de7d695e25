"""Compares README.zh-CN.md with README.md: the same sections, commands, files, numbers and links."""

import re

from tests.docs.pages import commands, read, tables

ENGLISH, CHINESE = read("README.md"), read("README.zh-CN.md")


def links(text: str) -> list[str]:
    """Return the links in order, without the links at the top from each page to the other."""
    return [link for link in re.findall(r"\]\(([^)]+)\)", text) if not re.fullmatch(r"README.*\.md", link)]


def numbers(text: str) -> list[list[list[str]]]:
    """Return the numbers in each row of each table: words are translated, and "2.5x less" is "1/2.5" there."""
    rows = [[" ".join(row) for row in table] for table in tables(text.replace("1/", ""))]
    return [[sorted(re.findall(r"\d+(?:[.,]\d+)*", row)) for row in table] for table in rows]


def code(text: str) -> list[str]:
    """Return the commands and the files of a run, without their descriptions."""
    lines = re.findall(r"^    (\S.*)$", text, flags=re.MULTILINE)
    return [re.split(r"\s{2,}|\s+#", line)[0] for line in lines]


def test_both_readmes_have_the_same_commands():
    assert commands("README.md") == commands("README.zh-CN.md")
    assert code(ENGLISH) == code(CHINESE)
    assert len(code(ENGLISH)) >= 9


def test_both_readmes_have_the_same_links():
    assert links(ENGLISH) == links(CHINESE)
    assert len(links(ENGLISH)) >= 15
    assert "(README.zh-CN.md)" in ENGLISH
    assert "(README.md)" in CHINESE


def test_both_readmes_have_the_same_sections():
    shapes = [re.findall(r"^#+", text, flags=re.MULTILINE) for text in (ENGLISH, CHINESE)]
    assert shapes[0] == shapes[1]


def test_both_readmes_have_as_many_promises():
    numbers = [len(re.findall(r"^- \*\*", text, flags=re.MULTILINE)) for text in (ENGLISH, CHINESE)]
    assert numbers[0] == numbers[1] >= 5


def test_both_readmes_have_the_same_numbers_in_the_same_rows():
    assert numbers(ENGLISH) == numbers(CHINESE)
    assert len(numbers(ENGLISH)) == 1
    assert all(any(row) for table in numbers(ENGLISH) for row in table[2:])


def test_both_readmes_have_the_same_metrics_in_the_prose():
    """A metric that is measured again is changed in both pages; words and units around it are translated."""
    decimals = [set(re.findall(r"\d+\.\d+", re.sub(r"\]\([^)]*\)", "", text))) for text in (ENGLISH, CHINESE)]
    assert decimals[0] == decimals[1]
    assert len(decimals[0]) >= 15
