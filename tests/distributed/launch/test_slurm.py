"""deploy/slurm/train.sbatch under a real SLURM: a preempted job requeues itself and loses no step.

All jobs are submitted at once and two run at a time. Each is the same small run on two nodes, so their losses are
compared bit by bit.
"""

import json
import random
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import REPOSITORY, TINY, Run
from tests.support.faults.step_faults import fault
from tests.support.slurm.cluster import Cluster, missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=f"no SLURM: {missing()}"),
    pytest.mark.launcher,
    pytest.mark.timeout(500),
]

STEPS = 20
TRAIN = [*TINY, "--trainer.max_steps", str(STEPS), "--preemption.check_every_n_steps", "1"]
PATIENCE = 400  # seconds for a job and those before it in the queue, on a machine that others use too


class Job(NamedTuple):
    """A job that has ended: its record in scontrol, its output, and its run."""

    facts: dict[str, str]
    output: str
    run: Run

    @property
    def outcome(self) -> tuple[str, str, str]:
        """(state, exit code, number of restarts)."""
        return self.facts["JobState"], self.facts["ExitCode"], self.facts["Restarts"]


def command(*words: str, hold: bool = True) -> list[str]:
    """The options for a run in which the second process runs a command after five steps."""
    return fault("CommandAt", command=json.dumps(words), step=5, process=1, hold=hold)


def kill_steps() -> list[int]:
    """Two random steps, with a checkpoint of every second step between each of them and the start before."""
    return [step + 3 + 2 * number for number, step in enumerate(sorted(random.sample(range(STEPS - 6), 2)))]


KILLS, VICTIMS = kill_steps(), random.sample([0, 1], 2)

JOBS = {
    "undisturbed": [],
    "lost": [*fault("KillsAt", steps=KILLS, processes=VICTIMS), "--last_checkpoint.every_n_steps", "2"],
    "time_limit": command("true"),
    "requeue": command("scontrol", "requeue", "$SLURM_JOB_ID"),
    "cancel": command("scancel", "$SLURM_JOB_ID"),
    "kill": command("kill", "-KILL", "$PID", hold=False),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    one = Cluster(tmp_path_factory.mktemp("slurm") / "cluster")
    yield one
    one.close()
    assert one.processes() == []


@pytest.fixture(scope="module")
def ended(cluster, request, tmp_path_factory):
    """``ended("requeue") -> Job``. The fast tier asks for one of the jobs only."""
    wanted = {item for item in request.session.items if item.path == request.path}
    names = list(JOBS) if any(item.get_closest_marker("slow") for item in wanted) else ["undisturbed"]
    folder = tmp_path_factory.mktemp("shared")
    (folder / "train.py").symlink_to(REPOSITORY / "train.py")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }

    def submit(*arguments: str) -> str:
        nodes = ["--nodes", "2", "--ntasks-per-node", "1"]
        return cluster.submit(*nodes, *arguments, folder=folder, environment=environment)

    script = str(REPOSITORY / "deploy/slurm/train.sbatch")
    numbers = {
        # The script asks for a signal 120 s before the limit. SLURM looks every 30 s, and is 30 s early. A requeued job
        # has to finish a step before its own signal, so the limit leaves it a minute, also on a busy machine.
        name: submit(*(["--time", "4"] if name == "time_limit" else []), script, *TRAIN, *JOBS[name])
        for name in names
    }
    alone = " ".join([sys.executable, "train.py", "fit", *TRAIN])
    if names == list(JOBS):
        numbers["no_srun"] = submit("--output", "slurm-%j.log", "--wrap", f"exec {alone}")

    def wait(name: str) -> Job:
        number = numbers[name]
        try:
            facts = cluster.end(number, PATIENCE)
        finally:
            log = folder / f"slurm-{number}.log"
            output = log.read_text(errors="replace") if log.exists() else ""
            print(output)  # shown with a failure
        return Job(facts, output, Run(folder / f"runs/recommender-quickstart-job{number}"))

    return wait


def test_two_nodes_are_found(ended):
    """srun's tasks are taken for what they are without a word in the config, and share one run, named by the job."""
    job = ended("undisturbed")
    assert job.outcome == ("COMPLETED", "0:0", "0")
    assert "global batch 16 = 2 ranks x 8 samples x 1 accumulation step" in job.output
    assert sorted(job.run.series("train/loss")) == list(range(1, STEPS + 1))
    facts = json.loads((job.run.folder / "environment.json").read_text())
    assert (facts["processes"], facts["nodes"]) == (2, 2)
    others = {path.name for path in job.run.folder.parent.iterdir()}
    assert {name for name in others if not re.fullmatch(r"recommender-quickstart-job\d+", name)} == {".gitignore"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["requeue", "time_limit"])
def test_a_job_that_is_stopped_is_requeued_and_loses_nothing(ended, name):
    """Stopped after its fifth step and then finished, it has the losses of the uninterrupted job, bit for bit.

    A signal to one of the ranks: resume/test_preemption.py.

    Plain Lightning 2.6.6: after SIGUSR1 to all tasks 3 of 9 jobs with short steps hung, after SIGTERM to one task the
    job hung, after `scontrol requeue` it began again at step 0.
    """
    job, undisturbed = ended(name), ended("undisturbed")
    assert job.outcome[:2] == ("COMPLETED", "0:0")
    assert job.outcome[2] == "1" or name == "time_limit"  # which a slow machine meets again
    assert job.output.count("resuming after step 6 ") == 1
    assert "starting at step 0" not in job.output.partition("stopped by")[2]
    reported = "SIGUSR1" if name == "time_limit" else "SIGTERM"
    assert f"stopped by {reported} after step 6, saved" in job.output
    assert job.run.series("train/loss") == undisturbed.run.series("train/loss")
    assert job.run.series("val/ndcg@10") == undisturbed.run.series("val/ndcg@10")


@pytest.mark.slow
def test_a_cancelled_job_is_not_requeued(ended):
    """It saves a checkpoint and is not requeued.

    Plain Lightning 2.6.6: its processes end with exit code 0, as if they had finished.
    """
    job = ended("cancel")
    assert (job.facts["JobState"], job.facts["Restarts"]) == ("CANCELLED", "0")
    assert "stopped by SIGTERM after step 6, saved" in job.output
    assert (job.run.folder / "checkpoints/last.ckpt").is_file()


@pytest.mark.slow
def test_a_killed_process_ends_the_job(ended):
    """It fails within a minute. Without a new checkpoint it is not requeued: it would be killed again."""
    job = ended("kill")
    state, code, restarts = job.outcome
    assert (state, restarts) == ("FAILED", "0")
    assert code != "0:0"
    assert max(job.run.series("train/loss"), default=0) <= 5
    killed = (job.run.folder / "command-was-run").stat().st_mtime
    assert datetime.fromisoformat(job.facts["EndTime"]).timestamp() - killed < 60


@pytest.mark.slow
def test_a_job_that_loses_ranks_resumes_from_its_checkpoints(ended):
    """Twice, and one of the two serves the store; the end is that of `undisturbed`.

    Plain Lightning 2.6.6: the job ends as failed, and a new submission begins at step 0.
    """
    job, undisturbed = ended("lost"), ended("undisturbed")
    print(f"processes {VICTIMS} were killed after steps {KILLS}")  # shown with a failure
    assert job.outcome == ("COMPLETED", "0:0", "2")
    first, *again = job.run.starts
    assert first == 0
    assert len(again) == 2
    assert all(kill - 2 <= start <= kill for start, kill in zip(again, KILLS, strict=True)), (again, KILLS)
    assert job.run.series("train/loss") == undisturbed.run.series("train/loss")
    assert job.run.series("val/ndcg@10") == undisturbed.run.series("val/ndcg@10")


@pytest.mark.slow
def test_without_srun_a_job_of_two_nodes_is_refused(ended):
    """Plain Lightning 2.6.6: a warning, then it waits for the other process for ever."""
    job = ended("no_srun")
    assert job.outcome == ("FAILED", "2:0", "0")
    assert "put srun before python" in job.output
