"""Runs the command without the packages that only the rest of the project needs, and checks its exit codes."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch

from benchmarks import gpu
from benchmarks.device import part as parts
from benchmarks.device.part import Check, Failure, ResultTable, Row, Setting, part_results
from tests.conftest import REPOSITORY

WITHOUT = """
import sys
from importlib.machinery import PathFinder

lacking = {"jsonargparse", "rich", "polars"}

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in lacking else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


@pytest.mark.slow
@pytest.mark.timeout(600)  # two processes import torch anew
def test_a_part_runs_alone_and_writes_a_file(tmp_path):
    """Start the benchmark as on a machine with a GPU: from another folder, in processes of its own."""
    file = tmp_path / "results.json"
    done = subprocess.run(
        [
            sys.executable,
            str(REPOSITORY / "benchmarks" / "gpu.py"),
            "--device",
            "cpu",
            "--tiny",
            "--only",
            "ceilings",
            "--repeats",
            "2",
            "--json",
            str(file),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=570,
    )
    assert done.returncode == 0, done.stderr
    assert "product in bf16" in done.stdout
    assert "needs CUDA" in done.stdout
    assert "commit" in done.stdout
    found = json.loads(file.read_text())
    (part,) = found["comparisons"]
    assert part["name"] == "ceilings"
    assert part["problems"] == []
    assert len(part["sheets"][0]["rows"][0]["GB/s"]) == 2
    assert found["torch"] == torch.__version__
    assert found["repeats"] == 2


@pytest.mark.slow
@pytest.mark.timeout(600)  # a process imports all of Lightning and transformers anew
def test_the_parts_need_neither_jsonargparse_nor_rich_nor_polars():
    """The training imports Lightning, which looks itself whether rich is installed."""
    of_the_project = ("training", "compiled_step")  # the Trainer's, and the family's
    named = [f"benchmarks.device.{part}" for part in gpu.PARTS if part not in of_the_project]
    named += ["benchmarks.gpu", "benchmarks.device.tables", "benchmarks.device.machine"]
    lines = [f"import {name}" for name in named]
    lines.append("print(sorted({'lightning', 'pytorch_lightning'} & set(sys.modules)))")
    lines += ["lacking.remove('rich')", "import benchmarks.device.training"]
    program = WITHOUT + "\n".join(lines)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=570, check=True
    )
    assert done.stdout == "[]\n"


@pytest.fixture
def set_results(monkeypatch):
    """Return fixed results of the parts instead of measuring."""

    def set_to(**fields):
        monkeypatch.setattr(gpu, "part_results", lambda part, setting, seconds: iter(fields.get(part, [])))

    return set_to


TINY = ["--device", "cpu", "--tiny"]


def test_a_wrong_result_a_failed_row_and_a_failed_part_are_reported(set_results, capsys, tmp_path):
    sheet = ResultTable("products", ("ms",), [Row("one", ([1.0, 2.0],))], {"two": "no memory"})
    set_results(
        ceilings=[[Check("product", 1e-7, 1e-5)], sheet],
        recommender=[[Check("SASRec", float("nan"), 1e-5)]],
        training=[Failure("no loader")],
    )
    with pytest.raises(SystemExit) as ended:
        gpu.main([*TINY, "--junit", str(tmp_path / "found.xml")])
    output = capsys.readouterr().out
    assert "FAILED ceilings: two: no memory" in output
    assert "1.50 (1.00 to 2.00)" in output
    assert "FAILED recommender: SASRec is wrong" in output
    assert "FAILED training: no loader" in output
    assert ended.value.code == "gpu: parts failed, see FAILED above: ceilings, recommender, training"
    suite = ElementTree.parse(tmp_path / "found.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == (str(len(gpu.PARTS)), "3")
    assert {case.get("name"): case[0].get("message") for case in suite if len(case)}["training"] == "no loader"


def test_all_well_ends_without_a_failure(set_results, capsys):
    set_results(ceilings=[[Check("product", 1e-7, 1e-5)]])
    gpu.main([*TINY, "--only", "ceilings"])  # a failure raises SystemExit
    output = capsys.readouterr().out
    assert "product" in output
    assert "FAILED" not in output


def test_without_a_gpu_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="finds no CUDA device"):
        gpu.main([])
    gpu.main(["--optional"])
    assert "nothing is measured" in capsys.readouterr().out


def test_large_sizes_are_not_for_a_cpu(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cpu"])
    assert "needs --tiny" in capsys.readouterr().err


def test_a_part_that_takes_too_long_is_stopped():
    (found,) = part_results("ceilings", Setting("cpu", tiny=True, repeats=2), seconds=0.0)
    assert isinstance(found, Failure)
    assert "stopped" in found.error


def test_a_part_that_cannot_be_imported_is_reported():
    (found,) = part_results("no_such_part", Setting("cpu", tiny=True, repeats=2), seconds=170)
    assert isinstance(found, Failure)
    assert "no_such_part" in found.error


def test_after_a_failed_check_no_sheet_is_asked_for(monkeypatch):
    class Wrong:
        @staticmethod
        def measure(setting):
            yield [Check("it", 1.0, 1e-5)]
            raise AssertionError("measured all the same")

    class Line:
        sent = []

        def send(self, found):
            self.sent.append(found)

    monkeypatch.setattr(parts.importlib, "import_module", lambda name: Wrong)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    parts._serve(Line(), "it", Setting("cpu", tiny=True, repeats=2))
    assert Line.sent == [[Check("it", 1.0, 1e-5)], None]
