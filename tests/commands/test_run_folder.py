"""A run's name and its checkpoints."""

import os
import re
from pathlib import Path

import pytest
import torch

from commands.run_folder import (
    claim_run_name,
    config_stem,
    earlier_stage,
    experiment_stem,
    newest_config,
    newest_run,
    newest_since_begun,
    note_beginning,
    refuse_occupied,
    resolve_checkpoint,
    write_config,
)


def checkpoint(folder: Path, name: str, age: int = 0, *, says_when: bool = True, within: str = "checkpoints") -> Path:
    """A small one, saved `age` seconds before the others; some checkpoints do not say when they were saved."""
    path = folder / within / name
    path.parent.mkdir(parents=True, exist_ok=True)
    now = 1_700_000_000
    torch.save({"weight": torch.arange(4096.0)} | ({"saved_at": float(now - age)} if says_when else {}), path)
    os.utime(path, (now, now) if says_when else (now - age, now - age))
    return path


def damage(path: Path) -> Path:
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)
    return path


def test_config_stem(tmp_path, monkeypatch):
    assert config_stem(Path("configs/recommender/sasrec.yaml")) == "recommender-sasrec"
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    assert config_stem(Path("mine.yaml")) == "own-mine"


def test_a_config_that_a_run_has_kept_has_the_stem_of_that_run(tmp_path):
    for name in ("a-b-20260101-120000", "a-b-20260101-120000-2", "a-b-job7", "a-b-job7-step2", "a-b"):
        assert config_stem(tmp_path / name / "config.yaml", runs=tmp_path) == "a-b"


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(tmp_path):
    names = [claim_run_name("recommender-sasrec", tmp_path, {}) for _ in range(5)]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"recommender-sasrec-\d{8}-\d{6}(-\d)?", name) for name in names)
    assert {path.name for path in tmp_path.iterdir()} == set(names)


def test_slurm_jobs_keep_their_name_after_a_requeue(tmp_path):
    job = {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "3", "SLURM_STEP_ID": "0"}
    assert claim_run_name("a", tmp_path, job) == "a-job77"
    assert claim_run_name("a", tmp_path, {**job, "SLURM_STEP_ID": "1"}) == "a-job77-step1"
    assert "job77" not in claim_run_name("a", tmp_path, {**job, "SLURM_JOB_NAME": "bash"}), "a shell runs many"


def test_newest_run(tmp_path):
    time = "-20260101-120000"
    checkpoint(tmp_path / f"a-b{time}", "best.ckpt", age=50)
    checkpoint(tmp_path / f"a-b{time}-2", "last.ckpt", age=20)
    checkpoint(tmp_path / "a-b-job7", "best.ckpt", age=90)
    for other in ("a-b_deep", "a-b-deep", "a-b+blind"):
        checkpoint(tmp_path / f"{other}{time}", "best.ckpt", age=0)
    (tmp_path / f"a-b{time}-3").mkdir()  # stopped before its first checkpoint
    assert newest_run("a-b", tmp_path) == f"a-b{time}-2"
    assert newest_run("a-b+blind", tmp_path) == f"a-b+blind{time}"
    with pytest.raises(FileNotFoundError, match="no trained run"):
        newest_run("a-c", tmp_path)
    with pytest.raises(FileNotFoundError, match=f"with other configs there are a-b-deep{time}$"):
        newest_run("a-b-d", tmp_path)


def test_an_experiment_is_all_configs_but_overlays():
    configs = "configs/a/b.yaml", "configs/overlays/gpu.yaml", "configs/a/ablation/blind.yaml"
    assert experiment_stem(list(map(Path, configs))) == "a-b+blind"


def test_a_shipped_config_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "vision_language-pretrain-20260101-120000"
    checkpoint(tmp_path / "runs" / name, "best.ckpt", age=0)
    assert earlier_stage("configs/vision_language/pretrain.yaml").parts[-3] == name
    with pytest.raises(FileNotFoundError, match="train one first .* or name one with --model.init_args.init_from NAME"):
        earlier_stage("configs/vision_language/sft.yaml")
    with pytest.raises(FileNotFoundError, match="there is no config configs/vision_language/pretrian.yaml"):
        earlier_stage("configs/vision_language/pretrian.yaml")


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
    best = checkpoint(tmp_path, "best.ckpt")
    assert resolve_checkpoint("last", tmp_path) == best, "killed before the first last.ckpt"
    last = checkpoint(tmp_path, "last.ckpt", age=-20)
    assert (resolve_checkpoint("last", tmp_path), resolve_checkpoint("best", tmp_path)) == (last, best)
    preempted = checkpoint(tmp_path, "hpc_ckpt_1.ckpt", age=-30, within=".")  # by SLURM's signal, after last.ckpt
    assert resolve_checkpoint("last", tmp_path) == preempted


def test_last_is_what_was_saved_last(tmp_path):
    """By what the checkpoint says, not by its file's time, which a copy changes."""
    ages = {"last.ckpt": 30, "last-1.ckpt": 40, "best.ckpt": 20, "best-2.ckpt": 10}
    paths = {name: checkpoint(tmp_path, name, age) for name, age in ages.items()}
    os.utime(paths["last-1.ckpt"], (1_800_000_000, 1_800_000_000))
    assert resolve_checkpoint("last", tmp_path) == paths["best-2.ckpt"]
    assert resolve_checkpoint("last", tmp_path / "other") is None
    old = checkpoint(tmp_path, "last-2.ckpt", age=5, says_when=False)
    assert resolve_checkpoint("last", tmp_path) == old, "written before checkpoints said when"


def test_the_newest_that_is_whole(tmp_path, said):
    """Plain Lightning takes the newest by its time and ends with `OSError: [Errno 22] Invalid argument`."""
    last = checkpoint(tmp_path, "last.ckpt")
    before = checkpoint(tmp_path, "last-1.ckpt", age=10)
    best = checkpoint(tmp_path, "best.ckpt", age=20)
    last.write_bytes(last.read_bytes()[:-2000])
    assert resolve_checkpoint("last", tmp_path) == before
    assert any(line.startswith("passing over last.ckpt:") and "cut short" in line for line in said), said
    assert "taking last-1.ckpt instead" in said
    damage(before)
    said.clear()
    assert resolve_checkpoint("last", tmp_path) == best
    assert any("last-1.ckpt is damaged: data/0 in it has changed since it was saved" in line for line in said), said
    best.write_bytes(b"")
    with pytest.raises(ValueError, match="none of them is whole: .*--ckpt_path FILE") as refused:
        resolve_checkpoint("last", tmp_path)
    assert all(f"{path.name} (" in str(refused.value) for path in (last, before, best))


def test_what_a_run_has_saved_since_somebody_started_it(tmp_path, said):
    old = checkpoint(tmp_path, "last.ckpt")
    assert newest_since_begun(tmp_path) == old, "begun before beginnings were noted"
    note_beginning(tmp_path)
    assert newest_since_begun(tmp_path) is None
    old.rename(old.with_name("last-1.ckpt"))
    assert newest_since_begun(tmp_path) is None, "the same under another name"
    new = checkpoint(tmp_path, "last.ckpt", age=-10)
    assert newest_since_begun(tmp_path) == new
    new.write_bytes(new.read_bytes()[:-2000])
    assert newest_since_begun(tmp_path) is None
    old.with_name("last-1.ckpt").unlink()
    assert newest_since_begun(tmp_path) is None
    assert "none of them is whole" in said[-1]
    new.unlink()
    note_beginning(tmp_path)
    assert newest_since_begun(tmp_path) is None


def test_refuse_occupied(tmp_path):
    refuse_occupied(tmp_path / "absent")
    (tmp_path / "checkpoints").mkdir()
    refuse_occupied(tmp_path)
    checkpoint(tmp_path, "last.ckpt")
    with pytest.raises(FileExistsError, match="--ckpt_path last"):
        refuse_occupied(tmp_path)
    checkpoint(tmp_path / "preempted", "hpc_ckpt_1.ckpt", within=".")
    with pytest.raises(FileExistsError, match="--ckpt_path last"):
        refuse_occupied(tmp_path / "preempted")


def test_write_config(tmp_path):
    folder = tmp_path / "run"
    assert newest_config(folder) is None
    for text, name in (("1", "config"), ("1", "config"), ("2", "config-2"), ("2", "config-2"), ("1", "config-3")):
        assert write_config(f"a: {text}\n", folder).name == f"{name}.yaml"
    assert newest_config(folder).read_text() == "a: 1\n", "what the run was last trained with"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "config.yaml": "a: 1\n", "config-2.yaml": "a: 2\n", "config-3.yaml": "a: 1\n"
    }  # fmt: skip
