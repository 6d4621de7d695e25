"""Fixtures and constants of all tests: the repository, a tiny config, and runs of the command line."""

import logging
import math
import multiprocessing.util
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.support.fit_parser import fit_parser
from tests.support.outputs.jsonl import read_jsonl
from tests.support.slurm.scontrol import scontrol  # noqa: F401

if TYPE_CHECKING:
    from lightning.pytorch.cli import LightningArgumentParser

# An example may take long on a busy machine; the limit of the whole test applies.
hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")

# Lightning 2.6 calls jsonargparse by deprecated names, which no test here can fix.
os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell starts its background jobs so
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and some tests press Ctrl-C

pytest_plugins = ["tests.tiers"]

REPOSITORY = Path(__file__).resolve().parents[1]

# A small marketplace: a run of it takes seconds.
TINY = [
    "--config",
    str(REPOSITORY / "configs/recommender/quickstart.yaml"),
    "--data.init_args.marketplace.num_users=200",
    "--data.init_args.marketplace.num_items=60",
    "--data.init_args.batch_size=16",
    "--data.init_args.length_groups=2",
    "--model.init_args.attention=standard",
    "--model.init_args.residual=plain",
    "--model.init_args.feed_forward=relu",
    "--model.init_args.feed_forward_size=256",
    "--model.init_args.dropout=0.0",
    "--model.init_args.time_span=256",
    "--model.init_args.learning_rate=0.003",
    "--model.init_args.hidden_size=16",
    "--model.init_args.num_blocks=1",
    "--model.init_args.schedule=constant",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]


class Run:
    """The files of a finished run."""

    def __init__(self, folder: Path, output: str = "") -> None:
        self.folder, self.output = folder, output

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl."""
        return read_jsonl(self.folder / "metrics.jsonl")

    def predictions(self, file: str = "predictions.jsonl") -> list[dict[str, Any]]:
        """Return the records of a file that `predict` has written into the run's folder."""
        return read_jsonl(self.folder / file)

    @property
    def test_metrics(self) -> list[dict[str, float]]:
        """{metric: value} of each `test` of the run."""
        tests = ({name: record[name] for name in record if name.startswith("test/")} for record in self.records)
        return [metrics for metrics in tests if metrics]

    def series(self, metric: str) -> dict[int, float]:
        """{optimizer step: value} of a metric; NaN where it was not finite, which the file has as null."""
        found = {record["step"]: record[metric] for record in self.records if metric in record}
        return {step: math.nan if value is None else value for step, value in found.items()}

    @property
    def starts(self) -> list[int]:
        """Return the finished steps at which each start of the run began to train; 0 for a start from scratch.

        Only with a line of the log for each step. A start that trained no step is not in it.
        """
        starts = (self.folder / "train.log").read_text(encoding="utf-8").split(" run folder ")[1:]
        firsts = (re.search(r" step (\d+), epoch \d+: loss", text) for text in starts)
        return [int(first[1]) - 1 for first in firsts if first]


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for temporary files of the tests and of their processes, removed at the end.

    Processes that a test kills leave theirs: torchrun's logs, sockets of multiprocessing, trackers' files.
    """
    tmp_path_factory.getbasetemp()  # stays where pytest keeps it, for a look at the files of a failure
    multiprocessing.util.get_temp_dir()  # of this process, which removes it after the end of the tests
    with (
        tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def lockstep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Run the command line in this process, in an empty folder: ``lockstep("fit", *TINY, name="a") -> Run``."""
    from commands.cli.main import main

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
def parser() -> "LightningArgumentParser":
    """The parser of `fit`, built once for all tests, as it takes seconds."""
    return fit_parser(*TINY[:2])


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of two epochs of 13 steps, to read only; `done` copies it."""
    from commands.cli.main import main

    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PL_GLOBAL_SEED", "")
        patch.delenv("PL_GLOBAL_SEED")
        main(["fit", *TINY, "--trainer.max_epochs", "2", "--run_name", "recommender-quickstart-job1"])
    return folder


@pytest.fixture
def done(lockstep: Callable[..., Run], trained: Path, tmp_path: Path) -> Run:
    """A copy of `trained` for one test, in the folder in which `lockstep` runs."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return Run(tmp_path / "runs" / "recommender-quickstart-job1")


@contextmanager
def collect_messages(level: int) -> Iterator[list[str]]:
    """Yield a list that receives the messages of at least this level that Lockstep logs."""
    lines: list[str] = []
    handler = logging.Handler(level)
    vars(handler)["emit"] = lambda record: lines.append(record.getMessage())
    logging.getLogger("lockstep").addHandler(handler)
    yield lines
    logging.getLogger("lockstep").removeHandler(handler)


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """A list that receives every message that Lockstep logs."""
    with collect_messages(logging.NOTSET) as lines:
        yield lines


@pytest.fixture
def logged_warnings() -> Iterator[list[str]]:
    """A list that receives every warning and error that Lockstep logs."""
    with collect_messages(logging.WARNING) as lines:
        yield lines


@pytest.fixture
def small_group() -> Iterator[Path]:
    """The folder of a control group with a memory limit of 400 MB, beside that of this process."""
    from engine.system import host_memory

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
