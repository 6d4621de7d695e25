"""docs/monitoring.md on logs: it names every event, its commands answer, and what collects lines knows their keys."""

import re
import shutil
import subprocess

import pytest
import yaml

from engine.telemetry.log_events import EVENTS
from tests.conftest import REPOSITORY
from tests.docs.pages import read
from tests.support.outputs.log_lines import SCHEMA, events, fields_of, log_lines

GUIDE = read("docs/monitoring.md").partition("\n## Metrics")[0]
MONITORING = REPOSITORY / "deploy/monitoring"


def test_the_guide_and_the_schema_have_the_same_events_and_keys():
    reported = re.findall(r"^\| `([a-z_]+)` \|", GUIDE.partition("| event |")[2], re.M)
    assert sorted(reported) == sorted(EVENTS)
    keys = re.findall(r"^\| `([a-z_]+)` \|", GUIDE.partition("| key |")[2].partition("| event |")[0], re.M)
    assert keys == list(SCHEMA["properties"])
    assert SCHEMA["required"] == [key for key in keys if key != "process"]  # deprecated


def test_a_run_is_logged_from_its_start_to_its_end(trained):
    folder = trained / "runs/recommender-quickstart-job1"
    lines = log_lines(folder / "log.jsonl")
    assert not list(folder.glob("log-*.jsonl"))
    assert {(line["run"], line["rank"]) for line in lines} == {(folder.name, 0)}
    reported = [name for name in events(lines) if name != "checkpoint_saved"]
    assert reported == ["run_started", "evaluated", "evaluated", "run_ended"]
    assert all(record["stage"] == "val" and record["val/ndcg@10"] > 0 for record in fields_of(lines, "evaluated"))
    assert [line["step"] for line in lines if "train/loss" in line["fields"]] == list(range(1, 27))
    assert any("global batch" in line["message"] and line["step"] is None for line in lines)


def test_an_evaluation_logs_its_step(lockstep, done):
    lockstep("test", "--config", str(done.folder / "config.yaml"), name=done.folder.name)
    last = [line for line in log_lines(done.folder / "log.jsonl") if line["fields"].get("stage") == "test"]
    assert [line["step"] for line in last] in ([13], [26])
    assert last[0]["fields"]["test/ndcg@10"] > 0


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq (tests/system_packages.sh installs it)")
def test_the_guides_jq_lines_answer(trained):
    (block,) = re.findall(r"### jq\n\n```bash\ncd runs/NAME\n(.*?)```", GUIDE, re.S)
    commands = [line for line in block.splitlines() if not line.startswith("#")]
    assert len(commands) == 5
    output = []
    for command in commands:
        run = subprocess.run(
            ["sh", "-c", command], cwd=trained / "runs/recommender-quickstart-job1", capture_output=True, text=True
        )
        assert run.returncode == 0, f"{command}: {run.stderr}"
        assert not run.stderr, f"{command}: {run.stderr}"
        output.append(run.stdout.splitlines())
    happened, trouble, seconds, losses, ends = output
    assert "run_started" in happened[0]
    assert "run_ended" in happened[-1]
    assert all("this model is worse than last-item-transition" in line for line in trouble), trouble
    assert all(float(value) > 0 for value in seconds)
    assert len(seconds) >= 4
    assert [line.split("\t")[0] for line in losses] == [str(step) for step in range(1, 27)]
    assert ends[-1].endswith("run_ended 26")


def test_log_collectors_use_existing_keys():
    """Neither program can be installed here; this compares their keys and files with those of a run."""
    alloy = (MONITORING / "logs.alloy").read_text(encoding="utf-8")
    assert alloy.count("{") == alloy.count("}")
    assert alloy.count("(") == alloy.count(")")
    (expressions,) = re.findall(r"expressions = \{(.*?)\}", alloy, re.S)
    keys = dict(re.findall(r'(\w+) = "([\w.]*)"', expressions))
    assert set(keys) - {"event"} <= set(SCHEMA["properties"])
    assert keys["event"] == "fields.event"
    for stage in re.findall(r"values = \{(.*?)\}", alloy):
        assert set(re.findall(r"(\w+) =", stage)) <= set(keys)
    named = set(re.findall(r"\[((?:loki|local)\.\w+\.\w+)\.receiver\]|= ((?:local)\.\w+\.\w+)\.targets", alloy))
    there = {f"{kind}.{name}" for kind, name in re.findall(r'^([a-z._]+) "(\w+)" \{', alloy, re.M)}
    assert {first or second for first, second in named} <= there
    assert named

    vector = yaml.safe_load((MONITORING / "logs.vector.yaml").read_text(encoding="utf-8"))
    parts = {**vector["sources"], **vector["transforms"], **vector["sinks"]}
    assert all(set(part.get("inputs", [])) <= set(parts) for part in parts.values())
    for pattern in (*vector["sources"]["runs"]["include"], *re.findall(r'"(/\*[^"]*)"', alloy)):
        assert pattern.endswith("/*/log*.jsonl")
