"""Runs a real Prometheus with the configuration, rules and dashboard of deploy/monitoring at short intervals."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import REPOSITORY
from tests.support.ports import free_ports

MONITORING = REPOSITORY / "deploy/monitoring"


def missing() -> str | None:
    """Why there is none to test with, if so."""
    lacking = [program for program in ("prometheus", "promtool") if shutil.which(program) is None]
    return f"no {' and no '.join(lacking)} (on Debian, as root: tests/system_packages.sh)" if lacking else None


def alerts() -> list[dict[str, Any]]:
    """The rules of alerts.yml."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return group["rules"]


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    return json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))


def panel_queries() -> Iterator[tuple[str, str]]:
    """(title, query) of each panel and annotation, with Grafana's variables put in."""
    board = dashboard()
    asked = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    asked += [(note["name"], note["expr"]) for note in board["annotations"]["list"]]
    for title, query in asked:
        yield title, query.replace("$run", ".+").replace("$__rate_interval", "30s")


def metrics_in(query: str) -> set[str]:
    """The names of the metrics in a query."""
    return set(re.findall(r"(?<![\w.\"])lockstep_\w+", re.sub(r'"[^"]*"', '""', query)))


class Prometheus:
    """Use it in a `with` block. It scrapes and judges every half second, and alerts do not wait for their `for`."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        settings = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
        settings["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        rules = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
        for rule in rules["groups"][0]["rules"]:
            rule.pop("for", None)
        (folder / "targets").mkdir(parents=True)
        (folder / "targets/team.yml").write_text(yaml.safe_dump([{"targets": targets}]))
        (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (port,) = free_ports(1)
        self.address, self._log = f"127.0.0.1:{port}", (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--web.listen-address={self.address}",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
            ],
            cwd=folder,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait(30)
        self._log.close()

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API; what it objects to is an error."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]

    def value(self, query: str) -> dict[str, float]:
        """{labels as JSON: value} of a query's result now."""
        found = self.ask("query", query=query)["result"]
        return {json.dumps(sample["metric"], sort_keys=True): float(sample["value"][1]) for sample in found}

    def firing(self) -> dict[str, dict[str, Any]]:
        """{name: one of the alerts of that name} that fires."""
        return {
            alert["labels"]["alertname"]: alert for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"
        }

    def wait_until(self, happens: Callable[[], Any], what: str, timeout: float = 60) -> Any:
        """Wait until `happens` returns a true value, and return it."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                found = happens()
            except OSError:  # it is not up yet
                found = None
            if found:
                return found
            assert self._process.poll() is None, Path(self._log.name).read_text()
            assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
            time.sleep(0.1)
