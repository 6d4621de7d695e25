"""Lists the comparisons, their names and their goals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from benchmarks.recommender.bfloat16 import note as bfloat16_note
from benchmarks.recommender.evaluation import batched, one_by_one
from benchmarks.recommender.loading import per_row, vectorized
from benchmarks.recommender.measure import Maker
from benchmarks.recommender.training_steps import attention_alone, sasrec_step, step_with_loader, tisasrec_step
from benchmarks.recommender.whole_training import whole_training


@dataclass(frozen=True)
class Comparison:
    """Variants that do the same work.

    Attributes:
        unit: unit of the work, in the singular.
        variants: variants to compare; ratios are to the first.
        goals: goals for the last variant: so many times less `cpu` or `memory` than the first variant, or at most
        such a
            share `waiting` for data.
        note: returns what else to report besides the measurements.
    """

    name: str
    title: str
    unit: str
    variants: dict[str, Maker]
    goals: dict[str, float] = field(default_factory=dict)
    note: Callable[[], str] | None = None


_NAIVE, _OURS = "naive, [B, L, L, C]", "ours"
_PLAIN = "plain: rows one by one in Python, padded"

COMPARISONS = (
    Comparison(
        "attention-50",
        "Time-interval attention alone, forward and backward, B 32, L 50, C 64",
        "pass",
        {
            # More passes of the faster variant, so that turns last about equally long.
            _NAIVE: partial(attention_alone, "naive", 50, passes=5),
            _OURS: partial(attention_alone, "ours", 50, passes=20),
        },
    ),
    Comparison(
        "attention-200",
        "Time-interval attention alone, forward and backward, B 32, L 200, C 64",
        "pass",
        {_NAIVE: partial(attention_alone, "naive", 200), _OURS: partial(attention_alone, "ours", 200, passes=8)},
        {"cpu": 8, "memory": 8},
    ),
    Comparison(
        "attention-200-no-dropout",
        "The same without dropout: the form alone",
        "pass",
        {
            _NAIVE: partial(attention_alone, "naive", 200, dropout=0.0),
            _OURS: partial(attention_alone, "ours", 200, dropout=0.0, passes=8),
        },
    ),
    Comparison(
        "tisasrec-50",
        "Training step of TiSASRec, B 32, L 50, C 64, 2 blocks",
        "step",
        {_NAIVE: partial(tisasrec_step, "naive", 50, steps=2), _OURS: partial(tisasrec_step, "ours", 50, steps=5)},
    ),
    Comparison(
        "tisasrec-200",
        "Training step of TiSASRec, B 32, L 200, C 64, 2 blocks",
        "step",
        {_NAIVE: partial(tisasrec_step, "naive", 200), _OURS: partial(tisasrec_step, "ours", 200, steps=3)},
        {"cpu": 8},
    ),
    Comparison(
        "sasrec",
        "Training of SASRec with its loader, all items' cross-entropy, B 128, L 200, C 64, lengths as in ML-1M",
        "sequence",
        {
            _PLAIN: partial(whole_training, "plain", "cross_entropy", batches=1),
            _OURS: partial(whole_training, "ours", "cross_entropy"),
        },
        {"cpu": 1.5},
    ),
    Comparison(
        "sasrec-negative",
        "Training of SASRec with its loader in the shape of public code: a negative for each event, B 128, L 200, C 50",
        "sequence",
        {
            _PLAIN: partial(whole_training, "plain", "bce", batches=1, hidden_size=50),
            _OURS: partial(whole_training, "ours", "bce", hidden_size=50),
        },
        {"cpu": 3.0},
    ),
    Comparison(
        "sasrec-step",
        "Training step of SASRec alone, batches made before, all items' cross-entropy, B 128, L 200, C 64",
        "sequence",
        {
            "plain: padded, all logits": partial(sasrec_step, "plain", batches=1),
            _OURS: partial(sasrec_step, "ours"),
        },
    ),
    Comparison(
        "sasrec-bf16",
        "The same step under autocast to bfloat16",
        "sequence",
        {"float32": partial(sasrec_step, "ours"), "bfloat16": partial(sasrec_step, "ours", bf16=True)},
        note=bfloat16_note,
    ),
    Comparison(
        "sampler",
        "Batches for SASRec with a negative each, B 128, L 200",
        "batch",
        {"row by row in Python": partial(per_row, False, batches=4), _OURS: partial(vectorized, False)},
    ),
    Comparison(
        "sampler-times",
        "Batches for TiSASRec: the same and the intervals of all pairs",
        "batch",
        {"row by row in Python": partial(per_row, True), _OURS: partial(vectorized, True)},
    ),
    Comparison(
        "evaluation",
        "Evaluation of SASRec, L 200, 3,416 items",
        "user",
        {
            "user by user, 100 negatives": partial(one_by_one),
            "ours, full ranking": partial(batched, "full"),
            "ours, sampled_100": partial(batched, "sampled_100"),
        },
        {"cpu": 3},
    ),
    Comparison(
        "waiting-sasrec",
        "Waiting for data in training, SASRec, B 128, L 200, no loader processes",
        "step",
        {_OURS: partial(step_with_loader, "standard")},
        {"waiting": 0.05},
    ),
    Comparison(
        "waiting-tisasrec",
        "Waiting for data in training, TiSASRec, B 128, L 200, no loader processes",
        "step",
        {_OURS: partial(step_with_loader, "time_interval")},
        {"waiting": 0.05},
    ),
)
