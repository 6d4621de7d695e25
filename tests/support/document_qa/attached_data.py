"""Data of tiny documents, set up for a trainer that exists in attributes alone."""

from functools import cache
from types import SimpleNamespace
from typing import Any

from tests.support.fake_trainer import fake_trainer
from tests.support.families.tiny_documents import LAYOUT, TinyDocuments, tiny_tokenizer

tokenizer = cache(tiny_tokenizer)


def data(stage: str = "fit", loss: str = "answer", evidence_questions: int = 0, **settings: Any) -> TinyDocuments:
    made = TinyDocuments(**{"batch_size": 6, "evaluation_batch_size": 5, **settings})
    made.tokenizer = tokenizer()
    module = SimpleNamespace(
        image_layout=LAYOUT, loss=loss, evidence_questions=evidence_questions, predict_evidence=True
    )
    progress = SimpleNamespace(total=SimpleNamespace(ready=0))
    fit_loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress))
    made.trainer = fake_trainer(stage, lightning_module=module, fit_loop=fit_loop)  # type: ignore[assignment]
    made.setup(stage)
    return made
