"""Tests the checks of GPUs with a program that prints what nvidia-smi prints; no GPU is needed."""

import os

import pytest

from commands.doctor.launch_plan import LaunchPlan, plan_launch
from commands.doctor.machine.gpus import check_gpus, visible_gpus
from commands.doctor.machine.nvidia_smi import query_driver
from commands.doctor.machine.versions import check_torch
from commands.doctor.machine_checks import machine_checks

HEAD = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |"
A100 = "{0}, GPU-{0}{0}{0}{0}, NVIDIA A100-SXM4-40GB, 40960, {used}, {busy}, {mode}, {broken}, Disabled"
OK_MATRIX = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"


def card(index, used=4, busy=0, mode="Default", broken="0"):
    return A100.format(index, used=used, busy=busy, mode=mode, broken=broken)


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Puts a program of that name first on the PATH: ``nvidia_smi(cards, occupants=[], matrix=...)``."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(cards, occupants=(), matrix=OK_MATRIX, head=HEAD, fails=0, listed=""):
        answers = {"head": head, "gpus": "\n".join(cards), "apps": "\n".join(occupants), "p2p": matrix, "list": listed}
        for name, text in answers.items():
            (tmp_path / name).write_text(text + "\n")
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f"#!/bin/sh\n[ {fails} = 0 ] || {{ cat {tmp_path}/head; exit {fails}; }}\n"
            f'case "$1" in --query-gpu*) cat {tmp_path}/gpus;; --query-compute*) cat {tmp_path}/apps;; '
            f"topo) cat {tmp_path}/p2p;; -L) cat {tmp_path}/list;; *) cat {tmp_path}/head;; esac\n"
        )
        program.chmod(0o755)
        return query_driver()

    return put


def the_worst(plan, found, **variables):
    findings = list(check_gpus(plan, found, variables))
    return next((f for s in ("fail", "warn", "ok") for f in findings if f.status == s), None)


def test_two_free_gpus_with_peer_access_are_ok(nvidia_smi):
    driver = nvidia_smi([card(0), card(1)])
    assert (driver.version, driver.cuda, len(driver.gpus)) == ("550.54.15", "12.4", 2)
    peers, there = check_gpus(LaunchPlan(devices=2), driver, {})
    assert (peers.check, peers.status, there.status) == ("peer access", "ok", "ok")
    assert there.found == "2 x NVIDIA A100-SXM4-40GB; at least 40.0 GiB free on each"


def test_a_machine_without_gpus_fails_only_if_the_config_needs_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert the_worst(LaunchPlan(), query_driver()).status == "ok"
    finding = the_worst(LaunchPlan(accelerator="gpu"), query_driver())
    assert finding.status == "fail"
    assert "has trainer.accelerator gpu" in finding.why


def test_a_driver_that_does_not_answer_is_reported(nvidia_smi):
    words = "Failed to initialize NVML: Driver/library version mismatch"
    finding = the_worst(LaunchPlan(), nvidia_smi([], head=words, fails=18))
    assert finding.status == "fail"
    assert finding.found == words


def test_other_processes_on_a_gpu_are_named(nvidia_smi):
    driver = nvidia_smi([card(0, used=30000, busy=97), card(1)], ["GPU-0000, 4711, python, 29800"])
    finding = the_worst(LaunchPlan(), driver)
    assert finding.status == "warn"
    assert finding.found == "GPU 0: 30000 of 40960 MiB used, 97 % busy, by python (pid 4711, 29800 MiB)"
    assert "kill 4711" in finding.remedy
    assert the_worst(LaunchPlan(), driver, CUDA_VISIBLE_DEVICES="1").status == "ok"
    exclusive = [card(0, used=30000, mode="Exclusive_Process")]
    finding = the_worst(LaunchPlan(), nvidia_smi(exclusive, ["GPU-0000, 4711, python, 29800"]))
    assert finding.status == "fail"
    assert "are busy" in finding.why


def test_more_processes_than_gpus_and_gpus_that_are_not_there(nvidia_smi):
    driver = nvidia_smi([card(0), card(1)])
    finding = the_worst(LaunchPlan(devices=4), driver)
    assert finding.status == "fail"
    assert "--trainer.devices 2" in finding.remedy
    finding = the_worst(LaunchPlan(devices=2), driver, CUDA_VISIBLE_DEVICES="0,2")
    assert finding.status == "fail"
    assert "there is no GPU 2, only 0, 1" in finding.found
    finding = the_worst(LaunchPlan(), driver, CUDA_VISIBLE_DEVICES="")
    assert finding.status == "warn"
    assert "hidden by CUDA_VISIBLE_DEVICES=''" in finding.found
    assert the_worst(LaunchPlan(devices=4, accelerator="cpu"), driver).status == "ok"


def test_gpus_without_peer_access_are_named(nvidia_smi):
    matrix = OK_MATRIX.replace("X\tOK", "X\tCNS").replace("OK\tX", "CNS\tX")
    finding = the_worst(LaunchPlan(), nvidia_smi([card(0), card(1)], matrix=matrix))
    assert (finding.check, finding.status, finding.found) == ("peer access", "warn", "none between GPUs 0-1")


def test_gpus_of_different_kinds_with_broken_memory_or_in_parts_are_reported(nvidia_smi):
    finding = the_worst(LaunchPlan(), nvidia_smi([card(0), card(1).replace("A100", "V100")]))
    assert finding.status == "warn"
    assert "different kinds" in finding.found
    finding = the_worst(LaunchPlan(), nvidia_smi([card(0, broken="3")]))
    assert finding.status == "fail"
    assert "3 uncorrectable ECC errors" in finding.found
    assert the_worst(LaunchPlan(), nvidia_smi([card(0, broken="[N/A]")])).status == "ok"
    finding = the_worst(LaunchPlan(), nvidia_smi([card(0).replace("Disabled", "Enabled")]))
    assert finding.status == "warn"
    assert "MIG" in finding.found


def test_auto_starts_a_rank_for_each_gpu(nvidia_smi, tmp_path):
    nvidia_smi([card(index) for index in range(os.cpu_count() + 1)])
    (tmp_path / "gpu.yaml").write_text("trainer: {devices: auto}\n")
    plan = plan_launch(["--config", str(tmp_path / "gpu.yaml")], {})

    def cores(plan, environ):
        (check,) = (check for check in machine_checks(plan, environ) if check.name == "cores")
        return next(iter(check.examine()))

    finding = cores(plan, {})
    assert finding.status == "warn"
    assert f"{os.cpu_count() + 1} processes would share them" in finding.found
    assert cores(plan, {"CUDA_VISIBLE_DEVICES": "0"}).status == "ok"
    assert cores(plan._replace(accelerator="cpu"), {}).status == "ok"


LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0000)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1111)
  MIG 1g.5gb      Device  0: (UUID: MIG-aaaa-1)
  MIG 3g.20gb     Device  1: (UUID: MIG-bbbb-2)
"""


def test_a_part_of_a_gpu_is_a_device_and_one_alone_is_seen(nvidia_smi):
    cards = [card(0, broken="3"), card(1, used=30000, busy=97).replace("Disabled", "Enabled")]
    driver = nvidia_smi(cards, listed=LISTED)
    (there,) = check_gpus(LaunchPlan(), driver, {"CUDA_VISIBLE_DEVICES": "MIG-bbbb-2,MIG-aaaa-1"})
    assert (there.status, there.found) == ("ok", "1 x NVIDIA A100-SXM4-40GB (MIG 3g.20gb)")
    assert visible_gpus(driver, {"CUDA_VISIBLE_DEVICES": "MIG-bbbb-2,MIG-aaaa-1"}) == 1
    finding = the_worst(LaunchPlan(devices=2), driver, CUDA_VISIBLE_DEVICES="MIG-bbbb-2,MIG-aaaa-1")
    assert finding.status == "fail"
    assert "--trainer.devices 1" in finding.remedy
    finding = the_worst(LaunchPlan(), driver, CUDA_VISIBLE_DEVICES="MIG-cccc-3")
    assert finding.status == "fail"
    assert "nvidia-smi -L names MIG-aaaa-1, MIG-bbbb-2" in finding.found
    old = LISTED.replace("MIG-bbbb-2", "MIG-GPU-1111/2/0")
    (there,) = check_gpus(LaunchPlan(), nvidia_smi(cards, listed=old), {"CUDA_VISIBLE_DEVICES": "MIG-GPU-1111/2/0"})
    assert there.status == "ok"


def test_numbers_of_different_gpus_need_not_be_those_of_nvidia_smi(nvidia_smi):
    driver = nvidia_smi([card(0), card(1).replace("A100", "V100")])
    finding = the_worst(LaunchPlan(), driver, CUDA_VISIBLE_DEVICES="1")
    assert finding.status == "warn"
    assert finding.remedy == "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert the_worst(LaunchPlan(), driver, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID").status == "ok"
    assert the_worst(LaunchPlan(), driver, CUDA_VISIBLE_DEVICES="GPU-1111").status == "ok"
    both = the_worst(LaunchPlan(), driver)  # the one kind is chosen by number
    assert both.remedy == "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0"


@pytest.mark.parametrize(
    ("built", "reason", "status", "words"),
    [
        (None, "", "fail", "built without CUDA, on a machine with 1 GPU"),
        ("13.0", "", "fail", "is built for CUDA 13.0; driver 550.54.15 runs CUDA up to 12.4"),
        ("12.6", "", "ok", "for CUDA 12.6"),  # within a major version an older driver runs it
        ("ROCm 6.4", "", "warn", "is built for ROCm 6.4, on a machine with 1 NVIDIA GPU"),
        ("12.6", "CUDA unknown error", "fail", "cannot use the GPUs: CUDA unknown error"),
    ],
)
def test_a_pytorch_that_the_driver_cannot_run_is_reported(nvidia_smi, built, reason, status, words):
    (finding,) = check_torch("2.13.0", built, nvidia_smi([card(0)]), reason)
    assert (finding.status, words in finding.found) == (status, True), finding
