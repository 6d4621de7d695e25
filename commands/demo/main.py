"""Runs `python train.py demo`: serves the page until Ctrl-C."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import psutil
import uvicorn
from starlette.applications import Starlette

from commands.answers.answer_service import AnswerService
from commands.demo.access_control import Login, guard_middleware, is_loopback, listen
from commands.demo.model_queue import ModelQueue
from commands.demo.server import DemoServer

log = logging.getLogger("lockstep")

_SECONDS_TO_END = 2


def serve(
    create: Callable[[], AnswerService],
    context: Callable[[], AbstractContextManager[None]],
    title: str,
    host: str,
    port: int,
    login: Login | None,
) -> None:
    """Serve the page of a model until Ctrl-C.

    Args:
        create: loads the model.
        context: returns the context in which the model computes.
        title: name of the run, or of the runs.
        host: address to listen on.
        port: port to listen on; 0 is any free port.
        login: user and password that visitors need.

    Raises:
        ValueError: the address is not free.
    """
    with listen(host, port) as listener:  # before the model is loaded, which takes longer
        server = uvicorn_server(create_application(create(), context, title, host, login)[0])
        number = listener.getsockname()[1]
        if not is_loopback(host):
            visitors = f"who knows the password of {login.user}" if login else "who reaches it; --auth adds a password"
            log.warning("%s is reached from other machines, and answers everybody %s", host, visitors)
            if login is not None:
                log.warning("the password travels unencrypted; put the page behind a proxy with TLS")
        seconds = time.time() - psutil.Process().create_time()
        shown = f"[{host}]" if ":" in host else host
        log.info("page: http://%s:%d, after %.1f s. Ctrl-C ends it", shown, number, seconds)
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again once it has ended
            server.run([listener])
        log.info("the page has ended")


def create_application(
    service: AnswerService,
    context: Callable[[], AbstractContextManager[None]],
    title: str,
    host: str,
    login: Login | None,
) -> tuple[Starlette, ModelQueue]:
    """Return the ASGI application of a page, and the queue of its model."""
    queue = ModelQueue(context)
    return DemoServer(service, queue, title).application(guard_middleware(host, login)), queue


def uvicorn_server(application: Starlette) -> uvicorn.Server:
    """Return a server without access log, websockets and configuration of logging."""
    config = uvicorn.Config(
        application,
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="off",
        # By default uvicorn takes the implementations that happen to be installed.
        http="h11",
        loop="asyncio",
        server_header=False,
        limit_concurrency=256,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    return uvicorn.Server(config)
