"""README.md and docs/quickstart.md: their commands are run, in their order, once, on a marketplace of 64 shoppers.

What would need a network, a GPU, several processes or many minutes is parsed to its end instead (test_commands.py)
and named here, with why.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.docs.pages import arguments, commands

PAGES = ["README.md", "docs/quickstart.md"]

SMALL = [
    "--data.init_args.marketplace.num_users",
    "64",
    "--data.init_args.marketplace.num_items",
    "60",
    "--data.init_args.batch_size",
    "16",
    "--model.init_args.hidden_size",
    "8",
    "--trainer.enable_progress_bar",
    "false",
    "--trainer.accelerator",
    "cpu",
]
EPOCHS = {"--config": "1", "--ckpt_path": "2"}
"""Maps an option of a command to its epochs; a run that resumes trains for one more epoch."""

NOT_RUN = {
    "prepare": "downloads MovieLens",
    "gpu.yaml": "needs a GPU",
    "ddp_cpu.yaml": "starts processes of its own; tests/distributed/exactness/test_exactness.py",
    "mlflow.yaml": "its database takes its time; tests/callbacks/trackers/test_mlflow.py",
    "--prometheus.port": "a port that may be taken here; tests/callbacks/prometheus/test_exporter.py",
    "wandb.yaml": "W&B's own process takes its time; tests/callbacks/trackers/test_wandb.py",
    "demo --run_name": "serves a page until Ctrl-C; tests/commands/demo",
    "chat --run_name": "answers until its input ends; tests/commands/chat",
    "sweep --config": "twelve trainings; tests/commands/sweep",
    "configs/temporal/": "minutes; tests/configs/test_temporal_configs.py",
    "configs/vision_language/": "minutes; tests/configs/test_vision_language_quickstart.py",
    "configs/document_qa/": "minutes; tests/configs/test_document_qa_configs.py",
    "configs/image_classifier/": "a minute; tests/datamodules/image_classifier",
}
"""What a command has in it -> why it is not run here."""


def reason(command: list[str]) -> str | None:
    """Why a command is not run, if it is not."""
    return next((why for part, why in NOT_RUN.items() if part in " ".join(command)), None)


def with_limits(words: list[str]) -> list[str]:
    if words[0] not in ("fit", "test", "validate", "doctor") or "--help" in words:
        return words
    small = SMALL if "--config" in words else []
    epochs = next((most for option, most in EPOCHS.items() if option in words and words[0] == "fit"), None)
    return [*words, *small, *(["--trainer.max_epochs", epochs] if epochs else [])]


SURROUNDINGS = {
    "PYTHONPATH": str(REPOSITORY),
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "200",  # no line of a table is broken where the test looks for words
}

IN_TURN = """
import json, os, runpy, sys
for words in json.loads(sys.argv[1]):
    for key in ("PL_GLOBAL_SEED", "LOCKSTEP_RUN_NAME"):
        os.environ.pop(key, None)
    print("$", *words, flush=True)
    sys.argv = words
    try:
        runpy.run_path("train.py", run_name="__main__")
    except SystemExit as end:
        # The doctor may have a word to say about this machine.
        if end.code and not (words[1] == "doctor" and end.code in (1, 2)):
            raise
"""
"""Commands one after the other, each through the door, in one process: what takes the time is to import torch."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commands_of_the_readmes_run(tmp_path):
    for part, copy in (("configs", shutil.copytree), ("train.py", shutil.copy)):
        copy(REPOSITORY / part, tmp_path / part)
    once = {shlex.join(line): line for page in PAGES for line in commands(page) if not reason(line)}
    words = [["train.py", *with_limits(arguments(line))] for line in once.values()]
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TURN, json.dumps(words)],
        cwd=tmp_path,
        env={**os.environ, **SURROUNDINGS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=500)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    assert re.search(r"^OK +config .*all settings are known", output, flags=re.MULTILINE)
    assert {"fit", "test", "predict", "export", "report", "doctor"} <= {line[1] for line in words}
    assert (tmp_path / "runs/mine/predictions.jsonl").stat().st_size
    assert (tmp_path / "runs/mine/report.html").stat().st_size


def test_reasons_not_to_run_a_command_are_of_existing_commands():
    reported = [" ".join(command) for page in PAGES for command in commands(page)]
    assert len(reported) >= 10
    assert [part for part in NOT_RUN if not any(part in command for command in reported)] == []


def test_make_train_runs_the_first_two():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    target = re.search(r"^train:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)[1]
    quickstart = re.search(r"^QUICKSTART := (\S+)", makefile, flags=re.MULTILINE)[1]
    run = re.findall(r"train\.py (.*)", target.replace("$(QUICKSTART)", quickstart))
    assert run == [" ".join(arguments(command)) for command in commands("README.md")[:2]]
