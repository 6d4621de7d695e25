"""Tests the scripts of deploy/slurm, as bash and SLURM read them.

With a real SLURM: tests/distributed/launch/test_slurm.py and tests/commands/sweep/test_slurm_array.py.
"""

import re
import shutil
import subprocess

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "deploy/slurm/train.sbatch"
TEXT = SCRIPT.read_text(encoding="utf-8")
DIRECTIVES = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", TEXT, flags=re.MULTILINE))

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


def test_the_script_has_the_expected_directives():
    assert TEXT.startswith("#!/bin/bash\n")
    assert DIRECTIVES == {
        "job-name": "lockstep",
        "nodes": "1",
        "ntasks-per-node": "1",
        "output": "slurm-%j.log",  # a file for each job
        "open-mode": "append",
        "requeue": "",
        "signal": "USR1@120",  # no B:, which would signal the script alone
    }


def test_a_job_name_that_hides_slurm_from_lightning_is_not_used():
    assert DIRECTIVES["job-name"] not in ("bash", "interactive")


@needs_bash
@pytest.mark.parametrize("script", sorted(SCRIPT.parent.iterdir()), ids=lambda path: path.name)
def test_bash_parses_the_scripts(script):
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=60)
    text = script.read_text(encoding="utf-8")
    assert text.rindex("#SBATCH") < re.search(r"^[^#\n]", text, flags=re.MULTILINE).start()


@pytest.fixture
def submit(tmp_path):
    """Runs the script with an srun that notes its arguments and variables, and ends with 7."""
    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    noted = '"${MASTER_PORT:-none}" "${SRUN_CPUS_PER_TASK:-none}" "${SLURM_NTASKS:-none}" "$@"'
    srun.write_text(f'#!/bin/bash\nprintf "%s\\n" {noted} > noted\nexit 7\n')
    srun.chmod(0o755)

    def run(*arguments, job="1234", **variables):
        environment = {"PATH": f"{srun.parent}:/usr/bin:/bin", "SLURM_JOB_ID": job, **variables}
        command = ["bash", SCRIPT, *arguments]
        end = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60)
        assert (end.returncode, end.stdout, end.stderr) == (7, b"", b"")
        return (tmp_path / "noted").read_text().splitlines()

    return run


@needs_bash
def test_arguments_and_the_exit_code_are_passed_on(submit, tmp_path):
    port, cpus, _, *command = submit("--config", "a file.yaml", "--trainer.max_steps", "5", SLURM_CPUS_PER_TASK="6")
    assert port == "none", "train.py derives a port from the numbers of job and step, unless the user exports one"
    assert cpus == "6"
    assert command == [
        "--kill-on-bad-exit=1",
        "python",
        "train.py",
        "fit",
        "--config",
        "a file.yaml",
        "--trainer.max_steps",
        "5",
        "--ckpt_path",
        "last",
    ]
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to("/bin/true")
    port, cpus, _, *command = submit(MASTER_PORT="29600")
    assert (port, cpus, command[1]) == ("29600", "none", ".venv/bin/python")


@needs_bash
@pytest.mark.parametrize(
    ("restarts", "nodes", "per_node", "tasks"),
    [
        ({}, "2", "4", "12"),  # a first start has the tasks of its submission, whatever they are
        ({"SLURM_RESTART_COUNT": "1"}, "3", "4", "12"),
        ({"SLURM_RESTART_COUNT": "1"}, "2", "4", "8"),  # one of three nodes is lost
        ({"SLURM_RESTART_COUNT": "2"}, "4", "4", "12"),  # --ntasks 12 on four nodes
        ({"SLURM_RESTART_COUNT": "1"}, "2", "", "12"),
    ],
)
def test_a_requeued_job_has_the_tasks_of_the_nodes_that_are_left(submit, restarts, nodes, per_node, tasks):
    allocation = {"SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": "12", "SLURM_NTASKS_PER_NODE": per_node}
    assert submit(**allocation, **restarts)[2] == tasks
