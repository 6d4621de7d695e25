"""Measure the first answer of a demo: python -m tests.screenshots.answer_times RUN [RUN ...].

Prints the seconds from the command to the page and from a question to the end of its answer, and the CPU seconds of
both, which are about the seconds on an idle core. The question is the first example of the page.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.request import Request, urlopen

import psutil

from tests.conftest import REPOSITORY

_PATIENCE = 600.0  # seconds, on a machine that others use too


def main(runs: list[str]) -> None:
    """Print a row for each run."""
    print("run | to the page: s, CPU s | to the answer: s, CPU s | second answer: s, CPU s")
    for run in runs:
        print(" | ".join([run, *(f"{wall:.1f}, {cpu:.2f}" for wall, cpu in measured(run))]), flush=True)


def measured(run: str) -> list[tuple[float, float]]:
    """Return (seconds, CPU seconds) to the page, to the first answer, and to the second."""
    command = [sys.executable, "train.py", "demo", "--run_name", run, "--port", "0"]
    with TemporaryFile("w+") as output:
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT, text=True)
        try:
            while not (found := re.search(r"page: (http://\S+?),", Path(f"/dev/fd/{output.fileno()}").read_text())):
                assert process.poll() is None, "the page does not open"
                assert time.monotonic() < start + _PATIENCE, "the page does not open"
                time.sleep(0.05)
            page = urlopen(found[1], timeout=_PATIENCE).read().decode()
            rows = [(time.monotonic() - start, _cpu(process.pid))]
            body = json.dumps({"values": _first_example(page)}).encode()
            for _ in range(2):
                start, before = time.monotonic(), _cpu(process.pid)
                request = Request(f"{found[1]}/ask", body, {"Content-Type": "application/json"})
                answer = urlopen(request, timeout=_PATIENCE).read().decode()
                assert '"error"' not in answer, answer
                rows.append((time.monotonic() - start, _cpu(process.pid) - before))
            return rows
        finally:
            process.terminate()
            process.wait()


def _first_example(page: str) -> dict[str, Any]:
    """Return the values that the page sends for its first example."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    content = json.loads(data[1])
    example, values = content["examples"][0]["values"], {}
    for field in content["fields"]:
        value = example.get(field["name"])
        if field["kind"] == "choice":
            values[field["name"]] = value or field["choices"][0]["value"]
        elif value is not None:
            values[field["name"]] = value
    return values


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process and of those that it has waited for."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main(sys.argv[1:])
