"""Every link of every page leads to a file, and to a heading that is in it; every guide can be found."""

import re

import pytest

from tests.conftest import REPOSITORY

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder in ("", "docs/", "deploy/**/")
    for path in REPOSITORY.glob(f"{folder}*.md")
)


def prose(page: str) -> str:
    """A page without its code blocks, in which brackets are no links and # begins no heading."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """What GitHub calls the headings of a page: small letters, spaces as hyphens, nothing else that is no word."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()).strip().replace(" ", "-")
        number = 0
        while (anchor := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(anchor)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        name, _, heading = link.partition("#")
        target = ((REPOSITORY / page).parent / name).resolve() if name else REPOSITORY / page
        assert target.is_relative_to(REPOSITORY) and target.exists(), link
        if heading:
            assert heading in anchors(target.relative_to(REPOSITORY).as_posix()), link


def test_every_guide_is_in_the_index():
    index = set(re.findall(r"\]\(([\w.-]+\.md)", prose("docs/README.md")))
    assert {path.name for path in (REPOSITORY / "docs").glob("*.md")} - {"README.md"} == index
