"""What Prometheus and probes are told, and that nobody is told anything unless it was asked for."""

import logging
import math
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback
from prometheus_client.parser import text_string_to_metric_families

from callbacks.metrics_endpoint import MetricsEndpoint
from callbacks.metrics_server import MetricsServer
from callbacks.run_metrics import COUNTERS, GAUGES, PREFIX, RunMetrics, metric_name
from callbacks.watchdog import PREPARING
from engine.events import EVENTS, event
from tests.conftest import TINY
from tests.slurm.cluster import free_ports

log = logging.getLogger("lockstep")


def get(port, path, **headers):
    """(status, type, text)"""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def parsed(text):
    """{(name, event or phase): value}, and the labels of each."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    detail = [sample.labels.get("event", sample.labels.get("phase")) for sample in samples]
    return {(sample.name, which): sample for sample, which in zip(samples, detail, strict=True)}


def a_watch(phase="training", still=0.0, patience=300.0):
    return SimpleNamespace(phase=phase, still=still, patience=patience, step=7)


def a_run(device="cpu"):
    """The metrics of a process of a training that nobody does."""
    trainer = SimpleNamespace(
        default_root_dir="runs/a", global_rank=1, world_size=2, precision="bf16-mixed", global_step=7, current_epoch=2,
        strategy=SimpleNamespace(root_device=torch.device(device)), state=SimpleNamespace(fn=None),
        train_dataloader=SimpleNamespace(waited=1.5), estimated_stepping_batches=40,
    )  # fmt: skip
    return RunMetrics(trainer, a_watch(), lambda: 600.0)


@pytest.fixture
def serve():
    """Serves a run's metrics: ``serve(metrics, health) -> port``."""
    servers = []

    def start(metrics=None, health=lambda: (True, "well")):
        (port,) = free_ports(1)
        servers.append(MetricsServer("127.0.0.1", port, metrics or a_run(), health))
        return port

    yield start
    for server in servers:
        server.close()


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "figure, name",
    [
        ("train/loss", "lockstep_train_loss"),
        ("val/hr@10", "lockstep_val_hr_at_10"),
        ("train/memory_gib", "lockstep_train_memory_gib"),
        ("train/gradient_norm/über-all", "lockstep_train_gradient_norm__ber_all"),
    ],
)
def test_a_figure_has_one_name(figure, name):
    assert metric_name(figure) == name


def test_every_metric_is_named_and_described(monkeypatch):
    """Those of a GPU too, whose memory is a stand-in's here."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 40)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 60)
    run = a_run("cuda:1")
    run.begin_training()
    saved = event("checkpoint_saved", path="last.ckpt", seconds=0.5, bytes=1000)
    run.events.handle(logging.LogRecord("lockstep", logging.INFO, "", 0, "saved", (), None))
    run.events.handle(log.makeRecord("lockstep", logging.INFO, "", 0, "saved", (), None, extra=saved))
    families = {family.name: family for family in run.collect()}
    assert set(families) == {PREFIX + name.removesuffix("_total") for name in ("run", *GAUGES, *COUNTERS)}
    assert all(family.documentation for family in families.values())
    values = {family.name: family.samples[0].value for family in families.values()}
    assert values["lockstep_gpu_memory_used_bytes"] == 70 and values["lockstep_gpu_memory_size_bytes"] == 100
    assert (values["lockstep_gpu_memory_allocated_bytes"], values["lockstep_gpu_memory_reserved_bytes"]) == (40, 60)
    assert (values["lockstep_checkpoint_size_bytes"], values["lockstep_checkpoint_save_seconds"]) == (1000, 0.5)
    assert abs(values["lockstep_checkpoint_timestamp_seconds"] - time.time()) < 60
    assert values["lockstep_planned_steps"] == 40 and values["lockstep_data_wait_seconds"] == 1.5
    for family in families.values():
        for sample in family.samples:
            assert sample.labels["run"] == "a" and sample.labels["process"] == "1", family.name
    events = {sample.labels["event"]: sample.value for sample in families["lockstep_events"].samples}
    assert events == dict.fromkeys(EVENTS, 0) | {"checkpoint_saved": 1}


def test_a_figure_never_stands_for_what_the_process_says_of_itself(serve):
    run = a_run()
    run.begin_training()
    run.figures.log_metrics({"step": 1000.0, "run_info": 5.0, "epoch": 3.0, "train/loss": math.nan, "val/a": math.inf})
    found = parsed(get(serve(run), "/metrics")[2])
    assert found["lockstep_step", None].value == 7 and found["lockstep_epoch", None].value == 2
    assert found["lockstep_run_info", None].value == 1
    assert math.isnan(found["lockstep_train_loss", None].value) and found["lockstep_val_a", None].value == math.inf


def test_what_a_device_says_after_an_error_takes_no_other_metric_away(monkeypatch, serve):
    def broken(device):
        raise torch.AcceleratorError("CUDA error: device-side assert triggered", 710)

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    status, _, text = get(serve(a_run("cuda:0")), "/metrics")
    assert status == 200 and "lockstep_events_total" in text and "lockstep_gpu_memory" not in text


def test_steps_are_those_of_a_training(serve):
    """An evaluation has none, nor a training that has not begun: both would look like one that begins anew."""
    run = a_run()
    of_a_training = {"step", "epoch", "planned_steps", "time_left_seconds", "training_start_timestamp_seconds"}
    run.trainer.global_step = 20  # of the checkpoint
    port = serve(run)
    found = parsed(get(port, "/metrics")[2])
    assert not {PREFIX + name for name in of_a_training} & {name for name, _ in found}
    assert found["lockstep_processes", None].value == 2 and found["lockstep_steps_total", None].value == 0
    run.begin_training()
    found = parsed(get(port, "/metrics")[2])
    assert (found["lockstep_step", None].value, found["lockstep_steps_total", None].value) == (20, 0)
    assert found["lockstep_time_left_seconds", None].value == math.inf
    run.trainer.global_step = 30
    found = parsed(get(port, "/metrics")[2])
    assert (found["lockstep_step", None].value, found["lockstep_steps_total", None].value) == (30, 10)
    assert 0 < found["lockstep_time_left_seconds", None].value < 60  # as long again as the last lines took
    run.trainer.global_step = 40
    assert parsed(get(port, "/metrics")[2])["lockstep_time_left_seconds", None].value == 0


def test_the_number_of_planned_steps_may_be_unknown():
    run = a_run()
    run.trainer.estimated_stepping_batches = -1
    run.begin_training()
    assert not {"lockstep_planned_steps", "lockstep_time_left_seconds"} & {family.name for family in run.collect()}


# -- the server ------------------------------------------------------------------------------------------------------


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


# -- health ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "phase, still, patience, well",
    [
        (PREPARING, 1e5, math.inf, True),  # a download
        ("start-up", 1e5, 600, True),  # the watchdog's
        ("first step", 1e5, 600, True),
        ("training", 599, 300, True),
        ("training", 601, 300, False),
        ("training", 601, 3600, False),
        ("validation", 601, 300, False),
        ("saving", 3599, 3600, True),  # by watchdog.start_timeout
        ("saving", 3601, 3600, False),
        ("saving", 601, 60, False),
        ("saving", 601, math.inf, False),  # no watchdog
        ("end of validation", 3599, 3600, True),
    ],
)
def test_health(phase, still, patience, well):
    endpoint = MetricsEndpoint(port=8900)
    endpoint._watch = a_watch(phase, still, patience)
    assert endpoint.health()[0] is well
    assert endpoint.health()[1].startswith(f"{phase}, step 7, {still:.1f} s")


# -- a run -----------------------------------------------------------------------------------------------------------


class AskAt(Callback):
    """Asks for metrics and health while the training is at a step."""

    def __init__(self, step, port):
        self.step, self.port, self.answers = step, port, {}

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            self.answers = {path: get(self.port, path) for path in ("/metrics", "/healthz")}


@pytest.fixture
def asked(lockstep, monkeypatch):
    """Runs a training with an endpoint that is asked at a step: ``asked(step, *options) -> (run, samples, health)``."""
    from commands import cli

    add = cli.add_own_callbacks

    def run(step, *options):
        (port,) = free_ports(1)
        asking = AskAt(step, port)

        def add_asking(trainer, *settings):
            add(trainer, *settings)
            trainer.callbacks.append(asking)

        monkeypatch.setattr(cli, "add_own_callbacks", add_asking)
        done = lockstep("fit", *TINY, "--metrics_endpoint.port", str(port), *options, name="a")
        with pytest.raises(OSError):
            get(port, "/healthz")
        return done, parsed(asking.answers["/metrics"][2]), asking.answers["/healthz"]

    return run


def test_a_training_says_what_its_files_say(asked):
    # An epoch has 13 steps.
    run, found, health = asked(15, "--trainer.max_steps", "16")
    value = {name: sample.value for (name, detail), sample in found.items() if detail is None}
    assert health[0] == 200 and health[2].startswith("training, step 15, ")
    assert value["lockstep_train_loss"] == run.series("train/loss")[15]
    assert value["lockstep_val_ndcg_at_10"] == run.series("val/ndcg@10")[13]
    assert (value["lockstep_step"], value["lockstep_steps_total"], value["lockstep_epoch"]) == (15, 15, 1)
    assert (value["lockstep_planned_steps"], value["lockstep_processes"]) == (16, 1)
    assert value["lockstep_checkpoint_size_bytes"] > 1000 and value["lockstep_restarts"] == 0
    assert value["lockstep_resident_memory_bytes"] > 1e8 and value["lockstep_standstill_limit_seconds"] == 600
    assert found["lockstep_phase", "training"].value == 1
    assert found["lockstep_events_total", "run_started"].value == 1
    assert found["lockstep_events_total", "run_failed"].value == 0
    assert found["lockstep_run_info", None].labels["command"] == "fit"
    assert {(sample.labels["run"], sample.labels["process"]) for sample in found.values()} == {("a", "0")}

    # A resumed start counts its own steps; what was said before the trainer was made is among its events.
    for path in (run.folder / "checkpoints").glob("last.ckpt"):
        path.write_bytes(path.read_bytes()[:-9])
    _, found, _ = asked(15, "--trainer.max_steps", "16", "--ckpt_path", "last")
    assert (found["lockstep_step", None].value, found["lockstep_steps_total", None].value) == (15, 2)
    assert found["lockstep_events_total", "checkpoint_passed_over"].value == 1
    assert found["lockstep_events_total", "run_resumed"].value == 1


def test_nobody_listens_unless_told_to(parser, lockstep, monkeypatch):
    assert parser.get_defaults().metrics_endpoint.port is None
    assert parser.get_defaults().metrics_endpoint.host == "127.0.0.1"
    monkeypatch.setitem(sys.modules, "prometheus_client", None)  # it is not even needed
    lockstep("fit", *TINY, "--trainer.max_steps", "1", name="a")
    assert "lockstep-metrics" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"port": 0}, "metrics_endpoint.port is 1 to 65535, or null for no endpoint; got 0"),
        ({"port": 70000}, "metrics_endpoint.port is 1 to 65535"),
        ({"stalled_after": 0}, "metrics_endpoint.stalled_after is a number of seconds above 0; got 0"),
    ],
)
def test_wrong_settings(settings, said):
    with pytest.raises(ValueError, match=said):
        MetricsEndpoint(**settings)


def test_what_cannot_be_listened_on(lockstep, monkeypatch):
    monkeypatch.setattr("callbacks.metrics_endpoint._PATIENCE", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(ValueError, match=f"process 0 cannot listen on 127.0.0.1, port {port} .*in use"):
            lockstep("fit", *TINY, "--metrics_endpoint.port", port, name="a")
    with pytest.raises(ValueError, match="process 0 cannot listen on 192.0.2.1, port 8900 "):
        lockstep("fit", *TINY, "--metrics_endpoint.port", "8900", "--metrics_endpoint.host", "192.0.2.1", name="a")
    monkeypatch.delitem(sys.modules, "callbacks.metrics_server")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ValueError, match=r"prometheus_client is not installed: pip install -e '.\[monitoring\]'"):
        lockstep("fit", *TINY, "--metrics_endpoint.port", "8900", name="a")
