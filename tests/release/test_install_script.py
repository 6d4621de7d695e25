"""`make` installs with uv and the options of pip, and with pip where uv is missing or cannot be used."""

import os
import subprocess

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / ".ci/install"
PIP = "pip install --quiet --constraint constraints.txt --editable .[dev]"
UV = "--index-strategy unsafe-best-match"


@pytest.fixture
def install(tmp_path):
    """Runs the script with a pip that has some settings, and with a uv that ends so; returns what was called."""

    def run(settings: str = "", uv: int | None = 0) -> list[str]:
        calls = tmp_path / "calls"
        programs = {"venv/bin/python": f'[ "$3" = config ] && cat {tmp_path}/settings || echo "${{@#-m}}" >>{calls}'}
        if uv is not None:
            programs["bin/uv"] = f'echo "uv $SSL_CERT_FILE $*" >>{calls}; exit {uv}'
        for name, text in programs.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
        (tmp_path / "settings").write_text(settings)
        surroundings = {"PATH": f"{tmp_path}/bin:{os.defpath}"}
        subprocess.run(["sh", str(SCRIPT), "venv", ".[dev]"], cwd=tmp_path, env=surroundings, check=True, timeout=60)
        return [" ".join(line.split()) for line in calls.read_text().splitlines()]

    return run


def test_uv_gets_the_sources_that_pip_has(install):
    (call,) = install(
        ":env:.cert='/ca.crt'\n:env:.find-links='/wheels'\n:env:.disable-pip-version-check='1'\nlist.format='columns'\n"
        "global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'\nglobal.find-links='/others'\n"
    )
    sources = "--find-links /wheels --index https://a.example/simple --index https://b.example/simple"
    assert call == (
        f"uv /ca.crt pip install --quiet --python venv/bin/python {UV} {sources} --constraint constraints.txt "
        "--editable .[dev]"
    )


def test_without_settings_uv_has_its_own_sources(install):
    (call,) = install()
    assert (
        call == f"uv pip install --quiet --python venv/bin/python {UV} --constraint constraints.txt --editable .[dev]"
    )


@pytest.mark.parametrize("settings", ["global.no-index='true'\n", ":env:.only-binary=':all:'\nglobal.timeout='9'\n"])
def test_settings_that_uv_does_not_heed_are_for_pip(install, settings):
    assert install(settings) == [PIP]


def test_pip_installs_where_uv_fails(install):
    failed, done = install(uv=1)
    assert failed.startswith("uv ")
    assert done == PIP


def test_pip_installs_where_there_is_no_uv(install):
    assert install(uv=None) == [PIP]
