"""Tests that modules with images load both kinds of their exports."""

import pytest
import torch

from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.export.parts_export import MODALITY
from tests.lightning_modules.document_qa.reader import built


@pytest.mark.parametrize(
    "projector, in_parts", [(ProjectorSettings(layer_norm=False), False), (ProjectorSettings(), True)]
)
def test_a_reader_loads_its_export(tmp_path, projector, in_parts):
    """The weights are those of the export, of transformers' class if it takes the parts."""
    first, _ = built("predict", reader={"projector": projector})
    expected = {name: weight.clone() for name, weight in first.state_dict().items()}
    first.export(tmp_path, merge=False)
    assert (tmp_path / MODALITY).is_dir() == in_parts
    second, _ = built("predict", reader={"projector": projector})
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.add_(1.0)
    second.load_export(tmp_path)
    found = second.state_dict()
    assert found.keys() == expected.keys()
    assert [name for name, weight in expected.items() if not torch.equal(found[name], weight)] == []
