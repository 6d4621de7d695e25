"""Checks which recipe is recommended, and what is printed."""

import io
import json

import pytest

from commands.doctor.main import main
from commands.doctor.model_plan import plan, plan_output
from commands.doctor.model_plan.cluster import Cluster
from commands.doctor.model_plan.plan import Candidate, plan_rows, shipped_candidates
from commands.doctor.model_plan.recipes import RECIPES
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.step_trace import MemoryEstimate
from tests.lightning_modules.multimodal.conftest import CONFIGS

GB = 10**9
CANDIDATE = Candidate("tiny", LanguageModelSettings(config=CONFIGS["qwen2"]), 120)


@pytest.fixture
def ten_billion(monkeypatch):
    """Predictions by hand, in bytes a number: 16 of training all, 2 and 0.5 of frozen weights."""

    def estimate(settings, vocabulary, precision, work):
        numbers = 10 * GB
        if work.cpu_offload:
            return MemoryEstimate(0, 0, 0, 12 * GB, 0)
        if settings.trainable == "lora":
            return MemoryEstimate(numbers // 2 if settings.quantize == "nf4" else 2 * numbers, GB // 10, 0, 5 * GB, 0)
        shards = work.shards
        return MemoryEstimate(
            4 * numbers // shards, 4 * numbers // shards, work.state_bytes * numbers // shards, 5 * GB, 0
        )

    monkeypatch.setattr(plan, "estimate_memory", estimate)


def recommended(nodes, gpus, gb, candidate=CANDIDATE):
    return [row.recipe.name for row in plan_rows(candidate, Cluster(nodes, gpus, gb)) if row.recommended]


@pytest.mark.parametrize(
    ("cluster", "name"),
    [
        ((1, 1, 192), "DDP, all weights"),
        ((1, 1, 120), "DDP, 8-bit AdamW"),
        ((1, 8, 80), "FSDP2, all weights"),
        ((1, 2, 40), "LoRA"),
        ((1, 1, 24), "QLoRA"),
        ((1, 1, 8), None),
    ],
)
def test_the_first_recipe_that_fits_is_recommended(ten_billion, cluster, name):
    assert recommended(*cluster) == ([name] if name else [])


def test_a_config_that_trains_adapters_keeps_them(ten_billion):
    assert recommended(1, 8, 192, CANDIDATE._replace(trainable="lora")) == ["LoRA"]
    assert recommended(1, 2, 16, CANDIDATE._replace(trainable="full")) == ["FSDP2, CPU offload"]


def test_sizes_of_a_rank_follow_from_the_number_of_ranks(ten_billion):
    alone = {row.recipe.name: row for row in plan_rows(CANDIDATE, Cluster(1, 1, 80))}
    several = {row.recipe.name: row for row in plan_rows(CANDIDATE, Cluster(2, 4, 80))}
    assert set(several) - set(alone) == {"FSDP2, all weights", "FSDP2, CPU offload"}
    assert several["DDP, all weights"].size - alone["DDP, all weights"].size == 40 * GB  # the buckets
    assert several["FSDP2, all weights"].size == (160 // 8 + 5) * GB
    assert several["FSDP2, CPU offload"].host == 80 * GB  # half of the shards are on each node


def test_the_plan_is_printed_as_tables_and_as_a_json_object(ten_billion):
    cluster = Cluster(1, 8, 80)
    plans = {"tiny": plan_rows(CANDIDATE, cluster)}
    file = io.StringIO()
    plan_output.print_plan(cluster, 2048, plans, file)
    text = file.getvalue()
    assert "1 node with 8 GPUs of 80 GB" in text
    assert "(205.0)" in text
    assert "25.0 *" in text
    assert "FSDP2, all weights: --config configs/overlays/fsdp.yaml" in text
    assert "and, behind each: --trainer.precision bf16-mixed" in text
    assert "--trainer.num_nodes 1 --trainer.devices 8" in text
    report = json.loads(plan_output.plan_as_json(cluster, 2048, plans))
    assert report["cluster"] == {"nodes": 1, "gpus": 8, "gb": 80}
    assert len(report["rows"]) == len(RECIPES)
    assert [row["training"] for row in report["rows"] if row["recommended"]] == ["FSDP2, all weights"]


def test_the_shapes_have_the_numbers_of_the_series():
    """Billions of parameters, from the model cards; embeddings included."""
    found = {}
    for name, settings, vocabulary, *_ in shipped_candidates():
        sizes = settings.config
        width, inner = sizes["hidden_size"], sizes["intermediate_size"]
        keys = width // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
        layer = 2 * width * width + 2 * width * keys + 3 * width * inner
        tables = 1 if sizes["tie_word_embeddings"] else 2
        found[name] = round((sizes["num_hidden_layers"] * layer + tables * vocabulary * width) / 1e9, 2)
    assert found == {"0.5B": 0.49, "3B": 3.09, "7B": 7.62, "14B": 14.77, "32B": 32.76, "72B": 72.7}


@pytest.mark.slow
def test_the_plan_is_for_the_language_model_of_a_config(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["qwen2"], "architectures": ["Qwen2ForCausalLM"]}))
    config = ["--config", "configs/temporal/qwen2.5-7b.yaml", "--model.init_args.language_model.path", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        main(["--plan", "gpus=2,gb=24", "--json", *config])
    assert end.value.code == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(RECIPES)
    assert all(row["fits"] for row in rows)
    with pytest.raises(SystemExit) as end:
        main(["--plan", "gb=24", "--config", "configs/recommender/quickstart.yaml"])
    assert end.value.code == 2
    assert "no pretrained language model" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        main(["--plan", "gb=24", "--config", "configs/vision_language/qwen2.5-vl-lora.yaml"])
    assert end.value.code == 2
    assert "its model is an image-text model, and --plan is for language models" in capsys.readouterr().err
