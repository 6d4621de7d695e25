"""The trials of a study, with a short program in place of the training."""

import json
import signal
import sys
import threading

import pytest

from commands.report.study import read_study
from commands.sweep.settings import Parameter, Pruner, Sampler, SweepSettings
from commands.sweep.study import OtherSettingsError, SweepStudy
from commands.sweep.summary import described, summarize, write_summary
from commands.sweep.worker import SweepStopped, Worker

PARAMETERS = (
    Parameter("x", "float", -1.0, 1.0),
    Parameter("n", "int", 1, 9),
    Parameter("kind", "categorical", values=("a", "b")),
)
SETTINGS = SweepSettings("val/loss", "minimize", 8, 5, Sampler("tpe", 3), Pruner(), PARAMETERS)

WRITE = """
import json, os, signal, sys, time
folder, number, x = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
os.makedirs(folder, exist_ok=True)
def write(step, value, **more):
    with open(folder + "/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "altered": "", "val/loss": value, **more}) + chr(10))
"""
SQUARE = "for step in (1, 2, 3): write(step, x * x + 1 / step)"


def worker(folder, program=SQUARE, settings=SETTINGS, lines=None):
    folder.mkdir(exist_ok=True)
    study = SweepStudy(folder, settings, {"settings": str(settings._replace(trials=0))})

    def command(claim):
        words = [str(folder / claim.name), str(claim.number), str(claim.params["x"])]
        return [sys.executable, "-S", "-c", WRITE + program, *words]

    return Worker(study, settings, [], folder, [].append if lines is None else lines.append, command), study


def trials(study):
    return [(trial.number, dict(trial.params), trial.state.name, trial.values) for trial in study.trials()]


def test_a_killed_study_ends_as_an_undisturbed_one(tmp_path):
    plain, study = worker(tmp_path / "plain")
    plain.run(lambda number: None)
    expected = trials(study)
    assert [number for number, *_ in expected] == list(range(8))
    assert all(values == [x["x"] ** 2 + 1 / 3] for _, x, _, values in expected)

    lines: list[str] = []
    for _ in range(2):  # a kill releases the lock of the trial, and nothing else
        _, study = worker(tmp_path / "killed")
        claim = study.claim()
        (tmp_path / "killed" / claim.name).mkdir()
        study.release(claim)
        assert study.claim()[:3] == (claim.number, claim.params, True)
        _, study = worker(tmp_path / "killed", settings=SETTINGS._replace(trials=claim.number + 2), lines=lines)
        worker(tmp_path / "killed", settings=SETTINGS._replace(trials=claim.number + 2), lines=lines)[0].run(
            lambda n: None
        )
    worker(tmp_path / "killed")[0].run(lambda number: None)
    assert trials(study) == expected
    assert [line for line in lines if "continues" in line] == ["trial 0: continues", "trial 2: continues"]


def test_workers_share_the_trials(tmp_path):
    done: list[int] = []
    workers = [worker(tmp_path / "a")[0] for _ in range(3)]
    threads = [threading.Thread(target=one.run, args=(done.append,)) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == list(range(8))
    started = [path.read_text().count("val/loss") for path in sorted((tmp_path / "a").glob("*/metrics.jsonl"))]
    assert started == [3] * 8, "each trial was run once"


def test_a_bad_trial_is_pruned_between_its_validations(tmp_path):
    bad = "write(1, number); write(2, number)\nif number == 3:\n    signal.sigwait([signal.SIGINT])\n    sys.exit(130)"
    settings = SETTINGS._replace(pruner=Pruner("median", 3), trials=5)
    one, study = worker(tmp_path / "a", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n" + bad, settings)
    one.run(lambda number: None)
    # Trial 4 had ended before its values were read: how fast a trial is does not decide what becomes of it.
    assert [state for _, _, state, _ in trials(study)] == ["COMPLETE"] * 3 + ["PRUNED"] * 2
    summary = summarize(study, settings, ["--config", "x.yaml"], "a")
    assert described(summary.trials[3]).startswith("trial 3: pruned, 3 at step 1 (x ")
    assert summary.best.number == 0 and summary.command.endswith("--run_name a-best")
    write_summary(summary, tmp_path / "a")
    assert read_study(tmp_path / "a").fields() == json.loads((tmp_path / "a" / "study.json").read_text())


def test_a_failed_trial_is_reported_and_the_others_run(tmp_path):
    program = """
if number == 0: print("[run] error: no such thing"); sys.exit(1)
if number == 1: write(1, 1.0, **{"val/loss": None, "val/other": 1})
if number == 2: os.kill(os.getpid(), signal.SIGKILL)
if number == 3 and not os.path.exists(folder + "/again"): open(folder + "/again", "w"); os.kill(os.getpid(), 9)
if number == 3: write(1, 0.5)
"""
    lines: list[str] = []
    settings = SETTINGS._replace(trials=4)
    one, study = worker(tmp_path / "a", program, settings, lines)
    one.run(lambda number: None)
    found = summarize(study, settings, [], "a").trials
    assert [(trial.state, trial.message) for trial in found] == [
        ("failed", "no such thing"),
        ("failed", "no value of val/loss was logged; metrics of the validation: val/loss, val/other"),
        ("failed", "ended by SIGKILL"),
        ("complete", ""),
    ]
    killed = "ended by SIGKILL from outside; it continues from its last checkpoint"
    assert lines == [f"trial 2: {killed}"] * 3 + [f"trial 3: {killed}"]


def test_a_signal_leaves_the_trial_to_the_next_start(tmp_path):
    wait = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nwrite(1, 2.0)\nwhile True: time.sleep(0.01)"
    one, study = worker(tmp_path / "a", wait)
    begin = one._command

    def command(claim):
        one.received = signal.SIGTERM
        return begin(claim)

    one._command = command
    with pytest.raises(SweepStopped) as stopped:
        one.run(lambda number: None)
    assert stopped.value.number == signal.SIGTERM
    assert trials(study)[0][2] == "RUNNING" and study.claim().is_resumed


def test_a_study_keeps_its_settings(tmp_path):
    worker(tmp_path / "a")
    with pytest.raises(OtherSettingsError, match="a is a study with other settings: settings: found .*7.*expected .*5"):
        worker(tmp_path / "a", settings=SETTINGS._replace(seed=7))
