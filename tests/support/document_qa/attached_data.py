"""Data of tiny documents, set up for a trainer that exists in attributes alone."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

from tests.support.families.tiny_documents import LAYOUT, TinyDocuments, tiny_tokenizer

tokenizer = cache(tiny_tokenizer)


def data(stage: str = "fit", loss: str = "answer", evidence_questions: int = 0, **settings: Any) -> TinyDocuments:
    made = TinyDocuments(**{"batch_size": 6, "evaluation_batch_size": 5, **settings})
    made.tokenizer = tokenizer()
    module = SimpleNamespace(
        image_layout=LAYOUT, loss=loss, evidence_questions=evidence_questions, predict_evidence=True
    )
    made.trainer = SimpleNamespace(  # type: ignore[assignment]
        lightning_module=module, state=SimpleNamespace(fn=stage, stage=SimpleNamespace(value=stage)), global_rank=0,
        world_size=1, num_devices=1, strategy=SimpleNamespace(root_device=torch.device("cpu")), limit_test_batches=1.0,
        limit_val_batches=1.0, limit_predict_batches=1.0, overfit_batches=0.0, ckpt_path=None,
        fit_loop=SimpleNamespace(
            epoch_loop=SimpleNamespace(batch_progress=SimpleNamespace(total=SimpleNamespace(ready=0)))
        ),
    )  # fmt: skip
    made.setup(stage)
    return made
