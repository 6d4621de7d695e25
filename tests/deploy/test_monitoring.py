"""Checks deploy/monitoring: promtool's tests, the dashboard's queries, and that the guide lists all of it."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from callbacks.prometheus.metrics import COUNTERS, GAUGES, PREFIX
from engine.telemetry.log_events import EVENTS, RANK_LOCAL_EVENTS
from tests.conftest import REPOSITORY
from tests.deploy.manifests import all_pods
from tests.support.outputs.prometheus_server import MONITORING, alerts, dashboard, metrics_in, missing, panel_queries

NAMES = [alert["alert"] for alert in alerts()]
GUIDE = (REPOSITORY / "docs/monitoring.md").read_text(encoding="utf-8")


def promtool(*arguments, folder=MONITORING):
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_promtool_accepts_the_rules_and_the_configs(tmp_path):
    folder = shutil.copytree(MONITORING, tmp_path / "monitoring")
    # Debian's Prometheus is built without Kubernetes: so the discovery of pods is skipped here.
    settings = yaml.safe_load((folder / "prometheus-kubernetes.yml").read_text(encoding="utf-8"))
    (job,) = settings["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    (folder / "without_pods.yml").write_text(yaml.safe_dump(settings))
    for file in ("prometheus.yml", "without_pods.yml"):
        assert promtool("check", "config", file, folder=folder)[0] == 0
    code, output = promtool("test", "rules", "alerts_test.yml", folder=folder)
    assert code == 0, output
    assert f"{len(NAMES)} rules found" in promtool("check", "rules", "alerts.yml")[1]

    # The test of the rules would notice if one were another.
    rules = folder / "alerts.yml"
    rules.write_text(rules.read_text(encoding="utf-8").replace("> 0.25 *", "> 0.75 *"), encoding="utf-8")
    assert promtool("test", "rules", "alerts_test.yml", folder=folder)[0] == 1


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_prometheus_finds_all_processes_of_the_pods_and_nothing_else(tmp_path):
    """promtool relabels the labels that the discovery of pods would give, as Prometheus would."""
    pods = all_pods()
    assert {pod.file for pod in pods} == {"job.yaml", "pytorchjob.yaml", "trainjob.yaml"}
    actual = [
        (f"{one.file}-{number}", "Running", one.template["metadata"]["labels"], one.container["ports"])
        for number, one in enumerate(pods)
    ]
    name, _, labels, ports = actual[0]
    others = [
        (f"{name}-ended", "Succeeded", labels, ports),
        ("else", "Running", {"app": "else"}, ports),
        (f"{name}-other-port", "Running", labels, [{"name": "ssh", "containerPort": 22}]),
    ]
    targets = [
        {
            "targets": [f"{pod}:{port['containerPort']}"],
            "labels": {
                "__meta_kubernetes_pod_name": pod,
                "__meta_kubernetes_pod_phase": phase,
                "__meta_kubernetes_pod_container_port_name": port["name"],
                **{"__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", key): value for key, value in labels.items()},
            },
        }
        for pod, phase, labels, ports in [*actual, *others]
        for port in ports
    ]
    settings = yaml.safe_load((MONITORING / "prometheus-kubernetes.yml").read_text(encoding="utf-8"))
    (job,) = settings["scrape_configs"]
    del job["kubernetes_sd_configs"], settings["rule_files"]
    job["static_configs"] = targets
    (tmp_path / "settings.yml").write_text(yaml.safe_dump(settings))
    output = promtool("check", "service-discovery", "--timeout=1s", "settings.yml", job["job_name"], folder=tmp_path)[1]
    addresses = {target["labels"]["__address__"] for target in json.loads(output) if target["labels"]}
    wanted = {f"{pod}:{port['containerPort']}" for pod, _, _, ports in actual for port in ports}
    assert addresses == wanted
    assert len(wanted) == sum(pod.processes for pod in pods)


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_is_seen_to_fire_and_not_to(name):
    groups = yaml.safe_load((MONITORING / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    tests_of_alert = [test for group in groups for test in group["alert_rule_test"] if test["alertname"] == name]
    assert {bool(test["exp_alerts"]) for test in tests_of_alert} == {True, False}
    (rule,) = [rule for rule in alerts() if rule["alert"] == name]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert f"`{name}`" in GUIDE


def test_events_that_are_asked_for_exist():
    events = re.findall(r'event="([^"]+)"', " ".join(rule["expr"] for rule in alerts()))
    assert events
    assert set(events) <= set(EVENTS)


def test_the_dashboard_misses_no_event_that_one_process_alone_knows():
    logged_by_all, of_a_process = (query for title, query in panel_queries() if title == "Events")
    (others,) = re.findall(r'event!~"([^"]+)"', logged_by_all)
    (own,) = re.findall(r'event=~"([^"]+)"', of_a_process)
    assert set(others.split("|")) == set(own.split("|")) == RANK_LOCAL_EVENTS
    assert 'rank="0"' in logged_by_all
    assert "rank=" not in of_a_process


def test_the_metrics_of_a_query_are_found():
    query = 'rate(lockstep_a_total{run="lockstep_b"}[5m]) / lockstep_c * on (run) group_left x_lockstep_d'
    assert metrics_in(query) == {"lockstep_a_total", "lockstep_c"}


def test_the_dashboard_is_in_order():
    board = dashboard()
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    panel_cells = [
        {
            (panel["gridPos"]["x"] + right, panel["gridPos"]["y"] + down)
            for right in range(panel["gridPos"]["w"])
            for down in range(panel["gridPos"]["h"])
        }
        for panel in panels
    ]
    assert len(set.union(*panel_cells)) == sum(map(len, panel_cells)), "panels overlap"
    assert all(x < 24 for cells in panel_cells for x, _ in cells)
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "run"}
    for panel in panels:
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]
            assert 'run=~"$run"' in target["expr"], panel["title"]
            assert set(re.findall(r"\$\w+", target["expr"])) <= {"$run", "$__rate_interval"}, panel["title"]


def test_no_line_of_a_process_is_dropped():
    queries = [query for _, query in panel_queries()] + [rule["expr"] for rule in alerts()]
    assert {PREFIX + name for name in (*GAUGES, *COUNTERS)} <= set().union(*map(metrics_in, queries))
    for name in (*GAUGES, *COUNTERS, "run_info"):
        assert f"`{PREFIX}{name}`" in GUIDE, name
