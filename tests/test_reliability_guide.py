"""docs/reliability.md: every option that it names exists, every test that it points to is there."""

import re

from commands.cli import LockstepCLI
from tests.conftest import REPOSITORY

GUIDE = (REPOSITORY / "docs/reliability.md").read_text(encoding="utf-8")


def test_every_option_is_one_of_fit(capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    try:
        LockstepCLI(["fit", "--help"])
    except SystemExit:
        pass
    known = set(re.findall(r"--[a-z_]+(?:\.[a-z_]+)*", capsys.readouterr().out))
    named = set(re.findall(r"(?<![\w-])--[a-z_]+(?:\.[a-z_]+)*(?![\w-])", GUIDE))
    assert len(named) >= 8
    assert named - known == set()


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", GUIDE)
    assert len(links) >= 15
    assert [link for link in links if not (REPOSITORY / "docs" / link).exists()] == []
