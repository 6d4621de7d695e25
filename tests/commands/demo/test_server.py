"""Tests the server of a page, with a fake model: queue, limits, login, addresses, errors."""

import asyncio
import base64
import signal
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from commands.answers.answer_blocks import Text
from commands.answers.answer_service import (
    AnswerService,
    FieldChoice,
    InputField,
    PickedValue,
    UserInputError,
    UserQuestion,
)
from commands.demo.access_control import Login, is_loopback, listen, read_login
from commands.demo.file_store import FileStore, shorten_name
from commands.demo.main import serve
from commands.demo.model_queue import ModelQueue, QueueFullError
from commands.demo.question_json import MAX_TEXT_LENGTH, parse_user_question
from tests.conftest import REPOSITORY
from tests.support.demo import demo_server
from tests.support.waiting import wait_until

TEXT = InputField("text", "text", "Text")
ITEMS = InputField("items", "pick", "Items", max_count=2, times=True)


class Echo(AnswerService):
    """Answers with the question."""

    fields = [TEXT, ITEMS]

    def answer(self, question):
        yield Text("answer", "", question.text("text"))
        if question.texts["text"] == "fail":
            raise ZeroDivisionError("a bug")

    def search(self, field, text):
        return [FieldChoice(text, text.upper())]


def test_questions_are_answered_and_failures_are_messages(caplog):
    page = demo_server.client(Echo())
    assert demo_server.asked(page, text="hello")[0]["text"] == "hello"
    assert demo_server.asked(page, text=" ") == [{"error": "text: it is empty; write something first"}]
    (_, failure) = demo_server.asked(page, text="fail")
    assert "console" in failure["error"]
    assert "a bug" not in failure["error"]
    assert "a bug" in caplog.text
    assert page.get("/search", params={"field": "items", "text": "ab"}).json() == [{"value": "ab", "label": "AB"}]
    assert page.get("/search", params={"field": "other"}).status_code == 400
    assert "no such field" in demo_server.uploaded(page, "text", "a.png", b"x")[0]["error"]
    assert page.get("/other").status_code == 404


def test_the_page_loads_nothing_from_elsewhere():
    page = demo_server.client(Echo())
    policy = page.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    for path in ("/", "/demo.js", "/demo.css"):
        text = page.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "@import" not in text


@pytest.mark.parametrize(
    "body, message",
    [
        (b"[]", "cannot be read"),
        (b"{", "cannot be read"),
        (b'{"values": {"other": "x"}}', "cannot be read"),
        (b'{"values": {"text": 3}}', "cannot be read"),
        (b'{"values": {"text": "' + b"x" * (MAX_TEXT_LENGTH + 1) + b'"}}', "expected at most 4,000"),
        (b'{"values": {"items": [{"value": "a"}, {"value": "b"}, {"value": "c"}]}}', "found 3, expected at most 2"),
        (b'{"values": {}, "turns": [["a"]]}', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_other_questions_are_refused(body, message):
    with pytest.raises(UserInputError, match=message):
        parse_user_question(body, {"text": TEXT, "items": ITEMS}, FileStore().get)


def test_a_question_is_parsed():
    body = b'{"values": {"text": "q", "items": [{"value": "a", "time": "2024-01-01"}]}, "turns": [["x", "y"]]}'
    question = parse_user_question(body, {"text": TEXT, "items": ITEMS}, FileStore().get)
    assert question == UserQuestion({"text": "q"}, {}, {"items": [PickedValue("a", "2024-01-01")]}, [("x", "y", ())])


def test_files_are_forgotten_at_the_limit():
    from commands.answers.answer_service import UploadedFile

    store = FileStore(max_bytes=10, max_files=3)
    own = store.keep(UploadedFile("example", bytes(100)))
    first, second = (store.add(UploadedFile(name, bytes(4))) for name in "ab")
    assert store.get(first).name == "a"  # now `second` is the one that was used least recently
    third = store.add(UploadedFile("c", bytes(4)))
    with pytest.raises(UserInputError, match="no longer kept"):
        store.get(second)
    assert [store.get(key).name for key in (own, first, third)] == ["example", "a", "c"]
    assert shorten_name("../../etc/\x00pass\nwd") == "passwd"
    assert len(shorten_name("x" * 999)) == 200


def test_one_model_answers_one_visitor_after_another():
    """Answers do not interleave, those who wait keep their order, and too many are refused."""

    async def visits():
        queue, log = ModelQueue(nullcontext, waiting=2), []
        release = threading.Event()

        def steps(name):
            for number in range(2):
                assert name != "a" or release.wait(10)
                log.append(f"{name}{number}")
                yield number

        async def visit(name):
            return [step async for step in queue.stream(lambda: steps(name))]

        tasks = []
        for name in "abc":
            tasks.append(asyncio.create_task(visit(name)))
            await asyncio.sleep(0)
        assert queue.ahead == 3
        with pytest.raises(QueueFullError, match="2 questions wait"):
            await visit("d")
        release.set()
        assert await asyncio.gather(*tasks) == [[0, 1]] * 3
        queue.close()
        return log

    assert asyncio.run(visits()) == ["a0", "a1", "b0", "b1", "c0", "c1"]


def test_a_visitor_who_leaves_frees_the_model():
    """What the answer holds, such as a process that reads a file, ends at once and in the thread of the model."""

    async def visits():
        queue, ended = ModelQueue(nullcontext), []

        def steps():
            try:
                yield from range(100)
            finally:
                ended.append(threading.current_thread().name.partition("_")[0])

        leaving = queue.stream(steps)
        assert await anext(leaving) == 0
        await leaving.aclose()
        assert [step async for step in queue.stream(lambda: iter("ab"))] == ["a", "b"]
        queue.close()
        return ended

    assert asyncio.run(visits()) == ["model"]


def test_a_login_is_needed(tmp_path):
    page = demo_server.client(Echo(), Login("me", "sécret:x"))
    assert page.get("/").status_code == 401
    assert "Basic" in page.get("/").headers["www-authenticate"]
    for wrong in ("me:secret", "me", "", "other:sécret:x"):
        token = base64.b64encode(wrong.encode()).decode()
        assert page.get("/", headers={"Authorization": f"Basic {token}"}).status_code == 401
    assert page.get("/", headers={"Authorization": "Basic ***"}).status_code == 401
    token = base64.b64encode("me:sécret:x".encode()).decode()
    assert page.get("/", headers={"Authorization": f"Basic {token}"}).status_code == 200

    (tmp_path / "login").write_text("me:from a file\n")
    assert read_login(f"@{tmp_path / 'login'}", {}) == Login("me", "from a file")
    assert read_login(None, {"LOCKSTEP_DEMO_AUTH": "me:x"}) == Login("me", "x")
    assert read_login(None, {}) is None
    (tmp_path / "binary").write_bytes(b"me:\xff")
    for name in ("absent", "binary", "."):
        with pytest.raises(ValueError, match="^--auth @FILE: .* cannot be read as text in UTF-8"):
            read_login(f"@{tmp_path / name}", {})
    for wrong in ("me", "me:", ":x"):
        with pytest.raises(ValueError, match="expected USER:PASSWORD"):
            read_login(wrong, {})


def test_a_page_of_another_site_cannot_read_it():
    """DNS rebinding: the request has the name of the other site."""
    page = demo_server.client(Echo())
    assert page.get("/", headers={"Host": "evil.example:7860"}).status_code == 400
    assert page.get("/", headers={"Host": "localhost:7860"}).status_code == 200
    assert demo_server.client(Echo(), host="0.0.0.0").get("/", headers={"Host": "box"}).status_code == 200


def test_a_page_of_another_site_cannot_ask():
    page = demo_server.client(Echo())
    for site, code in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        body = {"values": {}, "turns": []}
        assert page.post("/ask", json=body, headers={"Sec-Fetch-Site": site}).status_code == code


def test_a_used_port_names_a_free_one():
    with listen("127.0.0.1", 0) as used:
        port = used.getsockname()[1]
        with pytest.raises(ValueError, match=rf"--port {port}: .*in use.* --port \d+"):
            listen("127.0.0.1", port)
    with pytest.raises(ValueError, match="--host no such host"):
        listen("no such host", 0)
    assert is_loopback("127.1")
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example")


def test_listening_beyond_this_machine_is_a_warning(messages, logged_warnings, monkeypatch, caplog):
    caplog.set_level("INFO", logger="lockstep")
    monkeypatch.setattr("uvicorn.Server.run", lambda *_: None)
    serve(Echo, nullcontext, "run", "0.0.0.0", 0, None)
    (warning,) = logged_warnings
    assert warning.startswith("0.0.0.0 is reached from other machines")
    assert "--auth" in warning
    logged_warnings.clear()
    serve(Echo, nullcontext, "run", "127.0.0.1", 0, None)
    assert logged_warnings == []
    assert any(line.startswith("page: http://127.0.0.1:") for line in messages)


SERVED = """
from contextlib import nullcontext
from commands.demo.main import serve
from tests.commands.demo.test_server import Echo
import logging
logging.basicConfig(level="INFO")
serve(Echo, nullcontext, "run", "127.0.0.1", 0, None)
"""


def answers_get(port):
    with socket.socket() as client:
        if client.connect_ex(("127.0.0.1", port)) != 0:
            return False
        client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        return client.recv(12) == b"HTTP/1.1 200"


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_with_code_0():
    process = subprocess.Popen(
        [sys.executable, "-c", SERVED], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "page: http" in line)
        port = int(line.split("127.0.0.1:")[1].split(",")[0])
        wait_until(lambda: answers_get(port))
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
