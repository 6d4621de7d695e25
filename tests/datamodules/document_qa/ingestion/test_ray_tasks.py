"""Tests that Ray's tasks write the same cache as worker processes, survive kills, and leave no process."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from tempfile import TemporaryDirectory

import psutil
import pytest

from datamodules.document_qa.ingestion import ingest as module
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.ray_tasks import convert_with_ray
from datamodules.document_qa.ingestion.settings import IngestionSettings
from engine.system.extras import MissingPackagesError
from tests.conftest import REPOSITORY
from tests.support.data_files import pdf_files
from tests.support.data_files.document_folder import cached_files
from tests.support.data_files.pdf_files import manual
from tests.support.ports import free_ports

PROCESSES = IngestionSettings(dpi=24, workers=2, on_broken="skip")
RAY = IngestionSettings(dpi=24, workers=2, on_broken="skip", engine="ray")

STOPPED = """
import json, os, signal, sys
from contextlib import suppress
from pathlib import Path
import psutil
from datamodules.document_qa.ingestion import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.ray_tasks import convert_with_ray

def stopped(*given):
    for step in convert_with_ray(*given):
        yield step
        names, sockets = {}, []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                names[process.pid] = process.name()
                sockets += process.net_connections("tcp")
        listening = sorted({socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN})
        print(json.dumps([names, listening]), flush=True)
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))

ingest.convert_with_ray = stopped
settings = IngestionSettings(dpi=24, workers=1, on_broken="skip", engine="ray")
ingest.ingest([Path(path) for path in sys.argv[3:]], Path(sys.argv[2]), settings)
"""


@pytest.fixture
def documents(tmp_path):
    """Three PDFs, the second one called deadly, and a corrupt one."""
    names = ("a.pdf", "deadly.pdf", "z.pdf")
    whole = [manual(tmp_path / name, pages, seed=pages) for name, pages in zip(names, (2, 3, 1), strict=True)]
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing else")
    return [*whole, tmp_path / "broken.pdf"]


def running(pids):
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(pid)))
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_both_engines_write_the_same_bytes(documents, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    expected = ingest(documents, tmp_path / "processes", PROCESSES)
    with monkeypatch.context() as patch:
        patch.setattr(module, "convert_with_ray", partial(convert_with_ray, conversion=pdf_files.killed))
        actual = ingest(documents, tmp_path / "ray", RAY)
    assert set(actual.documents) == {"a.pdf", "z.pdf"}
    assert actual.broken["broken.pdf"] == expected.broken["broken.pdf"]
    assert "its worker process died" in actual.broken["deadly.pdf"]
    assert ingest(documents, tmp_path / "ray", PROCESSES).broken == expected.broken, "the death of a process is no fact"
    assert (tmp_path / "ray/known.json").read_bytes() == (tmp_path / "processes/known.json").read_bytes()
    mark = {name for name, content in cached_files(tmp_path / "ray").items() if b"worker process died" in content}
    written = {name: content for name, content in cached_files(tmp_path / "ray").items() if name not in mark}
    assert written == cached_files(tmp_path / "processes")
    assert len(mark) == 1


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("stop", ["SIGINT", "SIGKILL"])
def test_a_stopped_ingestion_leaves_no_process_and_resumes(documents, tmp_path, monkeypatch, stop):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    command = [sys.executable, "-c", STOPPED, stop, tmp_path / "ray", *documents[:3]]
    with TemporaryDirectory(prefix="r") as temporary:  # short, as paths of sockets are limited
        environment = {**os.environ, "TMPDIR": temporary}
        run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300)
        names, listening = json.loads(run.stdout)
        assert run.returncode == (-9 if stop == "SIGKILL" else -2), run.stderr
        assert len(names) > 2
        assert all(ip_address(host.removeprefix("::ffff:")).is_loopback for host in listening)
        # After a SIGKILL, Ray's agents try to reach the dead Ray for a minute, and then end.
        agents = {pid for pid, name in names.items() if stop == "SIGKILL" and name.endswith("Agent")}
        assert psutil.wait_procs(running(names.keys() - agents), timeout=60)[1] == []
        for agent in running(agents):
            agent.kill()
        assert stop == "SIGKILL" or os.listdir(temporary) == []
    ingest(documents[:3], tmp_path / "ray", PROCESSES)
    ingest(documents[:3], tmp_path / "processes", PROCESSES)
    assert cached_files(tmp_path / "ray") == cached_files(tmp_path / "processes")


def test_a_cluster_that_is_not_there_is_named(documents, tmp_path, monkeypatch):
    (port,) = free_ports(1)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(ValueError, match=f"found no Ray cluster at 127.0.0.1:{port} .*RAY_ADDRESS"):
        ingest(documents, tmp_path / "cache", RAY)


def test_a_missing_ray_is_named_with_the_command_that_installs_it(documents, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackagesError, match=r"(?s)data.init_args.ingestion.engine ray needs ray.*\[ray\]"):
        ingest(documents, tmp_path / "cache", RAY)
