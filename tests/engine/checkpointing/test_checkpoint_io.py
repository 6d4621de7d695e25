"""Tests the checkpoint plugin: round trips, failures known to all ranks, and asynchronous writes."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine.checkpointing import checkpoint_io
from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.discovery import newest_verified
from engine.checkpointing.verification import CorruptCheckpointError
from engine.distributed.errors import CollectiveError

ALONE = SimpleNamespace(broadcast=lambda content: content)


def content(step):
    weights = {"weight": torch.full((50_000,), float(step))}
    return {"state_dict": weights, "global_step": step, "pytorch-lightning_version": "2.6.6"}


def step_of(path):
    checkpoint = torch.load(path, weights_only=True)
    assert torch.equal(checkpoint["state_dict"]["weight"], content(checkpoint["global_step"])["state_dict"]["weight"])
    return checkpoint["global_step"]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def plugin(request):
    one = VerifiedCheckpointIO(asynchronous=request.param)
    yield one
    one.teardown()


@pytest.fixture
def full(monkeypatch):
    """Simulate a full disk while `full.on`."""
    state = SimpleNamespace(on=True)
    write = checkpoint_io.write_temp

    def writes(path, work, check):
        if state.on:
            raise OSError(28, "No space left on device")
        return write(path, work, check)

    monkeypatch.setattr(checkpoint_io, "write_temp", writes)
    return state


def test_checkpoints_of_a_rotation_move_on_with_each_save(plugin, tmp_path):
    row = [tmp_path / name for name in ("last.ckpt", "last-1.ckpt")]
    plugin.set_rotation(row)
    for step in (1, 2, 3):
        plugin.save_checkpoint(content(step), row[0])
        plugin.sync_outcomes(ALONE)
    plugin.sync_outcomes(ALONE, last=True)
    assert [step_of(path) for path in row] == [3, 2]
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt", "last-1.ckpt"}
    assert plugin.load_checkpoint(row[1])["global_step"] == 2
    plugin.replace_next(row[0])
    for step in (4, 5):
        plugin.save_checkpoint(content(step), str(row[0]))
    plugin.sync_outcomes(ALONE, last=True)
    assert [step_of(path) for path in row] == [5, 4], "4 has replaced 3, 2 stayed; then all moved on"
    plugin.remove_checkpoint(row[1])
    assert not row[1].exists()


def test_a_running_save_does_not_take_the_mark_of_the_next(tmp_path, monkeypatch):
    plugin, write, may_end = VerifiedCheckpointIO(asynchronous=True), checkpoint_io.write_temp, threading.Event()
    files = [tmp_path / name for name in ("last.ckpt", "last-1.ckpt")]
    plugin.set_rotation(files)

    def slow_write(path, work, check):
        assert may_end.wait(60)
        return write(path, work, check)

    monkeypatch.setattr(checkpoint_io, "write_temp", slow_write)
    plugin.save_checkpoint(content(1), files[0])
    threading.Timer(0.1, may_end.set).start()
    plugin.replace_next(files[0])
    plugin.save_checkpoint(content(2), files[0])
    plugin.sync_outcomes(ALONE, last=True)
    assert step_of(files[0]) == 2
    assert not files[1].exists(), "the first save would be here, if the second had moved it"


def test_a_checkpoint_without_rotation_is_overwritten(plugin, tmp_path):
    for step in (1, 2):
        plugin.save_checkpoint(content(step), tmp_path / "new" / "epoch.ckpt")
    plugin.sync_outcomes(ALONE, last=True)
    assert step_of(tmp_path / "new" / "epoch.ckpt") == 2
    with pytest.raises(TypeError, match="storage_options"):
        plugin.save_checkpoint(content(1), tmp_path / "a.ckpt", storage_options={"a": 1})


def test_a_corrupt_checkpoint_is_not_loaded(plugin, tmp_path):
    """Plain Lightning loads flipped bits without complaint."""
    path = tmp_path / "last.ckpt"
    plugin.save_checkpoint(content(1), path)
    plugin.sync_outcomes(ALONE, last=True)
    octets = bytearray(path.read_bytes())
    for offset in range(50_000, 50_040):
        octets[offset] ^= 255
    path.write_bytes(octets)
    with pytest.raises(
        CorruptCheckpointError, match=r"last.ckpt is corrupt: data/0 .*--ckpt_path last uses the newest"
    ):
        plugin.load_checkpoint(path)


def test_an_untrusted_checkpoint_executes_no_code(plugin, tmp_path):
    class Malicious:
        def __reduce__(self):
            return os.system, ("exit 3",)

    torch.save({"state_dict": Malicious()}, tmp_path / "a.ckpt")
    with pytest.raises(CorruptCheckpointError, match="a.ckpt holds (posix|nt).system, which could run code"):
        plugin.load_checkpoint(tmp_path / "a.ckpt", weights_only=False)


NO_VERSION = "a.ckpt is not a Lightning checkpoint: it has no .*pytorch-lightning_version"


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        ({"state_dict": {}}, NO_VERSION),
        ({"weight": torch.ones(3)}, NO_VERSION),
        ([1, 2], "a.ckpt is not a checkpoint: it holds a list, expected a dict"),
    ],
)
def test_a_file_that_is_no_lightning_checkpoint_is_refused(plugin, tmp_path, foreign, message):
    """Lightning raises KeyError: 'pytorch-lightning_version'."""
    torch.save(foreign, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match=message):
        plugin.load_checkpoint(tmp_path / "a.ckpt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="folder is a folder, not a checkpoint"):
        plugin.load_checkpoint(tmp_path / "folder")


def save(plugin, path, step, **options):
    plugin.save_checkpoint(content(step), path)
    plugin.finish_writing()
    plugin.sync_outcomes(ALONE, **options)


def test_one_failure_is_a_warning_two_are_the_end(plugin, tmp_path, full, messages):
    path = tmp_path / "last.ckpt"
    save(plugin, path, 1)
    assert messages[-1].startswith(f"{path} could not be saved: [Errno 28] No space left on device. Training")
    assert plugin.has_failed(path)
    assert not plugin.has_failed(tmp_path / "best.ckpt")
    full.on = False
    save(plugin, path, 2)
    assert step_of(path) == 2
    assert not plugin.has_failed(path)
    full.on = True
    save(plugin, path, 3)
    save(plugin, tmp_path / "best.ckpt", 3)  # failures are counted per file
    with pytest.raises(CollectiveError, match=r"last.ckpt could not be saved 2 times in a row: \[Errno 28\] .*intact"):
        save(plugin, path, 4)
    assert step_of(path) == 2


def test_the_last_save_must_succeed(plugin, tmp_path, full):
    with pytest.raises(CollectiveError, match="could not be saved: "):
        save(plugin, tmp_path / "last.ckpt", 1, last=True)
    plugin.sync_outcomes(ALONE)
    with pytest.raises(CollectiveError, match="could not be saved: "):
        plugin.sync_outcomes(ALONE, last=True)


def test_all_processes_end_after_failed_saves_of_rank_0(tmp_path, full):
    """Rank 0 writes, and all ranks decide by what it broadcasts."""
    writes, listens = VerifiedCheckpointIO(), VerifiedCheckpointIO()
    reported = []
    for step in (1, 2):
        writes.save_checkpoint(content(step), tmp_path / "last.ckpt")
        ended = []
        for plugin, strategy in (
            (writes, SimpleNamespace(broadcast=lambda content: reported.append(content) or content)),
            (listens, SimpleNamespace(broadcast=lambda content: reported[-1])),
        ):
            try:
                plugin.sync_outcomes(strategy)
            except CollectiveError as failure:
                ended.append(str(failure))
        assert len(ended) == (0 if step == 1 else 2)
        assert len(set(ended)) <= 1


def test_content_that_cannot_be_loaded_is_not_saved(plugin, tmp_path):
    """Plain Lightning saves a pathlib.Path and cannot resume: UnpicklingError."""
    checkpoint = {**content(1), "hyper_parameters": {"root": {"folders": [Path("data")]}}}
    plugin.save_checkpoint(checkpoint, tmp_path / "last.ckpt")
    expected = r"checkpoint\['hyper_parameters'\]\['root'\]\['folders'\]\[0\] is a pathlib\.\w+ \('data'\).*str\(...\)"
    with pytest.raises(CollectiveError, match=expected):
        plugin.sync_outcomes(ALONE)
    assert list(tmp_path.iterdir()) == []


class Gate:
    """Blocks the writer until it is opened."""

    def __init__(self, monkeypatch):
        self.open, self.writing = threading.Event(), threading.Event()
        write = checkpoint_io.write_temp

        def writes(path, work, check):
            self.writing.set()
            assert self.open.wait(30)
            return write(path, work, check)

        monkeypatch.setattr(checkpoint_io, "write_temp", writes)


def test_training_continues_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    plugin = VerifiedCheckpointIO(asynchronous=True)
    checkpoint = content(1)
    checkpoint["callbacks"] = {"a": {"seen": [1]}}
    plugin.save_checkpoint(checkpoint, tmp_path / "last.ckpt")
    assert gate.writing.wait(30)
    assert not (tmp_path / "last.ckpt").exists()
    checkpoint["state_dict"]["weight"].fill_(-1)
    checkpoint["callbacks"]["a"]["seen"].append(2)
    plugin.sync_outcomes(ALONE)  # the write is still pending
    gate.open.set()
    plugin.sync_outcomes(ALONE, last=True)
    assert step_of(tmp_path / "last.ckpt") == 1
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"] == {"a": {"seen": [1]}}


def test_a_removal_waits_for_the_save(tmp_path, monkeypatch):
    """Lightning's AsyncCheckpointIO removes at once: after a kill during the write the folder is empty."""
    plugin = VerifiedCheckpointIO()
    plugin.save_checkpoint(content(1), tmp_path / "old.ckpt")
    gate = Gate(monkeypatch)
    plugin.asynchronous = True
    plugin.save_checkpoint(content(2), tmp_path / "new.ckpt")
    remover = threading.Thread(target=plugin.remove_checkpoint, args=[tmp_path / "old.ckpt"])
    remover.start()
    assert gate.writing.wait(30)
    assert (tmp_path / "old.ckpt").exists()
    assert remover.is_alive()
    gate.open.set()
    remover.join(30)
    assert {path.name for path in tmp_path.iterdir()} == {"new.ckpt"}


def test_the_newest_intact_checkpoint_is_found(plugin, tmp_path):
    folder = tmp_path / "run"
    assert newest_verified(folder) is None
    row = [folder / "checkpoints" / name for name in ("last.ckpt", "last-1.ckpt")]
    plugin.set_rotation(row)
    for step in (1, 2):
        plugin.save_checkpoint(content(step), row[0])
    plugin.sync_outcomes(ALONE, last=True)
    assert newest_verified(folder) == row[0]
    os.truncate(row[0], 1000)
    assert newest_verified(folder) == row[1]
