"""Tests the metrics, predictions and reports of evaluated answers."""

import json
from pathlib import Path

import pytest

from datamodules.document_qa.batch import AnswerRecord, ModelAnswer
from tests.support.document_qa.attached_data import data


@pytest.mark.parametrize(
    ("setting", "value", "recorded"), [("max_tiles", 2, "max_tiles"), ("resize_mode", "crop", "fit")]
)
def test_how_pictures_are_shown_decides_what_tests_are_compared(
    tmp_path: Path, setting: str, value: object, recorded: str
) -> None:
    tiny_data, identities = data("test"), []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        options = (-1.0,) * len(tiny_data.question(0).options)
        tiny_data.write_test_report(folder, [AnswerRecord(0, ModelAnswer("", options, 0.5))])
        identities.append(json.loads((folder / "ablation" / "none.json").read_text())["identity"])
        setattr(tiny_data, setting, value)
    assert identities[0] == {**identities[1], recorded: identities[0][recorded]} != identities[1]


@pytest.mark.parametrize("ablate", ["none", "figure", "question_only"])
def test_without_documents_no_pages_are_looked_for(ablate: str) -> None:
    tiny_data = data("test", ablate=ablate)
    sample = next(index for index in range(32) if tiny_data.question(index).evidence_pages)
    found = tiny_data.summary(
        [AnswerRecord(sample, ModelAnswer("", (-1.0,) * len(tiny_data.question(sample).options), 0.5))]
    )
    assert found.get("page_recall@1") == found.get("context_recall") == (None if ablate == "question_only" else 0.0)
