"""Serves HTTP in a thread of this process: a given server, or the files of a folder."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def running(server: HTTPServer) -> Iterator[str]:
    """Run a server in a thread; yield its address."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


@contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, without ranges of bytes; yield the address."""
    with running(ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder)))) as address:
        yield address
