"""Tests the HTTP server of the Prometheus endpoint."""

import os
import socket
import urllib.error
import urllib.request

import pytest

from callbacks.prometheus.exporter import PrometheusExporter
from callbacks.prometheus.metrics_server import MetricsServer
from tests.support.outputs.metrics_endpoint import a_run, get
from tests.support.ports import free_ports


def test_each_path_has_its_status_type_and_text(serve):
    port = serve(health=lambda: (False, "training, step 7, 900.0 s without progress"))
    status, kind, text = get(port, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "# HELP lockstep_world_size " in text
    status, kind, text = get(port, "/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert get(port, "/healthz?verbose")[::2] == (503, "training, step 7, 900.0 s without progress\n")
    assert get(port, "/")[0] == get(port, "/../etc/passwd")[0] == 404
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", data=b"", timeout=20)


def test_an_error_is_returned_with_status_500(serve):
    def broken():
        raise RuntimeError("the device is gone")

    port = serve(health=broken)
    assert get(port, "/healthz")[::2] == (500, "RuntimeError: the device is gone\n")
    assert get(port, "/metrics")[0] == 200


def test_a_silent_client_blocks_no_other_and_is_disconnected(serve, monkeypatch):
    monkeypatch.setattr("callbacks.prometheus.metrics_server._Handler.timeout", 0.5)
    port = serve()
    with socket.create_connection(("127.0.0.1", port), 20) as silent:
        assert get(port, "/healthz")[0] == 200
        assert silent.recv(1) == b""


def test_a_closed_server_leaves_its_port(serve):
    (port,) = free_ports(1)
    for _ in range(2):
        server = MetricsServer("127.0.0.1", port, a_run(), lambda: (True, "healthy"))
        assert get(port, "/healthz")[0] == 200
        server.close()
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(port, "/healthz")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_hold_the_port(serve):
    """Such as a loader worker that outlives its killed parent."""
    (port,) = free_ports(1)
    server = MetricsServer("127.0.0.1", port, a_run(), lambda: (True, "healthy"))
    (waits, ends), (is_ready, gets_ready) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(gets_ready, b".")  # Python has run the functions that are due after a fork.
        os.read(waits, 1)
        os._exit(0)
    try:
        os.read(is_ready, 1)
        server.close()
        with pytest.raises(urllib.error.URLError, match="refused"):
            get(port, "/healthz")
        again = MetricsServer("127.0.0.1", port, a_run(), lambda: (True, "healthy"))
        assert get(port, "/healthz")[0] == 200
        again.close()
    finally:
        os.write(ends, b".")
        os.waitpid(child, 0)
        for pipe in (waits, ends, is_ready, gets_ready):
            os.close(pipe)


def test_localhost_is_not_the_network():
    (port,) = free_ports(1)
    server = MetricsServer(PrometheusExporter().host, port, a_run(), lambda: (True, "healthy"))
    try:
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), timeout=5):
            pass
    finally:
        server.close()
