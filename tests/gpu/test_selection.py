"""`pytest -m gpu` alone runs on a GPU: its message elsewhere, the order, the time limit, and the report."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.gpu.conftest import ORDER, asks_for_gpu
from tests.support.device import gpu_requirements
from tests.support.device.report import DeviceReport


def test_junit_records_measurements(pytestconfig):
    assert pytestconfig.getini("junit_family") == "xunit1", "record_property is an error with xunit2"


def test_the_order_names_every_file():
    assert sorted(ORDER) == sorted(path.name for path in Path(__file__).parent.glob("test_*.py"))


@pytest.mark.parametrize(
    ("expression", "asks"),
    [("gpu", True), ("gpu and not slow", True), ("not slow", False), ("gpus", False), ("", False)],
)
def test_an_expression_that_selects_gpu_tests_is_recognized(expression, asks):
    assert asks_for_gpu(expression) == asks


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_make_ends_with_one_line(monkeypatch):
    assert f"torch {torch.__version__} of {sys.executable} finds no CUDA device" in gpu_requirements.problem()
    monkeypatch.setattr(gpu_requirements, "PACKAGES", ("torch", "no_such_package"))
    assert gpu_requirements.problem().startswith(f"{sys.executable} lacks no_such_package: make install")


def test_whether_processes_can_use_a_device(device, workplace):
    assert workplace.can_use(device)
    assert not workplace.can_use("cuda:99"), "no machine has as many"


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_each_test_is_skipped_with_a_reason(tmp_path):
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        [*command, "--junitxml", str(tmp_path / "tests.xml")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=170,
        env={"PATH": "", "GPU_REPORT": str(tmp_path), "GPU_MINUTES": "9"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finds no CUDA device" in done.stdout, done.stdout + done.stderr
    report = json.loads((tmp_path / "tests.json").read_text())
    assert report["skipped"] == len(report["tests"]) > 20
    assert report["torch"] == torch.__version__
    assert {test["message"] for test in report["tests"]} == {f"torch {torch.__version__} finds no CUDA device"}
    suite = ElementTree.parse(tmp_path / "tests.xml").getroot()[0]
    assert suite.get("skipped") == str(report["skipped"])
    files = [test["name"].split("::")[0].removeprefix("tests/gpu/") for test in report["tests"]]
    assert list(dict.fromkeys(files)) == [file for file in ORDER if file in files]


def test_the_report_has_what_was_measured_and_why_a_test_failed(tmp_path):
    report = DeviceReport(tmp_path / "tests.json", {"device": "a GPU"})
    where = ("test_x.py", 1, "test_x")
    properties = [("error", 1e-6), ("cpu", 1.0)]
    for name, outcomes in {"good": ["passed"] * 3, "bad": ["passed", "failed", "passed"]}.items():
        for phase, outcome in zip(("setup", "call", "teardown"), outcomes, strict=True):
            why = "no equality" if outcome == "failed" else None
            report.pytest_runtest_logreport(
                pytest.TestReport(name, where, {}, outcome, why, phase, user_properties=properties, duration=1.0)
            )
    found = json.loads((tmp_path / "tests.json").read_text())
    assert (found["device"], found["passed"], found["failed"]) == ("a GPU", 1, 1)
    good, bad = found["tests"]
    assert good == {"name": "good", "outcome": "passed", "seconds": 3.0, "measured": {"error": 1e-6}}
    assert bad["outcome"] == "failed"
    assert bad["message"] == "no equality"
