"""Tests the parts and their tables with fake drivers, then ours and the packages themselves on small data."""

import pytest

from benchmarks.packages import __main__ as door
from benchmarks.packages import variants
from benchmarks.packages.driver_process import Driver
from benchmarks.packages.environments import ENVIRONMENTS, NotInstalled, python_of
from benchmarks.packages.interactions import rows_of_epoch, write_ring
from benchmarks.packages.parts import PARTS
from benchmarks.packages.report import rates, table
from benchmarks.packages.variants import SETTINGS, VARIANTS
from benchmarks.recommender.movielens_like import movielens_like
from tests.benchmarks.conftest import printed
from tests.benchmarks.packages.stand_in import BREAKS, WORKS, command

RECBOLE, RECTOOLS, OURS = VARIANTS

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_measures_every_variant_and_skips_a_variant_that_fails(part, tmp_path):
    started = {
        RECBOLE: command(tmp_path, "RecBole", WORKS),
        RECTOOLS: command(tmp_path, "RecTools", BREAKS),
        OURS: command(tmp_path, "ours", WORKS),
    }
    result = PARTS[part](started, 2, 20)
    assert [variant["name"] for variant in result["sides"]] == ["RecBole", "ours"]
    assert list(result["failed"]) == ["RecTools"]
    assert "the package is broken" in result["failed"]["RecTools"]
    assert all(len(variant["turns"]) == (1 if part == "learn" else 2) for variant in result["sides"])
    text = printed(table(result))
    assert "RecBole 1.2.3" in text
    assert "x " in text or part == "learn"


def test_rates_are_of_cpu_seconds():
    turns = [{"targets": 10.0, "cpu": 2.0, "wall": 9.0}, {"targets": 9.0, "cpu": 3.0, "wall": 9.0}]
    assert rates({"turns": turns}, "targets") == [5.0, 3.0]


def test_rows_of_an_epoch_are_what_a_loop_counts():
    offsets = movielens_like(50).offsets
    trained = [range(end - start - 2) for start, end in zip(offsets, offsets[1:], strict=False)]
    prefixes = sum(1 for events in trained for target in events if target > 0)
    targets = sum(len(events[1:][-30:]) for events in trained)
    assert rows_of_epoch(True, 30, 50) == (prefixes, prefixes)
    assert rows_of_epoch(False, 30, 50) == (50, targets)


def test_no_users_are_refused_at_once(capsys):
    with pytest.raises(SystemExit, match="2"):
        door.main(["--users", "0"])
    assert "--users: expected a whole number of 1 or more, found '0'" in capsys.readouterr().err


def test_without_any_package_there_is_nothing_to_compare(monkeypatch, capsys):
    def refuse(package, folder):
        raise NotInstalled(f"{package} could not be installed: no network")

    monkeypatch.setattr(variants, "install_environment", refuse)
    with pytest.raises(SystemExit, match="no package could be installed"):
        door.main([])
    assert capsys.readouterr().err.count("no network") == 2


def test_where_nothing_is_to_be_installed_nothing_is(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(variants, "install_environment", lambda package, folder: pytest.fail("installs"))
    door.main(["--installed", "--environments", str(tmp_path)])
    output = capsys.readouterr()
    assert "no package is installed" in output.out
    assert "recbole is not installed" in output.err


def test_with_one_package_the_other_is_skipped(monkeypatch, capsys, tmp_path):
    def only_recbole(variant, environments):
        if variant is RECTOOLS:
            raise NotInstalled("rectools could not be installed: no network")
        return command(tmp_path, variant.name, WORKS)

    monkeypatch.setattr(variants.Variant, "command", only_recbole)
    door.main(["--only", "learn", "--json", str(tmp_path / "results.json")])
    output = capsys.readouterr()
    assert "RecBole 1.2.3" in output.out
    assert "RecTools" not in output.out
    assert "skipped: rectools" in output.err
    assert '"ndcg": 0.95' in (tmp_path / "results.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_driver_trains_on_the_targets_that_it_counts(variant, tmp_path):
    if variant.package and python_of(variant.package, ENVIRONMENTS) is None:
        pytest.skip(f"no environment of {variant.package}: `python -m benchmarks packages` makes it")
    (tmp_path / "work").mkdir()
    ring = write_ring(tmp_path, num_users=256, length=20)
    settings = {**SETTINGS, "work": "train", "interactions": str(ring), "length": 12}
    with Driver(variant.command(ENVIRONMENTS), settings, tmp_path / "work") as driver:
        turn = driver.turn(2)
    # Of 20 events 18 train, and the first is not a target.
    assert (turn["rows"], turn["targets"]) == (256, 256 if variant.prefixes else 256 * 12)
