"""Tests that incompatible versions are reported, with packages in a temporary folder."""

import pytest

from commands.doctor.machine.versions import SETUP, check_nccl, check_packages, check_python, packaged_nccl


def install(folder, name, version, *requires):
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {need}" for need in requires),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def setup_that_needs(folder, *needs):
    file = folder / "setup.cfg"
    file.write_text(
        "[options]\npython_requires = >=3.10\ninstall_requires =\n    # why\n    " + "\n    ".join(needs) + "\n"
    )
    return file


def test_this_installation_is_right():
    assert [finding.status for finding in (*check_python(), *check_packages())] == ["ok", "ok"], list(check_packages())
    assert "torch" in SETUP.read_text()


def test_an_old_python_is_reported_with_the_required_version(tmp_path):
    (finding,) = check_python(setup_that_needs(tmp_path, "torch"), "3.9.2")
    assert finding.status == "fail"
    assert ">=3.10 is required" in finding.found


def test_packages_that_are_missing_too_old_or_compromised(tmp_path):
    install(tmp_path / "site", "lightning", "2.6.2")
    install(tmp_path / "site", "rich", "15.0")
    setup = setup_that_needs(tmp_path, "lightning>=2.6.6,<2.7", "rich>=13", "filelock>=3.12")
    findings = list(check_packages(setup, [str(tmp_path / "site")]))
    assert [finding.status for finding in findings] == ["fail"] * 3
    attack, old, missing = findings
    assert "GHSA-w37p-236h-pfx3" in attack.why
    assert old.found == "lightning 2.6.2, but <2.7,>=2.6.6 is required"
    assert old.remedy == "pip install 'lightning<2.7,>=2.6.6'"
    assert missing.found == "filelock is not installed"


def test_an_nccl_that_pytorch_does_not_require_is_a_warning(tmp_path):
    install(tmp_path, "torch", "2.13.0", "nvidia-nccl-cu12==2.27.5; platform_system == 'Linux'", "sympy")
    install(tmp_path, "nvidia-nccl-cu12", "2.21.5")
    pinned, package = packaged_nccl([str(tmp_path)])
    assert (pinned, package) == ("2.27.5", "2.21.5")
    (finding,) = check_nccl("2.21.5", pinned, package, gpus=2)
    assert finding.status == "warn"
    assert finding.found == "2.21.5 is installed, PyTorch requires 2.27.5"


@pytest.mark.parametrize(
    ("loaded", "pinned", "package", "gpus", "status", "words"),
    [
        ("2.27.5", "2.27.5", "2.27.5", 2, "ok", "2.27.5"),
        ("2.27.5", None, None, 2, "ok", "2.27.5"),
        ("2.19.3", "2.27.5", "2.27.5", 2, "warn", "2.19.3 is loaded"),
        (None, None, None, 2, "fail", "no NCCL"),
        (None, None, None, 1, "warn", "no NCCL"),
    ],
)
def test_the_loaded_nccl_is_compared_with_the_required_version(loaded, pinned, package, gpus, status, words):
    (finding,) = check_nccl(loaded, pinned, package, gpus)
    assert finding.status == status
    assert words in finding.found


def test_nccl_is_not_checked_without_gpus():
    assert list(check_nccl(None, None, None, 0)) == []
