"""Tests the findings about variables that are outdated, harmful, misspelt or without effect."""

import pytest

from commands.doctor.machine.env_variables import RULES, check_variables


def found(**variables):
    return list(check_variables(variables))


def test_correct_variables_are_not_reported():
    (finding,) = found(
        NCCL_DEBUG="WARN",
        NCCL_SOCKET_IFNAME="eth0",
        NCCL_IB_HCA="mlx5",
        TORCH_DISTRIBUTED_DEBUG="INFO",
        HOME="/root",
        NCCL_IB_DISABLE="0",
        CUDA_LAUNCH_BLOCKING="0",
        NCCL_DEBUG_FILE="x",
        NCCL_SOCKET_FAMILY="AF_INET",
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:4]",
        MASTER_PORT="1",
        TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
        NCCL_IB_TIMEOUT="22",
        LOCAL_WORLD_SIZE="2",
        GROUP_WORLD_SIZE="1",
    )
    assert finding.status == "ok"


@pytest.mark.parametrize(
    ("name", "value", "status", "words"),
    [
        ("NCCL_MIN_NRINGS", "4", "warn", "NCCL_MIN_NCHANNELS since NCCL 2.5"),
        ("NCCL_TREE_THRESHOLD", "0", "warn", "removed in NCCL 2.5"),
        ("NCCL_BLOCKING_WAIT", "1", "warn", "--watchdog.timeout"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "warn", "renamed"),
        ("NCCL_ASYNC_ERROR_HANDLING", "0", "fail", "wait indefinitely"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "fail", "wait indefinitely"),
        ("NCCL_IB_DISABLE", "1", "warn", "TCP"),
        ("NCCL_NET", "Socket", "warn", "TCP"),
        ("NCCL_P2P_DISABLE", "1", "warn", "NVLink"),
        ("NCCL_DEBUG", "INFO", "warn", "every process logs"),
        ("NCCL_DEBUG_SUBSYS", "NET", "warn", "no effect"),
        ("NCCL_IB_TIMEOUT", "32", "fail", "disable the timeout"),
        ("CUDA_LAUNCH_BLOCKING", "1", "warn", "waits for every kernel"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "warn", "slow"),
        ("TORCH_DISTRIBUTED_DEBUG", "VERBOSE", "fail", "refuses"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True", "fail", "no such option"),
        ("MASTER_ADDRESS", "10.0.0.1", "warn", "no effect"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "expandable_segments:True", "warn", "no effect"),
    ],
)
def test_each_finding_has_a_reason_and_a_remedy(name, value, status, words):
    (finding,) = found(**{name: value})
    assert finding.status == status
    assert name in finding.found and value.partition(":")[0] in finding.found or "no program reads it" in finding.found
    assert words in finding.why
    assert name in finding.remedy or "NCCL_DEBUG" in finding.remedy


def test_all_variables_of_the_guides_are_known():
    advised = {"NCCL_TREE_THRESHOLD", "NCCL_MIN_NRINGS", "NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING"}
    assert advised <= {rule.name for rule in RULES}


def test_pytorch_refuses_the_reported_value():
    import subprocess
    import sys

    code = "import os, torch.distributed as dist; os.environ['TORCH_DISTRIBUTED_DEBUG'] = 'VERBOSE'; "
    code += "dist.set_debug_level_from_env()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode
    assert "must be OFF, INFO, or DETAIL" in result.stderr


def test_a_misspelt_allocator_option_is_corrected_in_place():
    (finding,) = found(PYTORCH_ALLOC_CONF="max_split_size_mb:128,expandible_segments:True")
    assert finding.remedy == "export PYTORCH_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True"


def test_two_allocator_variables_that_differ_are_reported():
    (finding,) = found(PYTORCH_ALLOC_CONF="backend:native", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert finding.status == "warn"
    assert "PYTORCH_CUDA_ALLOC_CONF takes precedence" in finding.why


def test_more_sockets_than_nccl_takes_are_refused():
    (finding,) = found(NCCL_SOCKET_NTHREADS="16", NCCL_NSOCKS_PERTHREAD="8")
    assert finding.status == "fail"
    assert "64" in finding.why


def test_unused_infiniband_is_reported():
    (finding,) = check_variables({"NCCL_IB_DISABLE": "1"}, infiniband=True)
    assert "InfiniBand or RoCE, which this machine has, is not used" in finding.why
