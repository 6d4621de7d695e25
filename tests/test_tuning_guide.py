"""docs/tuning.md and docs/batch-arithmetic.md name settings, options and figures that there are."""

import inspect
import re

import pytest

from tests.conftest import REPOSITORY
from tests.test_documentation import FAMILIES, KNOWN

PAGES = ("docs/tuning.md", "docs/batch-arithmetic.md")


def quoted(page: str) -> list[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_is_one_of_a_family(page):
    sections = {**KNOWN}
    for section in ("model", "data"):
        sections[section] = [kind for family in FAMILIES.values() for kind in family[section]]
    named = [
        (match[1], match[2])
        for words in quoted(page)
        if (match := re.match(r"(model|data|trainer|last_checkpoint|best_checkpoint)\.([a-z0-9_.]+)", words))
    ]
    assert len(named) >= 15
    for section, key in named:
        known = {name for kind in sections[section] for name in inspect.signature(kind.__init__).parameters}
        assert set(key.split(".")) <= known | {"x", "init_args"}, f"{section}.{key}"


def test_every_option_is_one_of_fit(parser):
    named = {option for words in quoted(PAGES[0]) for option in re.findall(r"--([a-z_]+\.[a-z_]+)", words)}
    assert len(named) >= 5 and named <= set(parser.get_defaults().keys())


def test_every_figure_is_logged_by_somebody():
    named = {words for words in quoted(PAGES[0]) if re.fullmatch(r"train/[a-z_]+", words)}
    assert len(named) >= 8
    source = "".join(
        path.read_text(encoding="utf-8")
        for part in ("engine", "callbacks", "lightning_modules")
        for path in (REPOSITORY / part).rglob("*.py")
    )
    per_second = {"train/tokens_per_second": '"tokens"'}  # callbacks/throughput.py puts these names together
    assert [name for name in sorted(named) if per_second.get(name, f'"{name}"') not in source] == []
