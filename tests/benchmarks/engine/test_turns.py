"""Tests that the benchmark's trainings continue on request, do the same work, and lack the guards they should lack."""

from contextlib import suppress
from functools import partial

import pytest
from rich.console import Console

from benchmarks.engine import measurements
from benchmarks.engine.interleaving import Gate, take_turns
from benchmarks.engine.mlp import tower
from benchmarks.engine.trainings import GUARDS, bare, engine


def test_the_tower_is_as_described():
    parameters = list(tower().parameters())
    assert len(parameters) == 48
    assert 950_000 < sum(parameter.numel() for parameter in parameters) < 1_050_000


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_turns_are_measured_on_one_and_on_two_processes(capsys):
    variants = {"bare": partial(bare, batch_size=8), "engine": partial(engine, batch_size=8)}
    turns = take_turns(variants, processes={"bare": 1, "engine": 2}, steps=2, repeats=2, apart="twice", warm_up=2)
    assert {name: len(measured) for name, measured in turns.items()} == {"bare": 2, "engine": 2, "twice": 2}
    assert all(turn.cpu > 0 and turn.wall > 0 for measured in turns.values() for turn in measured)
    result = measurements._result("step", "A step", turns, compared_with="bare")
    Console(width=140).print(measurements.table(result))
    assert "engine" in capsys.readouterr().out


def test_guards_are_disabled_by_name(tmp_path, monkeypatch):
    """A guard that was renamed would silently be measured as free."""
    monkeypatch.chdir(tmp_path)
    present = []

    class Enough(Exception):
        pass

    class Looking(Gate):
        def step(self):
            raise Enough

    from commands.cli.main import LockstepCLI

    before_fit = LockstepCLI.instantiate_trainer

    def looking(self, **kwargs):
        trainer = before_fit(self, **kwargs)
        present.extend(type(callback).__name__ for callback in trainer.callbacks)
        return trainer

    monkeypatch.setattr(LockstepCLI, "instantiate_trainer", looking)
    with suppress(Enough):
        engine(Looking(), batch_size=8, guards=())
    assert set(GUARDS) <= set(present)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_has_as_many_samples_with_two_processes(monkeypatch, processes):
    """The batch size of a variant is that of all its processes."""
    found = {}

    def only_read(variants, **options):
        found.update(variants)
        return {name: [] for name in variants}

    monkeypatch.setattr(measurements, "take_turns", only_read)
    measurements.step(1, processes)
    assert {variant.keywords["batch_size"] for variant in found.values()} == {8 * processes}
