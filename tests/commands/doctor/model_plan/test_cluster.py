"""Parses the GPUs of `doctor --plan`."""

import pytest

from commands.doctor.main import main
from commands.doctor.model_plan.cluster import Cluster, parse_cluster


def test_a_cluster_is_parsed_in_any_order_with_defaults():
    assert parse_cluster("nodes=2,gpus=8,gb=80") == Cluster(2, 8, 80)
    assert parse_cluster("gb=24, gpus=4") == Cluster(1, 4, 24)
    assert parse_cluster("gb=40").ranks == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes=2,gpus=8", "gb, the memory of a GPU, is missing in 'nodes=2,gpus=8'"),
        ("nodes=2,cpus=8,gb=80", "found 'cpus=8'"),
        ("80", "expected nodes=2,gpus=8,gb=80, found '80'"),
        ("", "expected nodes=2,gpus=8,gb=80, found ''"),
        ("gb=80,gb=24", "gb is given twice"),
        ("gb=0", "gb is '0'; expected a whole number of 1 or more"),
        ("gb=80GB", "gb is '80GB'"),
        ("gpus=-1,gb=80", "gpus is '-1'"),
    ],
)
def test_wrong_values_are_refused_with_a_message(text, message, capsys):
    with pytest.raises(SystemExit) as end:
        main([f"--plan={text}"])
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert message in error
    assert error.count("error:") == 1
