"""A kill while a checkpoint is written, a corrupt checkpoint, a full disk: no step is lost, no rank hangs.

Measured with plain Lightning 2.6.6: a kill or a full disk leaves a truncated file under its final name, also as
last.ckpt; its asynchronous plugin leaves the folder empty; the truncated file ends the next start with
`OSError: [Errno 22] Invalid argument`; flipped bits load without complaint; if one rank cannot write, only that rank
raises.
"""

import os
import re

import pytest
import torch

from engine.checkpointing.verification import verify
from tests.support.families.tiny_frozen import READER
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.faults.disk_faults import disk_fault
from tests.support.faults.step_faults import fault
from tests.tiers import slow

# 5 steps an epoch: saves at 3, 5 (end of an epoch), 6, 9, 10, 12, ...
RUN = ["fit", *READER, "--last_checkpoint.every_n_steps", "3", "--trainer.max_steps", "14"]
ASYNCHRONOUS = ["--checkpoints.asynchronous", "true"]
RESUME = ["--ckpt_path", "last"]


def whole(folder):
    """{name: step} of the checkpoints; all of them verify."""
    found = {}
    for path in sorted((folder / "checkpoints").glob("*.ckpt")):
        verify(path)
        found[path.name] = torch.load(path, weights_only=True)["global_step"]
    return found


def hidden(folder):
    return [path.name for path in (folder / "checkpoints").glob(".*")]


@pytest.fixture(scope="module")
def uninterrupted(forge, tmp_path_factory):
    """The losses of a run that nothing has disturbed."""
    from tests.support.ranks.team import Team

    run = Team(forge, RUN, tmp_path_factory.mktemp("through"), "through", processes=1)
    assert run.end() == [0], run.output
    assert set(whole(run.folder)) == {"best.ckpt", "last.ckpt", "last-1.ckpt"}
    assert not hidden(run.folder)
    return run.series("train/loss")


def assert_resumes(team, uninterrupted, step, processes=1, *options):
    """The next start: from the checkpoint of `step`, to the end of a run that nothing has disturbed."""
    again = team(*RUN, *RESUME, *options, name="a", processes=processes)
    assert again.end() == [0] * processes, again.output
    assert f"resuming after step {step} " in again.output
    losses = again.series("train/loss")
    assert losses.keys() == uninterrupted.keys()
    assert max(abs(losses[at] - uninterrupted[at]) for at in losses) <= (0 if processes == 1 else 1e-6)
    assert whole(again.folder)["last.ckpt"] == 14
    assert not hidden(again.folder)
    return again


@pytest.mark.parametrize("how", [[], slow(ASYNCHRONOUS)], ids=["sync", "async"])
@pytest.mark.parametrize("octets", [slow(0), 100_000])
def test_killed_while_it_writes(team, uninterrupted, how, octets):
    """Plain Lightning: 3 of 3 kills left a truncated .ckpt; asynchronously the folder was empty."""
    killed = team(*RUN, *how, *disk_fault("KillInWrite", octets=octets, step=7), name="a", processes=1)
    assert killed.end() == [-9], killed.output
    assert {"last.ckpt": 6, "last-1.ckpt": 5}.items() <= whole(killed.folder).items()
    assert len(hidden(killed.folder)) == 1
    again = assert_resumes(team, uninterrupted, 6, 1, *how)
    assert "a temporary file of a killed process" in again.output


@pytest.mark.parametrize("corruption", [slow("truncated"), "flipped"])
def test_a_corrupt_checkpoint_is_skipped(team, uninterrupted, corruption):
    """Plain Lightning: a truncated file ends the start without a word of use; flipped bits train on."""
    stopped = team(*RUN, "--trainer.max_steps", "9", "--trainer.limit_val_batches", "0", name="a", processes=2)
    assert stopped.end() == [0, 0], stopped.output
    path = stopped.folder / "checkpoints/last.ckpt"
    assert whole(stopped.folder)["last.ckpt"] == 9
    if corruption == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    else:
        octets = bytearray(path.read_bytes())
        weight = octets.find(torch.linspace(0, 1, 50_000)[-100:].numpy().tobytes())
        offset = weight if weight > 0 else len(octets) // 2
        octets[offset : offset + 40] = bytes(octet ^ 255 for octet in octets[offset : offset + 40])
        path.write_bytes(octets)
    again = assert_resumes(team, uninterrupted, 6, processes=2)
    reason = "truncated" if corruption == "truncated" else r"data/\d+ has changed since it was saved"
    assert re.search(rf"skipping last.ckpt: .* is corrupt: .*{reason}", again.logs[0]), again.output
    assert "using last-1.ckpt instead" in again.logs[0]
    assert "skipping" not in again.logs[1]
    assert set(whole(again.folder)) == {"best.ckpt", "last.ckpt", "last-1.ckpt"}, "corrupt ones are replaced"


def test_a_run_without_an_intact_checkpoint_is_refused(team):
    stopped = team(*RUN, "--trainer.max_steps", "6", name="a", processes=1)
    assert stopped.end() == [0], stopped.output
    for path in (stopped.folder / "checkpoints").glob("*.ckpt"):
        os.truncate(path, path.stat().st_size // 2)
    losses = stopped.series("train/loss")
    again = team(*RUN, *RESUME, name="a", processes=2)
    assert again.end_cleanly() == [2, 2], again.output
    assert again.seconds < 60
    assert "none of them is intact: " in again.logs[0]
    assert "start from scratch with another --run_name" in again.logs[0]
    assert again.series("train/loss") == losses, "not touched"


@pytest.mark.parametrize("how", [[], slow(ASYNCHRONOUS)], ids=["sync", "async"])
def test_a_full_disk_keeps_older_checkpoints_and_stops_after_two_failures(team, uninterrupted, how):
    """Plain Lightning: OSError 28 on one process, and a truncated last.ckpt."""
    full = team(*RUN, *how, *disk_fault("DiskFull", octets=100_000, step=7), name="a", processes=2)
    assert full.end_cleanly() == [1, 1], full.output
    assert "last.ckpt could not be saved: [Errno 27] File too large. Training continues with the older" in full.logs[0]
    assert re.search(r"error: .*last.ckpt could not be saved 2 times in a row: \[Errno 27\] File too", full.logs[0])
    assert full.output.count("2 times in a row") == 1, "logged once"
    found = whole(full.folder)
    assert found["last.ckpt"] == 6
    assert found["last-1.ckpt"] == 5
    assert not hidden(full.folder)
    assert max(full.series("train/loss")) >= 9, "it went on after the first failure"
    assert_resumes(team, uninterrupted, 6, 2, *how)


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_changes_no_training(team, uninterrupted):
    run = team(*RUN, *disk_fault("DiskFull", octets=100_000, step=7, until=9), name="a", processes=2)
    assert run.end() == [0, 0], run.output
    # Step 9's save fails if it comes before the limit is lifted, at the beginning of the tenth step.
    assert run.output.count("could not be saved") == 1
    assert whole(run.folder)["last.ckpt"] == 14
    losses = run.series("train/loss")
    assert max(abs(losses[step] - uninterrupted[step]) for step in uninterrupted) <= 1e-6


@pytest.mark.slow
def test_the_very_last_save_fails(team):
    run = team(*RUN, *disk_fault("DiskFull", octets=100_000, step=13), name="a", processes=2)
    assert run.end_cleanly() == [1, 1], run.output
    assert "error: " in run.logs[0]
    assert "could not be saved" in run.logs[0]
    assert whole(run.folder)["last.ckpt"] == 12


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="Windows")
def test_a_folder_that_may_not_be_written_ends_the_run_with_its_older_checkpoint(team, uninterrupted):
    run = team(*RUN, *disk_fault("ReadOnlyAt", step=7), name="a", processes=2)
    assert run.end_cleanly() == [1, 1], run.output
    assert re.search(r"last.ckpt could not be saved 2 times in a row: \[Errno 13\] Permission denied", run.logs[0])
    (run.folder / "checkpoints").chmod(0o755)
    assert whole(run.folder)["last.ckpt"] == 6
    assert not hidden(run.folder)
    assert_resumes(team, uninterrupted, 6, 2)


@pytest.mark.slow
def test_frozen_weights_stay_out_and_must_be_the_same(team, uninterrupted):
    """Plain Lightning stores the frozen model with every checkpoint; leaving it out would load any other in silence."""
    stopped = team(*RUN, "--trainer.max_steps", "9", name="a", processes=2)
    assert stopped.end() == [0, 0], stopped.output
    checkpoint = torch.load(stopped.folder / "checkpoints/last.ckpt", weights_only=True)
    assert set(checkpoint["frozen"]) == {"language.weight", "language.bias"}
    assert not set(checkpoint["frozen"]) & set(checkpoint["state_dict"])
    assert "ballast" in checkpoint["state_dict"]
    other = team(*RUN, *RESUME, "--model.init_args.pretraining", "1", name="a", processes=2)
    assert other.end_cleanly() == [2, 2], other.output
    assert "They differ here: language.weight, language.bias" in other.output
    assert_resumes(team, uninterrupted, 9, processes=2)
    tested = team("test", *READER, name="a", processes=1)
    assert tested.end() == [0], tested.output
    everything = team(*RUN, "--checkpoints.trainable_only", "false", name="all", processes=1)
    assert everything.end() == [0], everything.output
    checkpoint = torch.load(everything.folder / "checkpoints/last.ckpt", weights_only=True)
    assert "language.weight" in checkpoint["state_dict"]
    assert "frozen" not in checkpoint


@pytest.mark.slow
def test_a_validation_that_is_due_at_a_save_is_not_lost(team):
    """Plain Lightning skips the validation that comes after a save inside an epoch when it resumes from there."""
    often = ["--trainer.val_check_interval", "3"]
    reference = team(*RUN, *often, name="b", processes=1)
    assert reference.end() == [0], reference.output
    # Killed in the write of step 6: goes on from 5 (end of an epoch). Of step 8 (validation and save): from 8.
    every = ["--last_checkpoint.every_n_steps", "4"]
    killed = team(*RUN, *often, *every, *fault("SignalAt", name="SIGKILL", step=9), name="a", processes=1)
    assert killed.end() == [-9], killed.output
    assert whole(killed.folder)["last.ckpt"] == 8
    again = team(*RUN, *often, *every, *RESUME, name="a", processes=1)
    assert again.end() == [0], again.output
    assert "resuming after step 8 " in again.output
    for metric in ("train/loss", "val/loss"):
        assert again.series(metric) == reference.series(metric), metric


@pytest.mark.slow
@pytest.mark.parametrize("how", [slow([]), ASYNCHRONOUS], ids=["sync", "async"])
def test_a_checkpoint_saved_on_a_signal_is_complete(team, uninterrupted, how):
    """A signal between two saves, to one process: last.ckpt is of that very step, and whole, when the processes end."""
    stopped = team(*RUN, *how, *fault("SignalAt", name="SIGTERM", step=7, process=1), name="a", processes=2)
    assert stopped.end_cleanly() == [143, 143], stopped.output
    found = whole(stopped.folder)
    assert found["last.ckpt"] >= 7
    assert not hidden(stopped.folder)
    assert_resumes(team, uninterrupted, found["last.ckpt"], 2, *how)


@pytest.mark.slow
def test_a_run_that_is_stopped_inside_an_epoch(team, uninterrupted):
    """A stop as by `trainer.max_time`, at which plain Lightning saves no checkpoint."""
    reported = team(*RUN, *disk_fault("StopAt", step=7, process=-1), name="a", processes=2)
    assert reported.end() == [0, 0], reported.output
    assert whole(reported.folder)["last.ckpt"] == 8
    assert_resumes(team, uninterrupted, 8, 2)


@pytest.mark.slow
def test_a_run_that_early_stopping_ends_inside_an_epoch_stays_ended(team, uninterrupted):
    """Plain Lightning does not save at such a stop, and the next start repeats the steps since the last save."""
    early = [
        "--trainer.val_check_interval",
        "2",
        "--trainer.callbacks+=EarlyStopping",
        "--trainer.callbacks.monitor",
        "val/loss",
        "--trainer.callbacks.patience",
        "1",
        "--trainer.callbacks.min_delta",
        "10",
    ]
    ended = team(*RUN, *early, "--last_checkpoint.every_n_steps", "100", name="a", processes=2)
    assert ended.end() == [0, 0], ended.output
    assert whole(ended.folder)["last.ckpt"] == 4 == max(ended.series("train/loss"))
    again = team(*RUN, *early, *RESUME, name="a", processes=2)
    assert again.end() == [0, 0], again.output
    assert "resuming after step 4 " in again.output, "it stays ended"
    assert max(again.series("train/loss")) == 4, "it stays ended"


def test_a_checkpoint_of_another_model_is_refused(team):
    """Plain Lightning: a traceback on every process, of which the first line names nothing."""
    other = team("fit", *TINY_FAMILY, "--data.init_args.batch_size", "10", "--trainer.max_steps", "3", name="b")
    assert other.end() == [0, 0], other.output
    run = team(*RUN, "--ckpt_path", "runs/b/checkpoints/last.ckpt", name="a", processes=2)
    assert run.end_cleanly() == [2, 2], run.output
    printed = "another model or config: missing in the checkpoint: ballast, language.weight, language.bias. Use the"
    assert printed in run.output
    assert "Traceback" not in run.output


def test_a_monitor_that_is_not_there_is_noticed_before_training(team):
    """Plain Lightning: after the first epoch, with a traceback on every process."""
    run = team(*RUN, "--best_checkpoint.monitor", "val/foo", name="a", processes=2)
    assert run.end_cleanly() == [2, 2], run.output
    assert "'val/foo', which is not logged. Use one of the validation metrics: ['val/loss']" in run.output
    assert "Traceback" not in run.output
    assert not (run.folder / "seen").exists()
    late = team(*RUN, "--best_checkpoint.monitor", "val/foo", "--trainer.num_sanity_val_steps", "0", name="b")
    assert late.end_cleanly() == [2, 2], late.output
    assert late.output.count("best_checkpoint.monitor is 'val/foo'") == 1
    assert "Traceback" not in late.output
