"""What is shown of a validation is the same on one process and on two, and the first one alone writes it."""

import pytest

from tests import coloured_squares, tiny_documents
from tests.callbacks.test_example_log import DIGITS, shown
from tests.conftest import TINY

pytestmark = pytest.mark.distributed

# Weights as they were made: what is evaluated is then the same to the bit. 10 samples at once: of eight that are shown
# both processes have some.
UNTRAINED = [
    "--model.init_args.learning_rate", "1e-30", "--model.init_args.weight_decay", "0",
    "--trainer.max_steps", "2", "--trainer.val_check_interval", "2", "--trainer.check_val_every_n_epoch", "1",
    "--trainer.num_sanity_val_steps", "1", "--data.init_args.evaluation_batch_size", "10",
]  # fmt: skip


@pytest.mark.parametrize("family", ["recommender", "image_classifier", "vision_language", "document_qa"])
def test_one_and_two_processes_show_the_same(lockstep, team, tmp_path, family):
    options = {"recommender": TINY, "image_classifier": DIGITS}.get(family)
    if options is None:
        options = (coloured_squares if family == "vision_language" else tiny_documents).write_config(tmp_path)
    pair = team("fit", *options, *UNTRAINED, name="pair", processes=2)
    alone = shown(lockstep("fit", *options, *UNTRAINED, name="alone"))
    assert pair.end(120) == [0, 0], pair.output
    assert list(alone) == [2] and len(alone[2]) == 8
    assert shown(pair) == alone
    assert len({one["name"] for one in alone[2]}) == 8
    assert all(one["picture"] for one in alone[2]) == (family != "recommender")
