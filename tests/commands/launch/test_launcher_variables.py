"""Tests which numbers are read from a launcher's variables, malformed ones included."""

import pytest

from commands.launch.launcher_variables import LauncherVariables, require_number

READ = LauncherVariables.read


def test_a_malformed_variable_has_no_number():
    variables = READ({"RANK": "first", "WORLD_SIZE": "-2", "LOCAL_WORLD_SIZE": "\u00b2", "SLURM_NTASKS": ""})
    assert variables == READ({})
    with pytest.raises(ValueError, match="variable RANK: found no number"):
        require_number("RANK", variables.rank)


@pytest.mark.parametrize(
    ("variables", "per_node", "nodes"),
    [
        ({"LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "32", "RANK": "9", "LOCAL_RANK": "1"}, 8, 4),
        ({"SLURM_NTASKS": "8", "SLURM_NNODES": "4"}, 2, 4),
        ({"SLURM_NTASKS": "7", "SLURM_NNODES": "4"}, None, 4),
        ({"SLURM_NTASKS_PER_NODE": "3", "SLURM_NNODES": "2"}, 3, 2),
        ({"RANK": "3", "WORLD_SIZE": "4"}, 1, None),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}, 4, None),
        ({}, None, None),
    ],
)
def test_ranks_per_node_and_nodes_are_read_from_any_launcher(variables, per_node, nodes):
    assert READ(variables).ranks_per_node() == per_node
    assert READ(variables).nodes() == nodes


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, True),
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "1"}, False),
        ({"RANK": "1", "SLURM_PROCID": "0"}, False),  # torchrun inside a task of srun
        ({"RANK": "0", "SLURM_PROCID": "1"}, True),
    ],
)
def test_process_0_is_found_from_the_variables_of_any_launcher(variables, expected):
    assert READ(variables).is_rank_zero() is expected
