"""The fuzzer: kept cases, a few inputs of every reader, and the faults that it has to count."""

import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import campaign
from tests.fuzz.__main__ import main
from tests.fuzz.outcome import GOOD, OutcomeKind
from tests.fuzz.pool import Worker
from tests.fuzz.reader import Input
from tests.fuzz.readers import MODULES, PLANTED, reader
from tests.fuzz.worker import examine

KEPT = sorted(path for path in campaign.CASES.glob("*/*") if path.is_file())
DEAR = ("config", "command_line")
"""Their parser is built for seconds, which the slow tier does once for all inputs."""

FAULTS = {
    "right one": OutcomeKind.RIGHT,
    "refused": OutcomeKind.REFUSED,
    "silent one": OutcomeKind.SILENT,
    "right invalid": OutcomeKind.SILENT,
    "key": OutcomeKind.TRACEBACK,
    "exit": OutcomeKind.TRACEBACK,
    "killed": OutcomeKind.TRACEBACK,
    "nameless": OutcomeKind.MESSAGE,
    "placeless": OutcomeKind.MESSAGE,
    "long": OutcomeKind.MESSAGE,
    "busy": OutcomeKind.TIME,
    "asleep": OutcomeKind.TIME,
    "large": OutcomeKind.MEMORY,
}


@pytest.mark.parametrize("path", [path for path in KEPT if path.parent.name not in DEAR], ids=lambda path: path.name)
def test_an_input_that_failed_once_is_read_rightly_or_refused(path):
    outcome = examine(reader(path.parent.name), campaign.load(path))
    assert outcome.kind in GOOD, outcome.detail


def test_cases_are_small_and_each_has_a_reader():
    assert {path.parent.name for path in KEPT} <= MODULES.keys()
    assert [path.name for path in KEPT if path.stat().st_size > 5000 or "@" not in path.name] == []


@pytest.mark.parametrize("name", [name for name in MODULES if name not in DEAR])
def test_seeds_are_read_as_the_reference_reads_them(name):
    seeds = reader(name).seeds()
    examine(reader(name), seeds[0])  # imports what a read needs
    outcomes = {seed.path: examine(reader(name), seed) for seed in seeds}
    assert {path: outcome.detail for path, outcome in outcomes.items() if outcome.kind is not OutcomeKind.RIGHT} == {}


@pytest.mark.parametrize("name", MODULES)
def test_a_seed_gives_the_same_inputs_again_and_another_seed_other_ones(name):
    first, second, other = (list(campaign.inputs(name, 30, seed)) for seed in (1, 1, 2))
    assert first == second
    assert first != other
    assert len({found.data for found in first}) > 15


@pytest.mark.slow
def test_each_outcome_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Worker(PLANTED) as worker:
        found = {text: worker.read(Input("words.txt", text.encode())).kind for text in FAULTS}
    # A busy machine may need longer to provide the memory than an input may take.
    assert found.pop("large") in (OutcomeKind.MEMORY, OutcomeKind.TIME)
    assert found == {text: kind for text, kind in FAULTS.items() if text != "large"}
    assert list(tmp_path.glob("fuzz-*")) == [], "a process that is killed leaves no inputs"


@pytest.mark.slow
def test_a_failing_input_is_kept_and_replayed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MODULES, PLANTED, "planted")
    monkeypatch.setattr(
        campaign, "inputs", lambda *_: [Input("words.txt", b"right"), Input("words.txt", b"silent one")]
    )
    assert main(["--reader", PLANTED, "--inputs", "2"]) == 1
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert Path(command[-1]).read_bytes() == b"silent one"
    assert main(command[command.index("--reader") :]) == 1
    assert capsys.readouterr().out.startswith("silent: found 1 rows, the reference 2")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_no_input_breaks_a_reader(name):
    cases = [campaign.load(path) for path in KEPT if path.parent.name == name]
    outcomes = Counter[str]()
    with Worker(name) as worker:
        for found in [*cases, *islice(campaign.inputs(name, reader(name).slow_tier, 1), reader(name).slow_tier)]:
            outcome = worker.read(found)
            outcomes[outcome.kind.value if outcome.kind in GOOD else outcome.detail] += 1
    assert set(outcomes) <= {kind.value for kind in GOOD}, outcomes
