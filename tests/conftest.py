"""What every test has at hand: the repository, the real data where there are some, a folder to run in."""

import json
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Lightning 2.6 calls jsonargparse by names that the latter has renamed; nothing that a test here could mend.
os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")

REPOSITORY = Path(__file__).resolve().parents[1]
DISTRIBUTED = "distributed"

# A small marketplace: a run of it takes seconds.
TINY = [
    "--config", str(REPOSITORY / "configs/recommender/quickstart.yaml"),
    "--data.init_args.marketplace.num_users", "200",
    "--data.init_args.marketplace.num_items", "60",
    "--data.init_args.batch_size", "16",
    "--model.init_args.attention", "standard",
    "--model.init_args.hidden_size", "16",
    "--model.init_args.schedule", "constant",
    "--trainer.log_every_n_steps", "1",
    "--trainer.enable_progress_bar", "false",
    "--trainer.accelerator", "cpu",
]  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the half with several processes only its own files are imported, by each of the tests' processes."""
    if config.option.markexpr == DISTRIBUTED and collection_path.suffix == ".py":
        return True if f"mark.{DISTRIBUTED}" not in collection_path.read_text(encoding="utf-8") else None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files of those that may take longest come first: none is left over when all others are done."""
    limits: dict[Path, float] = {}
    for item in items:
        if item.get_closest_marker(DISTRIBUTED) and f"mark.{DISTRIBUTED}" not in item.path.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{item.path}: write pytest.mark.{DISTRIBUTED} out, or `make test` passes it over")
        limit = item.get_closest_marker("timeout")
        limits[item.path] = max(limits.get(item.path, 0.0), limit.args[0] if limit else 0.0)
    items.sort(key=lambda item: -limits[item.path])


class Run:
    """The files of a finished run."""

    def __init__(self, folder: Path, output: str = "") -> None:
        self.folder, self.output = folder, output

    def series(self, metric: str) -> dict[int, float]:
        """{optimizer step: value} of a metric; NaN where it was not finite, which the file has as null."""
        records = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        found = {record["step"]: record[metric] for record in records if metric in record}
        return {step: math.nan if value is None else value for step, value in found.items()}

    @property
    def starts(self) -> list[int]:
        """The finished steps after which each start of the run trained on; 0 for one that trained from the beginning.

        Only with a line of the log for each step. A start that trained no step is not in it.
        """
        starts = (self.folder / "train.log").read_text(encoding="utf-8").split(" run folder ")[1:]
        firsts = (re.search(r" step (\d+), epoch \d+: loss", text) for text in starts)
        return [int(first[1]) - 1 for first in firsts if first]


@pytest.fixture
def lockstep(tmp_path, monkeypatch):
    """Runs the command line in this process, in an empty folder: ``lockstep("fit", *TINY, name="a") -> Run``."""
    from commands.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_DEBUG", "1")  # errors as they were raised
    for key in ("PL_GLOBAL_SEED", "LOCKSTEP_RUN_NAME"):
        monkeypatch.setenv(key, "")
        monkeypatch.delenv(key)

    def run(command: str, *options: str, name: str) -> Run:
        main([command, *options, "--run_name", name])
        return Run(tmp_path / "runs" / name)

    return run


@pytest.fixture(scope="session")
def parser():
    """The parser of `fit`, built once: that is what takes the time."""
    from commands.cli import LockstepCLI

    class Parser(LockstepCLI):
        before_instantiate_classes = instantiate_classes = lambda self: None

        def _run_subcommand(self, subcommand):
            pass

    return Parser(["fit", *TINY[:2]])._parser("fit")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with a finished run of two epochs of 13 steps. To read; `done` copies it."""
    from commands.cli import main

    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PL_GLOBAL_SEED", "")
        patch.delenv("PL_GLOBAL_SEED")
        main(["fit", *TINY, "--trainer.max_epochs", "2", "--run_name", "recommender-quickstart-job1"])
    return folder


@pytest.fixture
def done(lockstep, trained, tmp_path):
    """The test's own copy of `trained`, in which `lockstep` runs."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return Run(tmp_path / "runs" / "recommender-quickstart-job1")


@pytest.fixture
def said():
    """What was said to the user so far: a list of lines."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("lockstep").addHandler(handler)
    yield lines
    logging.getLogger("lockstep").removeHandler(handler)


@pytest.fixture
def launch(tmp_path):
    """Runs train.py in processes of its own: ``launch("fit", *TINY, name="a", processes=2) -> Run``; none survives."""

    def run(command: str, *options: str, name: str, processes: int = 1, timeout: float = 150) -> Run:
        team = ["--trainer.devices", str(processes), "--trainer.strategy", "ddp"] if processes > 1 else []
        started = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "train.py"), command, *options, *team, "--run_name", name],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "LOCKSTEP_DEBUG": "1", "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = started.communicate(timeout=timeout)
        finally:
            try:
                os.killpg(started.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert started.returncode == 0, output
        return Run(tmp_path / "runs" / name, output)

    return run


@pytest.fixture
def small_group():
    """A control group with room for 400 MB, beside this process's own."""
    from engine import host_memory

    own = next(host_memory.memory_groups(), None)
    if own is None or os.geteuid() != 0:
        pytest.skip("no control group for memory, or not root")
    folder = own / f"lockstep-test-{os.getpid()}"
    limit = "memory.max" if (own / "memory.events").exists() else "memory.limit_in_bytes"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(400 << 20))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()
