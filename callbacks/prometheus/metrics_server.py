"""Serves the Prometheus endpoint over HTTP: prometheus_client's WSGI app with a health check beside it."""

import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

log = logging.getLogger("lockstep")


class MetricsServer:
    """`GET /metrics` for Prometheus, and `GET /healthz` for probes with status 200 or 503.

    Args:
        host: address to listen on; 0.0.0.0 listens on all IPv4 addresses.
        port: port to listen on.
        collector: returns the metrics of each scrape, in the scrape's thread.
        health: returns whether the process is healthy, and a line that describes its state.

    Raises:
        OSError: the address is not available.
    """

    def __init__(self, host: str, port: int, collector: Collector, health: Callable[[], tuple[bool, str]]) -> None:
        self._health = health
        # With auto_describe the registry would collect once here, when the run has no metrics yet.
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        self._metrics_app = make_wsgi_app(registry)
        self._server = _Server(host, port)
        self._server.set_app(self._app)
        # The poll interval bounds the time that `close` takes.
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="lockstep-metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening. A response that is being written is finished by its own thread."""
        # First the loop, then the socket: a closed socket would raise in the loop.
        self._server.shutdown()
        self._server.server_close()

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        try:
            if path == "/metrics":
                return self._metrics_app(environ, start_response)
            status, text = self._healthz() if path == "/healthz" else ("404 Not Found", "try /metrics or /healthz")
        except Exception as error:
            log.debug("metrics: %s", path, exc_info=True)
            status, text = "500 Internal Server Error", f"{type(error).__name__}: {error}"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    def _healthz(self) -> tuple[str, str]:
        healthy, text = self._health()
        return "200 OK" if healthy else "503 Service Unavailable", text


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds to wait for a client; a silent client only occupies its own thread

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because scrapes are periodic."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    # On Windows the option would let two programs listen on one port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        super().__init__((host, port), _Handler)
        _SERVERS.add(self)

    def server_bind(self) -> None:
        # HTTPServer.server_bind looks the host's name up, which may block without a name server.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("metrics for %s", client_address, exc_info=True)  # usually a client that has disconnected


_SERVERS: WeakSet[_Server] = WeakSet()


def _close_inherited_sockets() -> None:
    """Close the servers' sockets in a forked child.

    A loader worker that outlives a killed process would keep the port, and the next start could not listen on it.
    """
    for server in list(_SERVERS):
        server.socket.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_sockets)
