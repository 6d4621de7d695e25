"""Tests the names of runs and the files of their directories."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.runs.run_directory import newest_config, newest_run, refuse_occupied, write_config
from commands.runs.run_names import (
    changes_a_config,
    check_directory,
    check_run_name,
    claim_run_name,
    config_stem,
    experiment_stem,
)
from tests.commands.runs.checkpoints import write_checkpoint


def test_the_stem_of_a_run_has_the_folder_of_its_config(tmp_path, monkeypatch):
    assert config_stem(Path("configs/recommender/sasrec.yaml"), Path("runs")) == "recommender-sasrec"
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    assert config_stem(Path("mine.yaml"), Path("runs")) == "own-mine"


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


def test_the_newest_run_is_the_newest_of_its_config_alone(tmp_path):
    time = "-20260101-120000"
    write_checkpoint(tmp_path / f"a-b{time}", "best.ckpt", age=50)
    write_checkpoint(tmp_path / f"a-b{time}-2", "last.ckpt", age=20)
    write_checkpoint(tmp_path / "a-b-job7", "best.ckpt", age=90)
    for other in ("a-b_deep", "a-b-deep", "a-b+blind"):
        write_checkpoint(tmp_path / f"{other}{time}", "best.ckpt", age=0)
    (tmp_path / f"a-b{time}-3").mkdir()  # stopped before its first checkpoint
    assert newest_run("a-b", tmp_path) == f"a-b{time}-2"
    assert newest_run("a-b+blind", tmp_path) == f"a-b+blind{time}"
    with pytest.raises(FileNotFoundError, match="no trained run"):
        newest_run("a-c", tmp_path)
    with pytest.raises(FileNotFoundError, match=f"runs of other configs: a-b-deep{time}$"):
        newest_run("a-b-d", tmp_path)


def test_an_experiment_is_all_configs_but_overlays():
    configs = "configs/a/b.yaml", "configs/overlays/gpu.yaml", "configs/a/ablation/blind.yaml"
    assert experiment_stem(list(map(Path, configs)), Path("runs")) == "a-b+blind"


def test_a_folder_with_checkpoints_is_refused_as_occupied(tmp_path):
    refuse_occupied(tmp_path / "absent")
    (tmp_path / "checkpoints").mkdir()
    refuse_occupied(tmp_path)
    write_checkpoint(tmp_path, "last.ckpt")
    with pytest.raises(FileExistsError, match="--ckpt_path last"):
        refuse_occupied(tmp_path)
    write_checkpoint(tmp_path / "preempted", "hpc_ckpt_1.ckpt", within=".")
    with pytest.raises(FileExistsError, match="--ckpt_path last"):
        refuse_occupied(tmp_path / "preempted")


def test_a_changed_config_gets_a_numbered_file(tmp_path):
    folder = tmp_path / "run"
    assert newest_config(folder) is None
    for text, name in (("1", "config"), ("1", "config"), ("2", "config-2"), ("2", "config-2"), ("1", "config-3")):
        assert write_config(f"a: {text}\n", folder).name == f"{name}.yaml"
    assert newest_config(folder).read_text() == "a: 1\n", "what the run was last trained with"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "config.yaml": "a: 1\n",
        "config-2.yaml": "a: 2\n",
        "config-3.yaml": "a: 1\n",
    }


def test_git_ignores_the_directory_of_runs_that_the_program_creates(tmp_path):
    claim_run_name("a", tmp_path / "runs", {})
    assert (tmp_path / "runs/.gitignore").read_text() == "*\n"
    (tmp_path / "own").mkdir()
    claim_run_name("a", tmp_path / "own", {})
    assert not (tmp_path / "own/.gitignore").exists(), "the user's own directory"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, "a name, not a path") for name in ("..", ".", "a/b", "/a", "a/", "../a", "a\\b", "")),
        *(
            (name, "expected printable characters, no space at its ends")
            for name in ("a\nb", "\x1b[31m", "\x00", " a", "a ")
        ),
        ("-a", "expected another first character than -"),
        ("--config", "expected another first character than -"),
        ("x" * 201, "expected at most 200 bytes.* and 131 more characters"),
        ("\u00e9" * 101, "expected at most 200 bytes"),
    ],
)
def test_names_that_are_no_directory_of_runs_are_refused(name, words):
    with pytest.raises(ValueError, match=f"--run_name.*{words}") as error:
        check_run_name(name)
    assert len(str(error.value)) < 250
    assert str(error.value).isprintable()


@given(st.text(max_size=20))
def test_a_name_that_passes_is_a_directory_in_runs(name):
    try:
        check_run_name(name)
    except ValueError:
        return
    assert (Path("runs") / name).resolve().parent == Path("runs").resolve()
    assert name.isprintable()
    assert not name.startswith("-")


def test_runs_that_is_a_file_or_a_link_to_nothing_is_refused(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "absent")
    with pytest.raises(NotADirectoryError, match="runs is a link to .*absent, which does not exist"):
        claim_run_name("a", tmp_path / "runs", {})
    (tmp_path / "absent").mkdir()
    check_directory(tmp_path / "runs")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is a file; expected a directory: move the file away"):
        claim_run_name("a", tmp_path / "file", {})
    check_directory(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("model: {class_path: A}", False),
        ("model.class_path: A", False),
        ("'data': B", False),
        ("[1", False),
        ("model: {init_args: {x: 1}}", True),
        ("trainer: {strategy: {class_path: A}}\nmodel.init_args.x: 3", True),
    ],
)
def test_a_file_of_ablations_that_names_model_or_data_is_a_whole_config(tmp_path, text, changes):
    config = tmp_path / "ablation/a.yaml"
    config.parent.mkdir()
    config.write_text(text, encoding="utf-8")
    assert changes_a_config(config) is changes
