"""A run's name and its checkpoints."""

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from commands.run_folder import (
    config_stem,
    new_run_name,
    newest_run,
    refuse_occupied,
    resolve_checkpoint,
    write_config,
)


@pytest.fixture(autouse=True)
def _forget_the_name(monkeypatch):
    monkeypatch.setenv("LOCKSTEP_RUN_NAME", "")
    monkeypatch.delenv("LOCKSTEP_RUN_NAME")


def checkpoint(folder: Path, name: str, age: int = 0) -> Path:
    path = folder / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    return path


def test_config_stem(tmp_path, monkeypatch):
    assert config_stem(Path("configs/recommender/sasrec.yaml")) == "recommender-sasrec"
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    assert config_stem(Path("mine.yaml")) == "own-mine"


def test_the_name_of_a_run_alone():
    environ: dict[str, str] = {}
    assert re.fullmatch(r"recommender-sasrec-\d{8}-\d{6}", new_run_name("recommender-sasrec", environ))


def test_the_processes_that_a_run_starts_take_its_name():
    name = new_run_name("a", {})
    child = {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCKSTEP_RUN_NAME": os.environ["LOCKSTEP_RUN_NAME"]}
    assert new_run_name("a", child) == name


def test_slurm_jobs_keep_their_name_after_a_requeue():
    job = {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "3"}
    assert new_run_name("a", job) == "a-job77"
    assert "job77" not in new_run_name("a", {**job, "SLURM_JOB_NAME": "bash"}), "an interactive shell runs many"


def test_processes_started_apart_must_be_told():
    with pytest.raises(ValueError, match="--run_name NAME"):
        new_run_name("a", {"LOCAL_RANK": "0", "WORLD_SIZE": "2"})


def test_torchrun_workers_agree_through_their_store():
    """Whoever comes first decides, whatever the others' clocks say."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20), wait_for_workers=False)
    worker = {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    first = new_run_name("first", {**worker, "LOCAL_RANK": "1", "WORLD_SIZE": "2"})
    assert first.startswith("first-")
    assert new_run_name("second", {**worker, "LOCAL_RANK": "0", "WORLD_SIZE": "2"}) == first


def test_newest_run(tmp_path):
    checkpoint(tmp_path / "a-b-1", "best.ckpt", age=50)
    checkpoint(tmp_path / "a-b-2", "last.ckpt", age=20)
    checkpoint(tmp_path / "a-b-3", "best.ckpt", age=90)
    checkpoint(tmp_path / "a-b_deep-1", "best.ckpt", age=0)  # of another config
    (tmp_path / "a-b-4").mkdir()  # stopped before its first checkpoint
    assert newest_run("a-b", tmp_path) == "a-b-2"
    with pytest.raises(FileNotFoundError, match="no trained run"):
        newest_run("a-c", tmp_path)


def test_resolve_checkpoint(tmp_path):
    assert resolve_checkpoint(None, tmp_path) is None
    assert resolve_checkpoint("last", tmp_path) is None
    with pytest.raises(FileNotFoundError, match="best.ckpt does not exist, nor any other"):
        resolve_checkpoint("best", tmp_path)
    kept = checkpoint(tmp_path, "epoch-3.ckpt")
    with pytest.raises(FileNotFoundError, match="last.ckpt does not exist, but there are epoch-3.ckpt"):
        resolve_checkpoint("last", tmp_path)
    with pytest.raises(FileNotFoundError, match="best.ckpt does not exist, but in .* there is epoch-3.ckpt"):
        resolve_checkpoint("best", tmp_path)
    assert resolve_checkpoint(str(kept), tmp_path / "elsewhere") == kept
    last, best = checkpoint(tmp_path, "last.ckpt"), checkpoint(tmp_path, "best.ckpt")
    assert (resolve_checkpoint("last", tmp_path), resolve_checkpoint("best", tmp_path)) == (last, best)


def test_refuse_occupied(tmp_path):
    refuse_occupied(tmp_path / "absent")
    (tmp_path / "checkpoints").mkdir()
    refuse_occupied(tmp_path)
    checkpoint(tmp_path, "last.ckpt")
    with pytest.raises(FileExistsError, match="--ckpt_path last"):
        refuse_occupied(tmp_path)


def test_write_config(tmp_path):
    folder = tmp_path / "run"
    assert write_config("a: 1\n", folder).name == "config.yaml"
    assert write_config("a: 2\n", folder).name == "config-2.yaml"
    assert write_config("a: 1\n", folder).name == "config.yaml"
    assert write_config("a: 2\n", folder).name == "config-2.yaml"
    assert write_config("a: 3\n", folder).name == "config-3.yaml"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "config.yaml": "a: 1\n", "config-2.yaml": "a: 2\n", "config-3.yaml": "a: 3\n"
    }  # fmt: skip
