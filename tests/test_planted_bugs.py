"""Each bug can be planted, and the script reports whether a test finds it."""

import ast
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.planted_bugs import BUGS, __main__, planting
from tests.planted_bugs.bug import Bug


def test_there_are_forty_different_ones():
    assert len(BUGS) == 40
    assert len({bug.name for bug in BUGS}) == len({(bug.file, bug.old) for bug in BUGS}) == 40


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_planted_bug_fits_the_sources(bug):
    """Each bug's text occurs exactly once, its replacement is valid Python, and its likely tests exist."""
    source = (REPOSITORY / bug.file).read_text(encoding="utf-8")
    planted = bug.planted(source)
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))
    assert bug.tests
    assert all((REPOSITORY / test).exists() for test in bug.tests)


@pytest.mark.parametrize("source", ["a = 2", "a = 1\nb = a = 1"])
def test_a_text_that_is_gone_or_ambiguous_is_refused(source):
    with pytest.raises(ValueError, match="adapt the bug"):
        Bug("b", "", "f.py", "a = 1", "a = 3", ()).planted(source)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy with one module and two tests of it; one is slow."""
    files = {
        "half.py": "def half(number):\n    return number / 2\n",
        "setup.cfg": "[tool:pytest]\nmarkers =\n    slow: slow\n",
        "test_half.py": "from half import half\n\ndef test_half():\n    assert half(4) == 2\n",
        "test_slow.py": (
            "import pytest\nfrom half import half\n\n@pytest.mark.slow\ndef test_half():\n    assert half(4) == 2\n"
        ),
    }
    source = tmp_path / "source"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)

    class OfFiles(planting.Copy):
        def __init__(self, folder: Path) -> None:
            self.folder, self._aside = folder, folder / "aside"
            shutil.copytree(source, folder, dirs_exist_ok=True)

    monkeypatch.setattr(__main__, "Copy", OfFiles)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the time of so few tests
    return source


def planted(monkeypatch, new, test):
    monkeypatch.setattr(__main__, "BUGS", (Bug("half", "", "half.py", "number / 2", new, (test,)),))


def test_a_bug_that_a_test_finds_is_reported_with_the_test(tree, monkeypatch, capsys):
    planted(monkeypatch, "number / 3", "test_half.py")
    assert __main__.main([]) == 0
    assert "test_half.py::test_half" in capsys.readouterr().out
    assert "number / 2" in (tree / "half.py").read_text()


def test_a_bug_that_kills_pytest_is_found(tree, monkeypatch, capsys):
    planted(monkeypatch, "__import__('os').kill(__import__('os').getpid(), 9)", "test_half.py")
    assert __main__.main([]) == 0
    assert "test_half.py: pytest is killed by signal 9" in capsys.readouterr().out


def test_a_bug_that_only_a_slow_test_finds_survives(tree, monkeypatch, capsys):
    planted(monkeypatch, "number / 3", "test_slow.py")
    assert __main__.main([]) == 1
    assert "survivors: half" in capsys.readouterr().out


def test_all_tests_find_what_the_likely_ones_do_not(tree, monkeypatch, capsys):
    planted(monkeypatch, "number / 3", "test_slow.py")
    assert __main__.main(["--all-tests"]) == 0
    assert "test_half.py::test_half" in capsys.readouterr().out


def test_a_suite_that_hangs_is_killed_with_what_it_started(tmp_path):
    hangs = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    code, _ = planting._run([sys.executable, "-c", hangs], tmp_path, timeout=1)
    assert code is None
    assert [
        child for child in psutil.Process().children(recursive=True) if "sleep(60)" in " ".join(child.cmdline())
    ] == []


def test_a_test_that_fails_without_the_bug_proves_nothing(tree, monkeypatch):
    (tree / "half.py").write_text("def half(number):\n    return 0  # not number / 2\n")
    planted(monkeypatch, "number / 3", "test_half.py")
    with pytest.raises(RuntimeError, match="test_half.py::test_half also without half"):
        __main__.main([])
