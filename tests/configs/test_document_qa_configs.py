"""The document-QA configs run from `prepare` to `predict`, with smaller sizes and models."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM

from commands.cli.main import main
from datamodules.document_qa.manuals.settings import ManualSettings
from datamodules.document_qa.synthetic_manuals import SyntheticManuals
from tests.conftest import REPOSITORY
from tests.support.families.colored_squares import LANGUAGE_MODEL, write_tower
from tests.support.outputs.jsonl import read_jsonl

pytestmark = pytest.mark.timeout(600)  # several runs in each

FOLDER = REPOSITORY / "configs/document_qa"

CONFIGS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}
ON_MANUALS = [stem for stem, config in CONFIGS.items() if config["data"]["class_path"] == "SyntheticManuals"]

SMALL = [
    "--data.init_args.batch_size=8",
    "--data.init_args.evaluation_batch_size=4",
    "--data.init_args.num_workers=0",
    "--data.init_args.ingestion.dpi=36",
    "--data.init_args.ingestion.workers=1",
    "--data.init_args.max_tiles=2",
]
FEWER = [
    "--data.init_args.micro_batch_size=4",
    "--data.init_args.retriever.pages=1",
    "--model.init_args.max_new_tokens=4",
    "--model.init_args.evidence_questions=1",
]
OF_MANUALS = [
    "--data.init_args.batch_size=8",
    "--data.init_args.num_samples=16",
    "--data.init_args.validation_size=8",
    "--data.init_args.test_size=8",
    "--trainer.check_val_every_n_epoch=1",
]
BRIEFLY = [
    "--model.init_args.warmup_steps=1",
    "--trainer.max_epochs=1",
    "--trainer.num_sanity_val_steps=0",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
    "--trainer.precision",
    "32-true",  # a processor takes several times as long for bf16
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tower, a language model, manuals as PDFs with questions about them, and others to be asked about, all tiny."""
    folder = tmp_path_factory.mktemp("files")
    language_model, tower = folder / "language_model", folder / "tower"
    write_tower(tower)
    for seed, (name, number) in enumerate({"train": 5, "others": 2}.items()):
        size = ManualSettings(chapters=1, figure_size=32)
        manuals = SyntheticManuals(size, seed=seed, root=str(folder / name), written_manuals=number, batch_size=1)
        manuals.prepare()
    write_language_model(language_model, manuals.tokenizer)
    asked = read_jsonl(folder / "others/questions.jsonl")
    asked = [{**record, "id": 7 - number} for number, record in enumerate(asked[::2] + asked[1::2])]
    for question in asked:
        del question["answer"]
    (folder / "asked.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))
    return SimpleNamespace(
        language_model=language_model,
        tower=tower,
        train={"questions": str(folder / "train/questions.jsonl"), "documents": str(folder / "train/documents")},
        asked=asked,
        predict=["--data.init_args.predict_questions", str(folder / "asked.jsonl")]
        + ["--data.init_args.predict_documents", str(folder / "others/documents")],
    )


def write_language_model(folder, tokenizer):
    """A checkpoint of a tiny Qwen2 with random weights that knows the manuals' words."""
    tokenizer.tokenizer.save_pretrained(folder)
    torch.manual_seed(5)
    config = AutoConfig.for_model(**LANGUAGE_MODEL, vocab_size=len(tokenizer.tokenizer))
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


@pytest.fixture
def options(files):
    """Return options that shrink a config of pretrained models: those of `prepare`, and those of other commands."""

    def of(stem):
        data = [
            f"--config={FOLDER / f'{stem}.yaml'}",
            f"--data.init_args.tokenizer={files.language_model}",
            "--data.init_args.train",
            json.dumps(files.train),
            "--data.init_args.split.validation=0.2",
            "--data.init_args.split.test=0.2",
        ]
        model = [
            "--model.init_args.language_model.path",
            str(files.language_model),
            "--model.init_args.vision_tower.path",
            str(files.tower),
        ]
        return [*data, *SMALL], [*data, *SMALL, *model, *BRIEFLY]

    return of


def check_training(run, stem):
    losses = run.series("train/loss")
    assert losses
    assert all(map(math.isfinite, losses.values()))
    (best,) = run.series(CONFIGS[stem]["best_checkpoint"]["monitor"]).values()
    assert math.isfinite(best)
    assert {file.name for file in (run.folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


def test_every_config_is_tested():
    assert {"your_documents", "choice_lora", "retriever", *ON_MANUALS} == CONFIGS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["your_documents", "choice_lora"])
def test_a_config_trains_on_documents_and_answers_questions(lockstep, options, files, stem, tmp_path, monkeypatch):
    of_the_data, all_of_it = options(stem)
    all_of_it += FEWER
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    main(["prepare", *of_the_data])
    name = f"document_qa-{stem}-job1"
    check_training(lockstep("fit", *all_of_it, name=name), stem)

    checkpoint = ["--ckpt_path", "best"]
    tested = lockstep("test", *all_of_it, *checkpoint, name=name)
    assert {"test/accuracy", "test/baseline/random/accuracy", "test/page_recall@1"} <= {
        key for line in tested.records for key in line
    }
    predicted = lockstep("predict", *all_of_it, *files.predict, *checkpoint, name=name)
    answered = predicted.predictions()
    assert [line["id"] for line in answered] == [question["id"] for question in files.asked] == list(range(7, -1, -1))
    for line, question in zip(answered, files.asked, strict=True):
        assert 0 < line["confidence"] <= 1
        assert line["page"] in (1, 2, 3)
        if "options" in question:
            assert f"{line['answer']}. {line['text']}" in question["options"]
        else:
            assert isinstance(line["answer"], str)
            assert "text" not in line


@pytest.mark.slow
def test_a_retriever_ranks_for_a_reader(lockstep, options, files):
    _, retriever = options("retriever")
    ranks = lockstep("fit", *retriever, name="ranks")
    check_training(ranks, "retriever")
    lockstep("predict", *retriever, "--ckpt_path", "best", name="ranks")
    questions = read_jsonl(Path(files.train["questions"]))
    assert len(read_jsonl(ranks.folder / "rankings.jsonl")) == len(questions)
    reader = [*options("your_documents")[1], *FEWER, "--data.init_args.retriever.kind", "hybrid"]
    check_training(
        lockstep("fit", *reader, "--data.init_args.retriever.rankings", "ranks", name="reads"), "your_documents"
    )


@pytest.fixture
def on_manuals(lockstep, tmp_path):
    """Runs a config of synthetic manuals, after those that it begins from."""
    shutil.copytree(FOLDER, tmp_path / "configs/document_qa")  # a later stage names the config of the earlier one

    def run(stem):
        earlier = CONFIGS[stem]["model"]["init_args"].get("init_from")
        if earlier is not None:
            run(Path(earlier).stem)
        config = ["--config", f"configs/document_qa/{stem}.yaml"]
        return lockstep("fit", *config, *OF_MANUALS, *BRIEFLY, name=f"document_qa-{stem}-job1")

    return run


@pytest.mark.slow
@pytest.mark.parametrize("stem", ON_MANUALS)
def test_configs_train_on_synthetic_manuals(on_manuals, stem):
    check_training(on_manuals(stem), stem)
