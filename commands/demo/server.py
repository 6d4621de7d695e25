"""Serves the page: its files, uploads, searches, and answers, which are streamed as lines of JSON."""

import html
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from commands.answers.answer_blocks import AnswerBlock, block_as_json, to_plain_value
from commands.answers.answer_service import MEGABYTE, AnswerService, Example, InputField, UploadedFile, UserInputError
from commands.demo.file_store import FileStore, shorten_name
from commands.demo.model_queue import ModelQueue, QueueFullError
from commands.demo.question_json import parse_user_question
from engine.io.html_page import PAGES as SHARED_PAGES
from engine.io.html_page import join_files

log = logging.getLogger("lockstep")

PAGES = Path(__file__).with_name("pages")
SCRIPTS = ("fields", "file_field", "drawing", "camera", "sketch", "blocks", "chart", "page")

_MAX_QUESTION = MEGABYTE
_MAX_SEARCH_LENGTH = 200

_HEADERS = {
    # The browser refuses everything that does not come from this server.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class DemoServer:
    """Serves one model.

    Args:
        service: answer service of the model.
        queue: lets visitors use the model one after another.
        title: name of the run.
    """

    def __init__(self, service: AnswerService, queue: ModelQueue, title: str) -> None:
        self._service, self._queue, self._title = service, queue, title
        self._fields = {field.name: field for field in service.fields}
        self._files = FileStore()
        self._examples = [self._example(example) for example in service.examples()]

    def application(self, middleware: list[Middleware]) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/", self._page),
            Route("/demo.js", self._script),
            Route("/demo.css", self._style),
            Route("/upload", self._upload, methods=["POST"]),
            Route("/search", self._search),
            Route("/ask", self._ask, methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=middleware)

    def _example(self, example: Example) -> dict[str, Any]:
        values = {
            name: [{"file": self._files.keep(file), "name": file.name} for file in value]
            if self._fields[name].kind in ("picture", "file")
            else value
            for name, value in example.values.items()
        }
        return {"label": example.label, "picture": example.picture, "values": values}

    async def _page(self, request: Request) -> Response:
        content = {
            "title": self._title,
            "about": self._service.about,
            "task": self._service.task,
            "runs": list(self._service.runs),
            "is_conversation": self._service.is_conversation,
            "fields": to_plain_value(list(self._service.fields)),
            "examples": self._examples,
        }
        # Without "<", no text of a run can end the script element that holds the data.
        data = json.dumps(content, ensure_ascii=False).replace("<", "\\u003c")
        text = Template((PAGES / "demo.html").read_text(encoding="utf-8"))
        return _response(text.substitute(title=html.escape(self._title), data=data), "text/html")

    async def _script(self, request: Request) -> Response:
        return _response(
            join_files([SHARED_PAGES / "report.js", *(PAGES / f"{name}.js" for name in SCRIPTS)]), "text/javascript"
        )

    async def _style(self, request: Request) -> Response:
        return _response(join_files([SHARED_PAGES / "report.css", PAGES / "demo.css"]), "text/css")

    async def _search(self, request: Request) -> Response:
        field = self._fields.get(request.query_params.get("field", ""))
        if field is None:
            return JSONResponse({"error": "there is no such field"}, 400, _HEADERS)
        text = request.query_params.get("text", "")[:_MAX_SEARCH_LENGTH]
        choices = await self._queue.call(lambda: list(self._service.search(field, text)))
        return JSONResponse([choice._asdict() for choice in choices], headers=_HEADERS)

    async def _upload(self, request: Request) -> Response:
        field, file_name = self._fields.get(request.query_params.get("field", "")), request.query_params.get("name", "")
        if field is None or field.kind not in ("picture", "file"):
            return _stream_lines(_refused("there is no such field"))
        name = shorten_name(file_name)
        if field.suffixes and not name.lower().endswith(field.suffixes):
            return _stream_lines(_refused(f"{name}: expected a file that ends in {', '.join(field.suffixes)}"))
        content = await _body(request, field.max_bytes)
        if content is None:
            limit = f"{field.max_bytes / MEGABYTE:.0f} MB"
            return _stream_lines(_refused(f"{name}: the file is larger than {limit}, the most that is accepted"))
        if not content:
            return _stream_lines(_refused(f"{name}: the file is empty"))
        file = UploadedFile(name, content)
        return _stream_lines(self._accepted(field, file))

    async def _accepted(self, field: InputField, file: UploadedFile) -> AsyncIterator[Mapping[str, Any]]:
        async for line in self._guarded(lambda: self._service.accept(field, file)):
            yield line
            if "error" in line:
                return
        # Kept only now: a question can name no file that the family has refused.
        yield {"file": self._files.add(file), "name": file.name}

    async def _ask(self, request: Request) -> Response:
        body = await _body(request, _MAX_QUESTION)
        if body is None:
            return _stream_lines(_refused("the question is too long"))
        try:
            question = parse_user_question(body, self._fields, self._files.get)
        except UserInputError as error:
            return _stream_lines(_refused(str(error)))
        return _stream_lines(self._guarded(lambda: self._service.answer(question)))

    async def _guarded(self, start: Callable[[], Iterator[AnswerBlock]]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the blocks of an answer; of an error its message."""
        ahead = self._queue.ahead
        if ahead:
            yield {"waiting": ahead}
        try:
            async for block in self._queue.stream(start):
                yield block_as_json(block)
        except (UserInputError, QueueFullError) as error:
            yield {"error": str(error)}
        except Exception as error:
            log.error("error: the demo could not answer", exc_info=error)
            yield {"error": "the model could not answer; the console of the server has the reason"}


async def _refused(message: str) -> AsyncIterator[Mapping[str, Any]]:
    yield {"error": message}


async def _body(request: Request, max_bytes: int) -> bytes | None:
    """Return the body of a request; None if it is larger than allowed, of which no more is read."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            return None
        parts.append(part)
    return b"".join(parts)


def _stream_lines(items: AsyncIterator[Mapping[str, Any]]) -> StreamingResponse:
    async def lines() -> AsyncIterator[bytes]:
        async for item in items:
            # The JSON of a question may have lone surrogates, which an answer may repeat and UTF-8 cannot encode.
            yield json.dumps(item, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=_HEADERS)


def _response(text: str, kind: str) -> Response:
    return Response(text, media_type=kind, headers=_HEADERS)
