"""A real Prometheus with deploy/monitoring scrapes a run on two ranks and alerts when it stalls."""

import socket
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from callbacks.prometheus.metrics import GAUGES, PREFIX
from engine.telemetry.log_events import EVENTS
from tests.conftest import TINY
from tests.support.families.tiny_temporal import TINY_TEMPORAL
from tests.support.faults.step_faults import fault
from tests.support.outputs.prometheus_server import Prometheus, alerts, metrics_in, missing, panel_queries
from tests.support.ports import free_ports

ON_A_GPU = {PREFIX + name for name in GAUGES if name.startswith("gpu_")}


def two_ports():
    """The first of two neighbours that are free."""
    for _ in range(50):
        (port,) = free_ports(1)
        with socket.socket() as neighbour, suppress(OSError, OverflowError):
            neighbour.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports side by side")


def health(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
@pytest.mark.timeout(420)  # its waits are 300 s together
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_prometheus_alerts_when_a_run_stalls(team, tmp_path):
    port = two_ports()
    endpoint = ["--prometheus.port", str(port), "--prometheus.stalled_after", "4"]
    metrics = ["--stragglers.every_n_steps", "1", "--throughput.peak_tflops", "0.001"]
    # The ninth step comes after a validation and a checkpoint.
    run = team("fit", *TINY_TEMPORAL, *endpoint, *metrics, *fault("HangAt", step=9, process=1), name="a")
    targets = [f"127.0.0.1:{port + rank}" for rank in range(2)]
    with Prometheus(tmp_path / "prometheus", targets) as prometheus:
        prometheus.wait_until(lambda: list(prometheus.value("up").values()) == [1, 1], "both processes answer", 90)
        stands = "min(lockstep_stalled_seconds) > 2 and min(lockstep_step) == 9 and count(lockstep_step) == 2"
        prometheus.wait_until(lambda: prometheus.value(stands), "both stand where they were to", 90)
        fires = prometheus.wait_until(lambda: prometheus.firing().get("LockstepNoProgress"), "the alert fires")
        assert fires["annotations"]["summary"].startswith("a: rank ")
        assert fires["labels"]["run"] == "a"
        assert fires["labels"]["severity"] == "critical"

        # Rank 0 has the checkpoint; both ranks count their steps and are at the same step.
        assert set(prometheus.value("lockstep_step").values()) == {9}
        assert list(prometheus.value("count(lockstep_step)").values()) == [2]
        assert list(prometheus.value("count(lockstep_checkpoint_size_bytes > 1000)").values()) == [1]
        saved = prometheus.value('lockstep_events_total{event="checkpoint_saved", rank="0"}')
        assert list(saved.values())[0] >= 1
        loss = run.series("train/loss")[9]
        assert list(prometheus.value("lockstep_train_loss").values()) == [pytest.approx(loss)]
        assert set(prometheus.value("count by (event) (lockstep_events_total)").values()) == {2}
        assert len(prometheus.value("count by (event) (lockstep_events_total)")) == len(EVENTS)

        # Nothing is asked for that a run does not export.
        exported = {name for name in prometheus.ask("label/__name__/values") if name.startswith(PREFIX)}
        assert not exported & ON_A_GPU
        for rule in alerts():
            assert metrics_in(rule["expr"]) <= exported | ON_A_GPU, rule["alert"]
            assert metrics_in(rule["expr"])
        empty = set()
        for title, query in panel_queries():
            assert metrics_in(query) <= exported | ON_A_GPU, title
            if not prometheus.value(query):
                empty.add(title)
        assert empty <= {"GPU memory", "Time left", "Events", "Starts"}, "the others show something"

        codes = prometheus.wait_until(
            lambda: [answer for answer in map(health, (port, port + 1)) if answer[0] == 503], "/healthz notices"
        )
        assert "training, step 9" in codes[0][1]
        assert "(limit 4 s)" in codes[0][1]
    assert run.end(0, of=[]) == [None, None], "the watchdog has more patience"


@pytest.mark.slow
def test_a_port_in_use_on_one_rank_is_refused_by_all(team):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] - 1  # rank 1 has the next port
        run = team("fit", *TINY, "--prometheus.port", str(port), name="a", environment={"LOCKSTEP_DEBUG": ""})
        assert run.end(90) == [2, 2], run.output
    assert run.output.count(f"error: prometheus: rank 1 cannot listen on 127.0.0.1, port {port + 1} ") == 1
    assert "Traceback" not in run.output
    assert not run.folder.exists(), "nothing is left of a new run that was refused"
