"""Answers Prometheus and probes over HTTP, from threads of its own."""

import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from weakref import WeakSet

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

log = logging.getLogger("lockstep")

_PATIENCE = 10.0
"""Seconds that a client has, from its connection to the end of the answer."""

_CONNECTIONS = 16
"""As many at a time, each in a thread; who comes then is sent away. Prometheus and a pod's probes take a few."""

_TEXT = "text/plain; charset=utf-8"


class MetricsServer:
    """`GET /metrics` for Prometheus, `GET /healthz` for probes: 200 while all is well, 503 otherwise.

    Args:
        host: the address to listen on; 0.0.0.0: on all of IPv4.
        port: the port there.
        collector: asked for the metrics with every scrape, in the thread of that scrape.
        health: whether all is well, and what to say about it.

    Raises:
        OSError: nobody can listen there.
    """

    def __init__(self, host: str, port: int, collector: Collector, health: Callable[[], tuple[bool, str]]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(collector)
        self.health = health
        self._http = _Server(host, port, self)
        _LISTENING.add(self._http)
        # It looks ten times a second whether it should end.
        threading.Thread(target=self._http.serve_forever, args=(0.1,), name="lockstep-metrics", daemon=True).start()

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, type and content of what lies under a path."""
        if path == "/metrics":
            encode, kind = choose_encoder(accept)
            return 200, kind, encode(self.registry)
        if path == "/healthz":
            well, text = self.health()
            return 200 if well else 503, _TEXT, f"{text}\n".encode()
        return 404, _TEXT, b"/metrics and /healthz are here\n"

    def close(self) -> None:
        """Nobody listens there any more; a thread that is answering finishes by itself."""
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    # On Windows it would let two programs listen on one port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, host: str, port: int, metrics: MetricsServer) -> None:
        self.metrics = metrics
        self._deadlines: dict[socket.socket, float] = {}
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's asks the name service who this machine is, and waits

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self._deadlines) < _CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        self._deadlines[request] = time.monotonic() + _PATIENCE
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        # A socket's own timeout begins anew with every byte of a client that takes its time.
        now = time.monotonic()
        for request, deadline in list(self._deadlines.items()):
            if deadline < now:
                with suppress(OSError):  # it has come to its end meanwhile
                    request.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("metrics for %s", client_address, exc_info=True)  # mostly a client that has gone


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE
    server_version, sys_version = "Lockstep", ""  # nobody need know which Python

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            status, kind, content = self.server.metrics.answer(path, self.headers.get("Accept", ""))
        except Exception as error:
            log.debug("metrics: %s", path, exc_info=True)
            status, kind, content = 500, _TEXT, f"{type(error).__name__}: {error}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no news."""


_LISTENING: WeakSet[_Server] = WeakSet()


def _leave_the_port_to_the_parent() -> None:
    """A loader's worker that outlives a killed process would otherwise hold its port, and the next start be refused."""
    for server in list(_LISTENING):
        server.socket.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_the_port_to_the_parent)
