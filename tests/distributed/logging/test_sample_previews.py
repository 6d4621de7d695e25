"""Sample previews are the same on one rank and on two, and rank 0 writes them."""

import pytest

from tests.conftest import TINY
from tests.support.families import colored_squares, tiny_documents
from tests.support.outputs.sample_previews import DIGITS, previews_of
from tests.tiers import slow

# Weights as they were made: what is evaluated is then the same to the bit. 10 samples at once: of eight that are shown
# both processes have some.
UNTRAINED = [
    "--model.init_args.learning_rate",
    "1e-30",
    "--model.init_args.weight_decay",
    "0",
    "--trainer.max_steps",
    "2",
    "--trainer.val_check_interval",
    "2",
    "--trainer.check_val_every_n_epoch",
    "1",
    "--trainer.num_sanity_val_steps",
    "1",
    "--data.init_args.evaluation_batch_size",
    "10",
]


@pytest.mark.parametrize(
    "family", ["recommender", slow("image_classifier"), slow("vision_language"), slow("document_qa")]
)
def test_previews_are_the_same_on_one_and_two_ranks(lockstep, team, tmp_path, family):
    options = {"recommender": TINY, "image_classifier": DIGITS}.get(family)
    if options is None:
        options = (colored_squares if family == "vision_language" else tiny_documents).write_config(tmp_path)
    pair = team("fit", *options, *UNTRAINED, name="pair", processes=2)
    alone = previews_of(lockstep("fit", *options, *UNTRAINED, name="alone"))
    assert pair.end(120) == [0, 0], pair.output
    assert list(alone) == [2]
    assert len(alone[2]) == 8
    assert previews_of(pair) == alone
    assert len({preview["name"] for preview in alone[2]}) == 8
    assert all(preview["picture"] for preview in alone[2]) == (family != "recommender")
