"""A `prepare` that was done is not done again, and looks at every file to know it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from commands.prepared import note, nothing_to_do
from engine.prepared_files import PreparedFiles
from tests.document_folder import write_folder, write_pdf

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def done(tmp_path):
    """A command, a file and a folder that it read, and a folder that it wrote."""
    for name in ("read.jsonl", "documents/deep/a.pdf", "kept/b.npy", "c.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    files = PreparedFiles((tmp_path / "read.jsonl", tmp_path / "documents"), (tmp_path / "kept",))
    command = ["prepare", "--config", str(tmp_path / "c.yaml")]
    note(command, files, time.time() + 1)
    return command, tmp_path


def test_the_same_command_has_nothing_to_do(done, capsys):
    command, _ = done
    assert nothing_to_do(command)
    assert "Nothing to do: everything was prepared on 20" in (said := capsys.readouterr().err)
    assert "of the 3 files" in said


@pytest.mark.parametrize("name", ["read.jsonl", "documents/deep/a.pdf", "kept/b.npy", "c.yaml"])
@pytest.mark.parametrize("change", ["written", "touched", "gone"])
def test_not_when_a_file_changed(done, name, change, capsys):
    command, folder = done
    path = folder / name
    if change == "written":
        path.write_text("longer than it was")
    elif change == "touched":
        os.utime(path, ns=(1, 1))
    else:
        path.unlink()
    assert not nothing_to_do(command)
    assert capsys.readouterr().err == ""


def test_not_when_a_file_came(done):
    command, folder = done
    (folder / "documents/new.pdf").touch()
    assert not nothing_to_do(command)


def test_not_when_something_behind_a_link_changed(tmp_path):
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/linked").symlink_to(tmp_path / "real")
    (tmp_path / "real/around").symlink_to(tmp_path / "documents")  # for ever, to whoever does not look
    (tmp_path / "real/deep/1.png").touch()
    command = ["prepare", "--config", "a.yaml"]
    note(command, PreparedFiles((tmp_path / "documents",), ()), time.time() + 1)
    assert nothing_to_do(command)
    (tmp_path / "real/deep/2.png").touch()
    assert not nothing_to_do(command)


def test_without_a_place_for_records_it_looks_again(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    command = ["prepare", "--config", "a.yaml"]
    note(command, PreparedFiles((), ()), time.time())
    assert not nothing_to_do(command)
    monkeypatch.delenv("XDG_CACHE_HOME")

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    note(command, PreparedFiles((), ()), time.time())
    assert not nothing_to_do(command)


def test_not_for_another_command_folder_or_program(done, monkeypatch):
    command, folder = done
    assert not nothing_to_do([*command, "--data.ingestion.scale", "2"])
    assert not nothing_to_do(["fit", *command[1:]])
    monkeypatch.chdir(folder)
    assert not nothing_to_do(command)
    monkeypatch.undo()
    assert not nothing_to_do(command), "another cache"


def test_what_changed_meanwhile_is_not_taken_for_read(done):
    _, folder = done
    command = ["prepare", "--config", "other.yaml"]
    begun = time.time() - 10
    note(command, PreparedFiles((folder / "read.jsonl",), (folder / "kept",)), begun)
    assert not nothing_to_do(command)
    note(command, PreparedFiles((), (folder / "kept",)), begun)
    assert nothing_to_do(command), "what it wrote is newer, of course"


def test_a_damaged_record_is_none(done, tmp_path):
    command, _ = done
    (record,) = (tmp_path / "cache/lockstep/prepared").iterdir()
    record.write_text("{")
    assert not nothing_to_do(command)


def test_documents_are_prepared_once(tmp_path):
    """As a user does it; the second time the heavy packages are not even imported."""
    train = write_folder(tmp_path / "mine", range(3))
    data = {"class_path": "DocumentQuestions", "init_args": {"train": train, "root": str(tmp_path / "kept")}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"data": data}))
    config = PROJECT / "configs/document_qa/your_documents.yaml"
    command = ["prepare", "--config", str(config), "--config", str(tmp_path / "c.yaml")]

    def prepare(*flags):
        begin = [sys.executable, *flags, str(PROJECT / "train.py"), *command]
        run = subprocess.run(begin, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        return run.stderr

    assert "3 documents ingested into" in prepare()
    again = prepare("-X", "importtime")
    assert "Nothing to do: everything was prepared on" in again
    assert " torch" not in again and " numpy" not in again
    write_pdf(tmp_path / "mine/documents/manual-1.pdf", 1, pages=3)
    said = prepare()
    assert "1 document ingested into" in said and "Nothing to do" not in said
