"""Who asks over HTTP gets an answer, and nobody can hold the server up."""

import os
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress

import pytest

from callbacks.metrics_endpoint import MetricsEndpoint
from callbacks.metrics_server import MetricsServer
from tests.metrics import a_run, get
from tests.slurm.cluster import free_ports


def test_what_lies_where(serve):
    port = serve(health=lambda: (False, "training, step 7, 900.0 s since it last got on"))
    status, kind, text = get(port, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain") and "# HELP lockstep_processes " in text
    status, kind, text = get(port, "/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text") and text.endswith("# EOF\n")
    assert get(port, "/healthz?verbose")[::2] == (503, "training, step 7, 900.0 s since it last got on\n")
    assert get(port, "/")[0] == get(port, "/../etc/passwd")[0] == 404
    head = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", method="HEAD")
    with urllib.request.urlopen(head, timeout=20) as answer:
        assert answer.status == 200 and int(answer.headers["Content-Length"]) > 0 and answer.read() == b""
        assert "Python" not in answer.headers["Server"]
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", data=b"", timeout=20)


def test_an_error_is_told_to_whoever_asks(serve):
    def broken():
        raise RuntimeError("the device is gone")

    port = serve(health=broken)
    assert get(port, "/healthz")[::2] == (500, "RuntimeError: the device is gone\n")
    assert get(port, "/metrics")[0] == 200


def test_a_client_that_says_nothing_keeps_nobody_waiting(serve):
    port = serve()
    with socket.create_connection(("127.0.0.1", port)):
        assert get(port, "/healthz")[0] == 200


def test_many_clients_at_a_time_are_sent_away(serve, monkeypatch):
    monkeypatch.setattr("callbacks.metrics_server._CONNECTIONS", 3)
    port = serve()
    with ExitStack() as open_ones:
        idle = [open_ones.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(3)]
        late = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), 20))
        assert late.recv(1) == b"", "closed without an answer, and without a thread"
        idle[0].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert idle[0].recv(100).startswith(b"HTTP/1.0 200 ")
        while idle[0].recv(100):
            pass
        assert get(port, "/healthz")[0] == 200, "there is room again"


def test_a_client_that_takes_its_time_has_an_end(serve, monkeypatch):
    """Each byte is well within the time that a socket waits for one."""
    monkeypatch.setattr("callbacks.metrics_server._PATIENCE", 0.5)
    with socket.create_connection(("127.0.0.1", serve()), 20) as slow:
        slow.settimeout(0.05)
        slow.sendall(b"GET /healthz HTTP/1.0\r\nX: ")
        sent = 0
        while sent < 400:  # 20 s
            with suppress(TimeoutError):
                assert slow.recv(1) == b""
                break
            try:
                slow.sendall(b"x")
            except OSError:
                break
            sent += 1
        assert sent < 400


def test_a_closed_server_leaves_its_port(serve):
    (port,) = free_ports(1)
    for _ in range(2):
        server = MetricsServer("127.0.0.1", port, a_run(), lambda: (True, "well"))
        assert get(port, "/healthz")[0] == 200
        server.close()
    with pytest.raises(OSError):
        get(port, "/healthz")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_hold_the_port(serve):
    """As a loader's worker that has outlived its killed parent."""
    (port,) = free_ports(1)
    server = MetricsServer("127.0.0.1", port, a_run(), lambda: (True, "well"))
    waits, ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(waits, 1)
        os._exit(0)
    try:
        server.close()
        MetricsServer("127.0.0.1", port, a_run(), lambda: (True, "well")).close()
    finally:
        os.write(ends, b".")
        os.waitpid(child, 0)
        os.close(waits)
        os.close(ends)


def test_localhost_is_not_the_network():
    (port,) = free_ports(1)
    server = MetricsServer(MetricsEndpoint().host, port, a_run(), lambda: (True, "well"))
    try:
        with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=5):
            pass
    finally:
        server.close()
