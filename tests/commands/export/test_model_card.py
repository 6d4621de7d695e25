"""Tests the model card of an export, as the hub reads it."""

from commands.export.model_card import write_card
from commands.runs.provenance import TrainingProvenance
from engine.export.artifacts import DatasetCard, ExportedModel
from tests.support.outputs.model_card import read_card

DATA = DatasetCard("My data: v2", "Ten rows.", "only on Sundays.")


def card(folder, metrics, excluded=None, **more):
    exported = ExportedModel("a reader", "It reads.", {"a.bin": "weights"}, "Ask it.", "peft", ("tag",), **more)
    (folder / "inner").mkdir()
    (folder / "a.bin").write_bytes(bytes(1500))
    (folder / "inner" / "b.bin").write_bytes(bytes(3))
    environment = {"processes": 2, "device": "cuda:0", "precision": "bf16-mixed", "commit": "abc", "packages": {}}
    config = {"seed_everything": 5, "model": {"width": 8}, "trainer": {"max_epochs": 3}, "wandb": {"entity": "me"}}
    write_card(
        folder,
        "mine",
        exported,
        DATA,
        TrainingProvenance(1200, 4, metrics, excluded or {}, config, environment, "0.1.0"),
    )
    return read_card(folder)


def test_metrics_are_results_for_the_hub_and_a_table_for_people(tmp_path):
    metrics = {"val/accuracy": 0.123456789, "val/baseline/majority/accuracy": 0.1, "test/accuracy": 0.2}
    card_text = card(tmp_path, metrics, pipeline="text-generation")
    results = [
        (result.dataset_name, result.dataset_split, result.metric_type, result.metric_value, result.task_type)
        for result in card_text.data.eval_results
    ]
    assert results == [
        ("My data: v2", "validation", "accuracy", 0.123457, "text-generation"),
        ("My data: v2", "test", "accuracy", 0.2, "text-generation"),
    ]
    assert card_text.data.model_name == "mine"
    assert card_text.data.pipeline_tag == "text-generation"
    assert "| accuracy | 0.1235 | 0.2 |" in card_text.text
    assert "| baseline/majority/accuracy | 0.1 |  |" in card_text.text
    assert "| `a.bin` | 1.5 kB | weights |" in card_text.text
    assert "| `inner/b.bin` | 3 bytes |  |" in card_text.text


def test_excluded_metrics_are_named(tmp_path):
    card_text = card(tmp_path, {"val/accuracy": 0.5}, {"test": "trainer.limit_test_batches"})
    assert "The test metrics of this checkpoint are excluded" in card_text.text
    assert "not the run's (trainer.limit_test_batches)" in card_text.text
    assert "has not been tested" not in card_text.text
    (result,) = card_text.data.eval_results
    assert result.dataset_split == "validation"


def test_the_card_names_data_pretrained_models_and_licences(tmp_path):
    """Of names, only those of the hub are links there; a folder of this machine is none."""
    pretrained = {"Qwen/Qwen2.5-0.5B": "apache-2.0", str(tmp_path): None}
    card_text = card(tmp_path, {}, pretrained=pretrained)
    assert card_text.data.base_model == ["Qwen/Qwen2.5-0.5B"]
    assert card_text.data.eval_results is None
    for text in (
        "- data, My data: v2: only on Sundays.",
        "- pretrained model Qwen/Qwen2.5-0.5B: its own files state `apache-2.0`",
        f"- pretrained model {tmp_path}: its own files state none",
        "has no evaluation of this checkpoint",
        "after 1,200 optimizer steps, in epoch 4",
        "world size 2 on cuda:0, precision bf16-mixed",
        "Lockstep at commit abc",
        "Lockstep 0.1.0",
        "seed_everything: 5",
        "max_epochs: 3",
    ):
        assert text in card_text.text
    assert "entity" not in card_text.text
