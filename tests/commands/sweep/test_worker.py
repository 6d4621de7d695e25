"""Tests the trials of a study, with a short program instead of the training."""

import json
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from commands.report.study_summary import read_study
from commands.runs.run_lock import BUSY
from commands.sweep.study import OtherStudyError, SweepStudy
from commands.sweep.summary import describe_trial, summarize, write_summary
from commands.sweep.sweep_settings import Parameter, Pruner, Sampler, SweepSettings
from commands.sweep.trial_process import training_lock
from commands.sweep.worker import MissingMetricError, RefusedSettingsError, SweepStopped, Worker

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
    threads = [threading.Thread(target=member.run, args=(done.append,)) for member in workers]
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
    process, study = worker(
        tmp_path / "a", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n" + bad, settings
    )
    process.run(lambda number: None)
    # Trial 4 had ended before its values were read: how fast a trial is does not decide what becomes of it.
    assert [state for _, _, state, _ in trials(study)] == ["COMPLETE"] * 3 + ["PRUNED"] * 2
    summary = summarize(study, settings, ["--config", "x.yaml"], tmp_path / "a")
    assert describe_trial(summary.trials[3]).startswith("trial 3: pruned, 3 at step 1 (x ")
    assert summary.best.number == 0
    assert summary.command.endswith(f" --runs {tmp_path} --run_name a-best")
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
    process, study = worker(tmp_path / "a", program, settings, lines)
    process.run(lambda number: None)
    found = summarize(study, settings, [], tmp_path / "a").trials
    assert [(trial.state, trial.message) for trial in found] == [
        ("failed", "no such thing"),
        ("failed", "no value of val/loss was logged; metrics of the validation: val/loss, val/other"),
        ("failed", "ended by SIGKILL"),
        ("complete", ""),
    ]
    killed = "ended by SIGKILL from outside; it continues from its last checkpoint"
    failure = "trial 2: ended by SIGKILL from outside; it fails after 3 kills without progress"
    assert lines == [f"trial 2: {killed}"] * 2 + [failure, f"trial 3: {killed}"]


def test_kills_of_a_trial_that_progresses_do_not_fail_it(tmp_path):
    """A training that is preempted once a day continues for as many days as it needs."""
    program = """
done = len(open(folder + "/metrics.jsonl").readlines()) if os.path.exists(folder + "/metrics.jsonl") else 0
write(done + 1, 1.0)
if done < 5: os.kill(os.getpid(), signal.SIGKILL)
"""
    worker_of_one, study = worker(tmp_path / "a", program, SETTINGS._replace(trials=1))
    worker_of_one.run(lambda number: None)
    assert trials(study)[0][2] == "COMPLETE"


def test_a_signal_leaves_the_trial_to_the_next_start(tmp_path):
    wait = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nwrite(1, 2.0)\nwhile True: time.sleep(0.01)"
    process, study = worker(tmp_path / "a", wait)
    begin = process._command

    def command(claim):
        process.received = signal.SIGTERM
        return begin(claim)

    process._command = command
    with pytest.raises(SweepStopped) as stopped:
        process.run(lambda number: None)
    assert stopped.value.number == signal.SIGTERM
    assert stopped.value.in_training
    assert trials(study)[0][2] == "RUNNING"
    assert study.claim().is_resumed


def test_a_training_whose_worker_was_killed_is_waited_for(tmp_path):
    process, study = worker(tmp_path / "a", settings=SETTINGS._replace(trials=1))
    claim = study.claim()
    with training_lock(tmp_path / "a" / f"{claim.name}.training.lock") as lock:
        # Its training has not locked its run yet, as `fit` during its imports.
        orphan = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    study.release(claim)
    lines: list[str] = []

    def report(line):
        lines.append(line)
        if "waiting" in line:
            assert not (tmp_path / "a" / claim.name).exists()
            orphan.communicate(b"end\n", timeout=60)

    process._report = report
    process.run(lambda number: None)
    waiting = "trial 0: waiting for the training that a killed start has left"
    assert lines == ["trial 0: continues", waiting]
    assert trials(study)[0][2] == "COMPLETE"


def test_a_run_that_another_training_writes_is_no_failure(tmp_path):
    busy = f"""
if not os.path.exists(folder + "/busy"):
    open(folder + "/busy", "w"); print("[run] error: {BUSY} x"); sys.exit(2)
"""
    process, study = worker(tmp_path / "a", busy + SQUARE, SETTINGS._replace(trials=1))
    process.run(lambda number: None)
    assert trials(study)[0][2] == "COMPLETE"


@pytest.mark.parametrize("last, state", [(100, "COMPLETE"), (200, "PRUNED")])
def test_a_resumed_trial_is_judged_after_its_last_stored_value(tmp_path, last, state):
    program = """
if number < 3: write(100, 2.0); write(200, number); write(300, number)
else: write(100, 3.0); write(200, 0.5 if sys.argv[4] == "100" else 3.0); write(300, 0.25)
"""
    settings = SETTINGS._replace(pruner=Pruner("median", 3, 150), trials=3)
    worker(tmp_path / "a", program, settings)[0].run(lambda number: None)
    process, study = worker(tmp_path / "a", program, settings._replace(trials=4))
    begin = process._command
    process._command = lambda claim: [*begin(claim), str(last)]
    claim = study.claim()
    for step in range(100, last + 1, 100):  # killed before the decision on the last of them
        study.store_value(claim.number, step, 3.0)
    study.release(claim)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Optuna warns of a step that is reported again
        process.run(lambda number: None)
    assert trials(study)[3][2:] == (state, [0.25 if last == 100 else 3.0])
    assert study.values(3)[:2] == [(100, 3.0), (200, 0.5 if last == 100 else 3.0)]
    assert len(study.values(3)) == (3 if last == 100 else 2)


def test_a_study_keeps_its_settings(tmp_path):
    worker(tmp_path / "a")
    with pytest.raises(OtherStudyError, match="a is a study with other settings: settings: found .*7.*expected .*5"):
        worker(tmp_path / "a", settings=SETTINGS._replace(seed=7))


@pytest.mark.parametrize(
    "program",
    [
        "for step in (1, 2): write(step, 1.0)\ntime.sleep(60)",  # a long training ends at its second validation
        "write(1, 1.0)",
    ],
)
def test_a_metric_that_no_validation_logs_ends_the_study(tmp_path, program):
    settings = SETTINGS._replace(metric="val/nope")
    process, study = worker(tmp_path / "a", program, settings)
    with pytest.raises(MissingMetricError, match="metric: no validation logs val/nope; it logs val/loss"):
        process.run(lambda number: None)
    assert len(study.trials()) == 1


@pytest.mark.parametrize(
    ("message", "accepted", "code", "trials"),
    [
        ("data.init_args.path: no such file", False, 2, 1),
        ("data.init_args.maximum: no such file", False, 2, 1),  # `x` is in it, and is no word of it
        ("model.init_args.x: 0.5 does not go with n", False, 2, 4),
        ("data.init_args.path: no such file", True, 2, 4),  # another trial has trained
        ("data.init_args.path: no such file", False, 1, 4),
    ],
)
def test_settings_that_every_training_refuses_end_the_study(tmp_path, message, accepted, code, trials):
    program = f"if {accepted} and number == 0: write(1, 0.5)\nelse: print('error: {message}'); sys.exit({code})"
    settings = SETTINGS._replace(trials=4)
    process, study = worker(tmp_path / "a", program, settings)
    if trials == 1:
        with pytest.raises(RefusedSettingsError, match=f"trial 0 is refused, .*: {message}\n.*trial-0000.log") as error:
            process.run(lambda number: None)
        assert str(error.value).count("\n") == 1
    else:
        process.run(lambda number: None)
    found = summarize(study, settings, [], tmp_path / "a").trials
    assert [trial.state for trial in found] == ["complete"] * accepted + ["failed"] * (trials - accepted)
    assert found[-1].message == message
