"""`python -m benchmarks` lists what there is, and hands over to it."""

from pathlib import Path

import pytest

from benchmarks import __main__ as door


def test_the_list_names_every_benchmark_that_there_is(capsys):
    door.main([])
    said = capsys.readouterr().out
    folder = Path(door.__file__).parent
    there = {path.parent.name for path in folder.glob("*/__main__.py")} | {"gpu"}  # which is one file
    assert there == set(door.BENCHMARKS)
    assert all(name in said for name in there)


@pytest.mark.parametrize("name", door.BENCHMARKS)
def test_each_has_help_and_takes_the_options_of_the_list(name, capsys):
    with pytest.raises(SystemExit) as ended:
        door.main([name, *door.BENCHMARKS[name].options, "--help"])
    assert ended.value.code == 0 and f"benchmarks.{name}" in capsys.readouterr().out


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        door.main(["recomender"])
    assert ended.value.code == 2 and "recommender" in capsys.readouterr().err


def test_all_hands_over_in_turn_and_names_a_file_for_each(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(door, "_main_of", lambda name: lambda arguments: called.append((name, arguments)))
    door.main(["all", "--json", str(tmp_path / "new")])
    assert [name for name, _ in called] == list(door.BENCHMARKS)
    assert all(arguments[-2:] == ["--json", str(tmp_path / "new" / f"{name}.json")] for name, arguments in called)
    assert (tmp_path / "new").is_dir()


def test_one_that_cannot_be_measured_here_keeps_no_other_from_it(monkeypatch, capsys):
    called = []

    def measure(name):
        def main(arguments):
            called.append(name)
            if name == "engine":
                raise SystemExit("not measured: no root")

        return main

    monkeypatch.setattr(door, "_main_of", measure)
    with pytest.raises(SystemExit, match="not measured here: engine"):
        door.main(["all"])
    assert called == list(door.BENCHMARKS) and "no root" in capsys.readouterr().err
