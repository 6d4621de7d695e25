"""`python -m benchmarks` lists what there is, and hands over to it."""

import re
from pathlib import Path

import pytest

from benchmarks import __main__ as door
from benchmarks.command_line import benchmark_parser


def test_the_list_names_every_benchmark_that_there_is(capsys):
    door.main([])
    output = capsys.readouterr().out
    folder = Path(door.__file__).parent
    there = {path.parent.name for path in folder.glob("*/__main__.py")} | {"gpu"}  # which is one file
    assert there == set(door.BENCHMARKS)
    assert all(name in output for name in there)


@pytest.mark.parametrize("name", door.BENCHMARKS)
def test_each_has_help_and_takes_the_options_of_the_list(name, capsys):
    with pytest.raises(SystemExit) as ended:
        door.main([name, *door.BENCHMARKS[name].options, "--help"])
    assert ended.value.code == 0
    assert f"benchmarks.{name}" in capsys.readouterr().out


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        door.main(["recomender"])
    assert ended.value.code == 2
    assert "recommender" in capsys.readouterr().err


def test_all_hands_over_in_turn_and_names_a_file_for_each(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(door, "_main_of", lambda name: lambda arguments: called.append((name, arguments)))
    door.main(["all", "--json", str(tmp_path / "new")])
    assert [name for name, _ in called] == list(door.BENCHMARKS)
    assert all(arguments[-2:] == ["--json", str(tmp_path / "new" / f"{name}.json")] for name, arguments in called)
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize("given", [["all"], ["recommender"]])
@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(130)])
def test_ctrl_c_ends_the_benchmarks_with_code_130(given, interruption, monkeypatch):
    called = []

    def main(arguments):
        called.append(arguments)
        raise interruption

    monkeypatch.setattr(door, "_main_of", lambda name: main)
    with pytest.raises(SystemExit) as ended:
        door.main(given)
    assert ended.value.code == 130
    assert len(called) == 1


@pytest.mark.parametrize("name", [[], ["growth"]])
def test_a_missing_or_late_name_is_an_error_before_any_measurement(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(door, "_main_of", lambda name: pytest.fail(f"{name} was started"))
    with pytest.raises(SystemExit) as ended:
        door.main(["--json", str(tmp_path), *name])
    assert ended.value.code == 2
    assert "NAME must be the first argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--repeats", "x"], "expected a whole number of 1 or more, found 'x'"),
        (["--repeats", "0"], "expected a whole number of 1 or more, found '0'"),
        (["--json", "."], "is a folder; expected a file"),
        (["--json", "nowhere/kept.json"], "does not exist"),
    ],
)
def test_wrong_options_are_refused_before_measuring(options, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark_parser("growth", None, repeats=1).parse_args(options)
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_one_that_fails_keeps_no_other_from_being_measured(monkeypatch, capsys):
    called = []

    def measure(name):
        def main(arguments):
            called.append(name)
            if name == "engine":
                raise SystemExit("not measured: no root")
            if name == "growth":
                raise RuntimeError("the process ended with exit code -9")

        return main

    monkeypatch.setattr(door, "_main_of", measure)
    with pytest.raises(SystemExit, match=r"growth \(RuntimeError: .* code -9\), engine; see the errors above"):
        door.main(["all"])
    assert called == list(door.BENCHMARKS)
    assert "no root" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["gpu", "--minutes", "-3"],
        ["gpu", "--minutes", "nan"],
        ["gpu", "--minutes", "0"],
        ["gpu", "--peak-tflops", "-1"],
        ["gpu", "--repeats", "-1"],
        ["growth", "--rows", "-5"],
        ["recommender", "--target", "-0.1"],
        ["document_qa", "--pages", "0"],
    ],
)
def test_a_number_that_measures_nothing_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        door.main(arguments)
    assert ended.value.code == 2
    assert f"argument {arguments[1]}: expected a" in capsys.readouterr().err


def test_no_option_of_a_benchmark_takes_every_number():
    sources = [path for path in Path(door.__file__).parent.rglob("*.py") if "add_argument" in path.read_text()]
    assert sources
    assert not [path for path in sources if re.search(r"type=(int|float)\b", path.read_text())]
