"""A few kills of two trainings; `make soak` does 200 on all trainings."""

import random

import pytest

from tests.soak.campaign import Campaign
from tests.soak.trainings import trainings


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["recommender-2p-asynchronous", "vision_language-2p"])
def test_a_run_killed_three_times_ends_as_an_undisturbed_run(forge, tmp_path, name):
    seed = random.randrange(2**31)
    (training,) = (candidate for candidate in trainings() if candidate.name == name)
    result = Campaign(forge, training, tmp_path).run("disturbed", 3, random.Random(seed))
    print(f"seed {seed}: {result.kills}")  # shown with a failure
    assert result.kills, "\n".join(result.faults)
    assert not result.faults, "\n".join(result.faults)
    assert (result.hangs, result.differing) == (0, 0)
