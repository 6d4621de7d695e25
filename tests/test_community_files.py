"""CI, issue forms and metadata agree with the code: checks, versions, questions."""

import configparser
import re

import pytest
import yaml

from tests.conftest import REPOSITORY

JOBS = {"lint": "make lint", "test": "make test", "test-slow": "make test-slow"}


def text(name):
    return (REPOSITORY / name).read_text(encoding="utf-8")


def read(name):
    return yaml.safe_load(text(name))


@pytest.fixture(scope="module")
def metadata():
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    return settings["metadata"]


@pytest.fixture(scope="module")
def workflow():
    return read(".github/workflows/checks.yml")


def test_pre_commit_runs_what_make_lint_runs():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", text("Makefile"), re.MULTILINE)[1]
    wanted = re.findall(r"^\t(\$\(VENV\).*?) \|\| status=1; \\$", recipe, re.MULTILINE)
    wanted = [line.replace("$(VENV)", ".venv") for line in wanted]
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == wanted
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks)


def test_each_check_is_a_job_with_a_time_limit_and_a_cache(workflow):
    assert {name: job["steps"][-1]["run"] for name, job in workflow["jobs"].items()} == JOBS
    steps = re.search(r"^for step in (.+); do$", text(".ci/run"), re.MULTILINE)[1].split()
    assert list(JOBS) == steps
    assert all(re.search(rf"^{step}:", text("Makefile"), re.MULTILINE) for step in steps)
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        assert "cache" in next(step["with"] for step in job["steps"] if "setup-python" in step.get("uses", ""))


def test_each_job_of_the_night_is_a_target_of_make_with_a_time_limit_and_a_cache():
    nightly = read(".github/workflows/nightly.yml")
    assert nightly[True]["schedule"]
    assert nightly["permissions"] == {"contents": "read"}
    for name, job in nightly["jobs"].items():
        assert any(step.get("run", "").startswith(f"make {name}") for step in job["steps"])
        assert re.search(rf"^{name}:", text("Makefile"), re.MULTILINE)
        assert job["timeout-minutes"] <= 300  # GitHub ends a job after 360
        assert "cache" in next(step["with"] for step in job["steps"] if "setup-python" in step.get("uses", ""))


def test_the_workflow_tests_the_versions_of_python_that_the_metadata_name(workflow, metadata):
    named = re.findall(r"Python :: (3\.\d+)", metadata["classifiers"])
    assert named[0] == "3.10"
    assert len(named) >= 4
    tests = (job for name, job in workflow["jobs"].items() if name != "lint")
    assert all(job["strategy"]["matrix"]["python"] == named for job in tests)


def test_the_workflow_may_read_and_nothing_else(workflow):
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())
    assert "secrets." not in text(".github/workflows/checks.yml")


def test_the_slow_tier_runs_every_night(workflow):
    assert workflow[True]["schedule"]  # YAML 1.1 takes the key `on` for a truth value
    alone = [name for name, job in workflow["jobs"].items() if "'schedule'" not in job["if"]]
    assert alone == ["test-slow"]


def test_citation_and_changelog_have_the_version_of_the_package(metadata):
    version = metadata["version"]
    assert read("CITATION.cff")["version"] == version
    newest = re.search(r"^## \[(.+?)\](?: - (\S+))?", text("CHANGELOG.md"), re.MULTILINE)
    assert version in newest.groups()


def test_the_changelog_has_the_headings_of_keep_a_changelog():
    kinds = set(re.findall(r"^### (.+)$", text("CHANGELOG.md"), re.MULTILINE))
    assert kinds
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert released
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in released)


def test_a_bug_is_reported_with_the_doctors_output():
    fields = {field["id"]: field for field in read(".github/ISSUE_TEMPLATE/bug.yml")["body"] if "id" in field}
    assert fields["doctor"]["validations"]["required"]
    assert "train.py doctor" in fields["doctor"]["attributes"]["description"]


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_every_field_of_a_form_has_what_github_asks_for(form):
    content = read(f".github/ISSUE_TEMPLATE/{form}.yml")
    assert {"name", "description", "body"} <= set(content)
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    for field in fields:
        assert field["type"] in {"textarea", "input", "dropdown", "checkboxes"}
        assert field["attributes"]["label"]
