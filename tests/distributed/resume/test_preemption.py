"""A stop signal, to one rank or to all, at any moment: all ranks save at the same step, end, and resume exactly.

Lightning 2.6.6 alone: a signal to one rank hangs until the process group times out; a signal to all ends with exit
code 0 and saves nothing; under SLURM the signal handler saves, which deadlocked in 3 of 9 trials; a signal during
validation loses the validation.
"""

import signal
import time

import pytest

from engine.checkpointing.verification import load_lazily
from tests.conftest import TINY
from tests.support.faults.signals import signal_in
from tests.support.faults.step_faults import fault
from tests.support.outputs.metric_series import assert_same_series
from tests.support.waiting import wait_until
from tests.tiers import slow

# 200 sequences in batches of 16: 13 steps an epoch; 4 validation batches on each of two processes.
OPTIONS = [
    *TINY,
    "--model.init_args.dropout",
    "0.2",
    "--trainer.max_epochs",
    "-1",
    "--trainer.max_steps",
    "30",
    "--data.init_args.evaluation_batch_size",
    "25",
]
EVERY_STEP = ["--preemption.check_every_n_steps", "1"]
EVERY_TENTH = ["--preemption.check_every_n_steps", "10"]


@pytest.fixture
def stopped(team):
    """Run until the stop, and check the messages and exit codes of a stop."""

    def run(*options, after, code=143, name="SIGTERM", processes=2, saved="saved", **settings):
        one = team("fit", *OPTIONS, *options, name="a", processes=processes, **settings)
        assert one.end_cleanly() == [code] * processes, one.output
        assert f"stopped by {name} after step {after}, {saved}; resume with the same command" in one.logs[0], one.output
        assert all("stopped by" not in text for text in one.logs[1:]), "logged once"
        assert "Traceback" not in one.output
        return one

    return run


def assert_resumes(team, uninterrupted, step, *options, processes=2, tolerance=0.0):
    again = team("fit", *OPTIONS, *options, "--ckpt_path", "last", name="a", processes=processes)
    assert again.end() == [0] * processes, again.output
    assert f"resuming after step {step}" in again.output
    assert_same_series(again, uninterrupted, ("train/loss", "val/ndcg@10"), tolerance)


@pytest.mark.parametrize(
    ("name", "process", "code"),
    [("SIGTERM", 1, 143), slow("SIGINT", -1, 130), slow("SIGUSR1", 0, 143)],
)
def test_stopped_in_the_middle_of_an_epoch(team, stopped, uninterrupted, name, process, code):
    """Lightning: SIGTERM to rank 1 hangs, to all exit code 0; SIGUSR1 without SLURM kills."""
    reported = fault("SignalAt", name=name, step=17, process=process)
    run = stopped(*EVERY_TENTH, *reported, after=20, code=code, name=name)
    assert sorted(run.series("train/loss")) == list(range(1, 21)), "the last step's metrics are written"
    assert_resumes(team, uninterrupted, 20)


@pytest.mark.slow
def test_a_run_stopped_in_the_last_step_of_an_epoch_validates_at_the_next_start(team, stopped, uninterrupted):
    """The validation is still to come: the checkpoint has it begun, and the next start runs it first.

    On a CPU every step is looked at by default.
    """
    run = stopped(*fault("SignalAt", name="SIGTERM", step=12), after=13)
    assert run.series("val/ndcg@10") == {}
    assert_resumes(team, uninterrupted, 13)


@pytest.mark.slow
def test_a_run_stopped_with_accumulation_resumes_exactly(team, stopped):
    parts = ["--data.init_args.micro_batch_size", "4"]
    uninterrupted = team("fit", *OPTIONS, *parts, name="whole")
    assert uninterrupted.end() == [0, 0], uninterrupted.output
    stopped(*EVERY_STEP, *parts, *fault("SignalAt", name="SIGTERM", step=16), after=17)
    assert_resumes(team, uninterrupted, 17, *parts)


@pytest.mark.slow
def test_stopped_in_a_validation(team, stopped, uninterrupted):
    """Lightning: the validation is cut short, or lost; here the next start runs it from its beginning."""
    run = stopped(*EVERY_STEP, *signal_in("on_validation_batch_end", "SIGTERM", number=6, process=1), after=26)
    assert list(run.series("val/ndcg@10")) == [13]
    assert_resumes(team, uninterrupted, 26)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "interval", "where"),
    [
        (26, "1.0", {"hook": "on_validation_batch_end", "number": 6, "process": 1}),
        (10, "5", {"hook": "on_validation_batch_end", "number": 6, "process": 1}),
    ],
)
def test_a_run_stopped_in_the_last_validation_repeats_it(team, stopped, steps, interval, where):
    """Lightning: max_steps is reached, so the validation is never done, and best.ckpt is not of the last step."""
    short = ["--trainer.max_steps", str(steps), "--trainer.val_check_interval", interval]
    uninterrupted = team("fit", *OPTIONS, *short, name="whole")
    assert uninterrupted.end() == [0, 0], uninterrupted.output
    one = stopped(*EVERY_STEP, *short, *signal_in(name="SIGTERM", **where), after=steps)
    assert list(one.series("val/ndcg@10")) == [steps // 2]
    assert_resumes(team, uninterrupted, steps, *short)
    for name in ("best.ckpt", "last.ckpt"):
        ours, theirs = (load_lazily(run.folder / "checkpoints" / name) for run in (one, uninterrupted))
        assert ours["global_step"] == theirs["global_step"], name
        assert ours["loops"] == theirs["loops"], name


@pytest.mark.slow
def test_a_run_stopped_in_a_final_validation_outside_the_interval_repeats_it(team, stopped):
    """The last step lies inside an epoch; see callbacks/checkpointing/final_validation.py."""
    short = ["--trainer.max_steps", "10"]
    uninterrupted = team("fit", *OPTIONS, *short, name="whole")
    assert uninterrupted.end() == [0, 0], uninterrupted.output
    assert list(uninterrupted.series("val/ndcg@10")) == [10]
    one = stopped(*EVERY_STEP, *short, *signal_in("on_validation_batch_end", "SIGTERM", number=2, process=1), after=10)
    assert not one.series("val/ndcg@10")
    assert_resumes(team, uninterrupted, 10, *short)
    for name in ("best.ckpt", "last.ckpt"):
        ours, theirs = (load_lazily(run.folder / "checkpoints" / name) for run in (one, uninterrupted))
        assert ours["global_step"] == theirs["global_step"] == 10, name


@pytest.mark.slow
def test_a_run_stopped_in_a_validation_within_an_epoch_repeats_it(team, stopped):
    often = ["--trainer.val_check_interval", "5"]
    uninterrupted = team("fit", *OPTIONS, *often, name="whole")
    assert uninterrupted.end() == [0, 0], uninterrupted.output
    run = stopped(*EVERY_STEP, *often, *signal_in("on_validation_batch_end", "SIGTERM", number=5), after=10)
    assert list(run.series("val/ndcg@10")) == [5], "the second validation was cut short"
    assert_resumes(team, uninterrupted, 10, *often)


def test_stopped_while_a_checkpoint_is_written(team, stopped, uninterrupted):
    often = ["--last_checkpoint.every_n_steps", "5"]
    stopped(*EVERY_STEP, *often, *signal_in("on_save_checkpoint", "SIGTERM", number=2), after=11)
    assert_resumes(team, uninterrupted, 11)


@pytest.mark.slow
def test_a_run_stopped_before_the_first_step_starts_again(team, stopped, uninterrupted):
    """Lightning has no handlers yet: the signal kills one process, and the others wait for it."""
    first = stopped(*signal_in("setup", "SIGUSR1", process=1), after=0, name="SIGUSR1", saved="nothing new to save")
    assert not list(first.folder.glob("checkpoints/*"))
    second = team("fit", *OPTIONS, "--ckpt_path", "last", name="a")
    assert second.end() == [0, 0], second.output
    assert second.series("train/loss") == uninterrupted.series("train/loss")


@pytest.mark.slow
def test_a_stopped_run_resumes_on_fewer_ranks(team, stopped):
    exact = ["--model.init_args.dropout", "0"]
    alone = team("fit", *OPTIONS, *exact, name="alone", processes=1)
    stopped(*EVERY_STEP, *exact, *fault("SignalAt", name="SIGTERM", step=17, process=1), after=18)
    assert alone.end() == [0], alone.output
    assert_resumes(team, alone, 18, *exact, processes=1, tolerance=1e-5)


@pytest.mark.slow
def test_a_signal_that_also_reaches_loader_workers_stops_the_run_in_order(team, stopped, uninterrupted):
    """A scheduler's SIGTERM and a terminal's Ctrl-C reach the workers as well: torch's die of it, and the run fails."""
    workers = ["--data.init_args.num_workers", "1"]
    stopped(*EVERY_TENTH, *workers, *signal_in("on_train_batch_start", "SIGTERM", number=18, group=True), after=20)
    assert_resumes(team, uninterrupted, 20, *workers)


def test_a_second_ctrl_c_ends_at_once(team):
    """Also when the main thread waits for a process that does not answer, which keeps Python's handlers waiting."""
    run = team("fit", *OPTIONS, *fault("SignalAt", name="SIGSTOP", step=15, process=1), name="a")
    deadline = time.monotonic() + 60
    run.wait_for("metrics.jsonl")
    wait_until(lambda: 15 in run.series("train/loss"), found=lambda: run.output)
    while run.end(timeout=0.2)[0] is None and time.monotonic() < deadline:
        run.signal(0, signal.SIGINT)  # within two seconds it is the same Ctrl-C, which torchrun passes on
    assert run.end(timeout=0.2)[0] == 130, run.output
    assert "Press Ctrl-C again, after 2 s or later, to end at once" in run.logs[0]


@pytest.mark.parametrize("command", ["test", slow("validate")])
def test_an_evaluation_that_is_stopped_ends_on_all_ranks(team, done, command):
    """Lightning: one process hangs in its next collective; both end with 0."""
    name, reported = (
        done.folder.name,
        signal_in(f"on_{command}_batch_end".replace("validate", "validation"), "SIGTERM", process=1),
    )
    small = ["--data.init_args.evaluation_batch_size", "25"]
    run = team(command, *TINY, *small, *EVERY_STEP, *reported, name=name)
    assert run.end() == [143, 143], run.output
    assert "stopped by SIGTERM before the end" in run.logs[0]


# -- SLURM -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "process"), [("SIGTERM", 1), ("SIGUSR1", -1)])
def test_a_slurm_job_requeues_itself(team, stopped, scontrol, uninterrupted, name, process):
    """Lightning: with the signal to one task it hangs; torchrun inside SLURM is never requeued."""
    read_calls = scontrol()
    job = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    reported = fault("SignalAt", name=name, step=17, process=process)
    run = stopped(*EVERY_TENTH, *reported, after=20, name=name, environment=job)
    assert read_calls() == ["show job 7_2", "requeue 7_2"]
    assert "SLURM job 7_2 is requeued and resumes from here" in run.logs[0]
    again = team("fit", *OPTIONS, name="a", environment={**job, "SLURM_RESTART_COUNT": "1"})
    assert again.end() == [0, 0], again.output
    assert again.series("train/loss") == uninterrupted.series("train/loss")


@pytest.mark.slow
def test_a_slurm_job_stopped_before_its_first_step_requeues_once(stopped, scontrol):
    """With less --time than a start takes, it would be requeued forever."""
    read_calls = scontrol()
    for restarts, requeued in (("0", 1), ("1", 1)):
        job = {"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": restarts}
        run = stopped(
            *signal_in("setup", "SIGUSR1", process=0),
            "--ckpt_path",
            "last",
            after=0,
            name="SIGUSR1",
            saved="nothing new to save",
            environment=job,
        )
        assert read_calls().count("requeue 9") == requeued
    assert "SLURM job 9 is not requeued: restart 1 was stopped" in run.logs[0]
