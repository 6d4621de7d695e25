"""Loads the demo of a run, and serves its page in a thread of this process."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from commands.answers.answer_blocks import AnswerBlock
from commands.answers.answer_service import AnswerService, Example, PickedValue, UserQuestion
from commands.answers.compared_runs import ComparedRun
from commands.cli.arguments import add_run_config
from commands.cli.main import LockstepCLI, main
from commands.demo.access_control import Login, listen
from commands.demo.main import create_application, uvicorn_server
from engine.io.checksum_file import CHECKSUM_FILE
from engine.system.runs_directory import runs_directory


def loaded(name: str, *options: str) -> AnswerService:
    """Return the answers of a run."""
    return run_of(name, *options).service


@contextmanager
def trained(folder: Path, *options: str) -> Iterator[AnswerService]:
    """Train the run `a` in a folder and yield its answers; the folder is the working directory until the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["fit", *options, "--run_name", "a"])
        yield loaded("a")


def run_of(name: str, *options: str) -> ComparedRun:
    """Return a run as `demo --compare` loads it."""
    arguments = add_run_config(["demo", "--run_name", name, *options], runs_directory())
    found = LockstepCLI(arguments, opens_page=False).loaded
    assert found is not None
    return found


def answered(demo: AnswerService, question: UserQuestion) -> dict[str, AnswerBlock]:
    """Return the blocks of an answer by key, as the visitor finally sees them."""
    with torch.inference_mode():
        return {block.key: block for block in demo.answer(question)}


def client(demo: AnswerService, login: Login | None = None, host: str = "127.0.0.1") -> TestClient:
    """Return a client of the page, without a server."""
    application, _ = create_application(demo, nullcontext, "run", host, login)
    return TestClient(application, base_url="http://127.0.0.1")


def lines(response: Any) -> list[dict[str, Any]]:
    """Return the objects of a response."""
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def uploaded(page: TestClient, field: str, name: str, content: bytes) -> list[dict[str, Any]]:
    """Upload a file; return the answer."""
    return lines(page.post("/upload", params={"field": field, "name": name}, content=content))


def asked(page: TestClient, **values: Any) -> list[dict[str, Any]]:
    """Ask; return the answer."""
    return lines(page.post("/ask", json={"values": values}))


@contextmanager
def served(demo: AnswerService, title: str = "run") -> Iterator[str]:
    """Serve a page at a free port; yield its address."""
    application, _ = create_application(demo, nullcontext, title, "127.0.0.1", None)
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn_server(application)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def asked_by(example: Example, demo: AnswerService) -> UserQuestion:
    """Return the question of an example."""
    kinds = {field.name: field.kind for field in demo.fields}
    files = {name: value for name, value in example.values.items() if kinds[name] in ("picture", "file")}
    picked = {
        name: [PickedValue(**item) for item in value] for name, value in example.values.items() if kinds[name] == "pick"
    }
    texts = {name: value for name, value in example.values.items() if name not in {**files, **picked}}
    return UserQuestion(texts, files, picked)


def check_export(folder: Path, demo: AnswerService, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    """Export the run `a` of a folder, and check that the export answers each example as the checkpoint does."""
    monkeypatch.chdir(folder)
    output = f"exported{len(list(folder.glob('exported*')))}"
    main(["export", "--run_name", "a", "--output", output, *options])
    assert (folder / output / CHECKSUM_FILE).is_file()
    exported = loaded("a", "--ckpt_path", output)
    assert exported.about[0] == ("export", output)
    for example in demo.examples():
        question = asked_by(example, demo)
        assert answered(exported, question) == answered(demo, question)
