"""What docs/document-qa.md says to type exists, and each flag of the guide that it replaces is one flag here, too."""

import json
import re
import shlex

import pytest

from commands.cli import LockstepCLI
from tests.conftest import REPOSITORY
from tests.tiny_documents import write_config

CONFIG = str(REPOSITORY / "configs/document_qa/your_documents.yaml")
GUIDE = (REPOSITORY / "docs/document-qa.md").read_text(encoding="utf-8")
JOINED = GUIDE.replace("\\\n", " ")

# {flag of the original: (what is said here, the key that it sets, its value)}
FLAGS = {
    "--train_questions": ("--data.init_args.train.questions a.jsonl", "data.init_args.train.questions", "a.jsonl"),
    "--valid_questions": (
        "--data.init_args.validation '{questions: b.jsonl, documents: pdf}'",
        "data.init_args.validation.questions",
        "b.jsonl",
    ),
    "--documents": ("--data.init_args.train.documents pdf", "data.init_args.train.documents", "pdf"),
    "--output_dir": ("--run_name multi_gpu", "run_name", "multi_gpu"),
    "--batch_size": (
        "--data.init_args.batch_size null --data.init_args.batch_size_per_device 4",
        "data.init_args.batch_size_per_device",
        4,
    ),
    "--epochs": ("--trainer.max_epochs 10", "trainer.max_epochs", 10),
    "--fp16": ("--trainer.precision 16-mixed", "trainer.precision", "16-mixed"),
    "--ddp": ("--trainer.devices 4 --trainer.strategy ddp", "trainer.strategy", "ddp"),
    "--use_peft": (
        "--model.init_args.language_model.trainable lora",
        "model.init_args.language_model.trainable",
        "lora",
    ),
    "--use_data_augmentation": (
        "--data.init_args.augmentation.enabled true",
        "data.init_args.augmentation.enabled",
        True,
    ),
    "--use_optimized_loss": (
        "--model.init_args.loss contrastive_options",
        "model.init_args.loss",
        "contrastive_options",
    ),
    "--gradient_accumulation_steps": (
        "--data.init_args.micro_batch_size 1",
        "data.init_args.micro_batch_size",
        1,
    ),
    "--optimizer_type": ("--model.init_args.optimizer adamw_8bit", "model.init_args.optimizer", "adamw_8bit"),
    "--cpu_offload": (
        "--config configs/overlays/fsdp.yaml --trainer.strategy.init_args.cpu_offload true",
        "trainer.strategy.init_args.cpu_offload",
        True,
    ),
    "--profile": ("--trainer.profiler pytorch", "trainer.profiler", "pytorch"),
    "--logging_steps": ("--trainer.log_every_n_steps 1", "trainer.log_every_n_steps", 1),
    "--save_strategy": ("--trainer.check_val_every_n_epoch 1", "trainer.check_val_every_n_epoch", 1),
    "--save_total_limit": ("--best_checkpoint.keep 3", "best_checkpoint.keep", 3),
    "--load_best_model_at_end": ("", "best_checkpoint.monitor", "val/accuracy"),
    "--metric_for_best_model": (
        "--best_checkpoint.monitor val/accuracy",
        "best_checkpoint.monitor",
        "val/accuracy",
    ),
    "--use_wandb": ("--config configs/overlays/wandb.yaml", "wandb.project", "lockstep"),
    "--wandb_project": (
        "--wandb.project industrial-multimodal-qa",
        "wandb.project",
        "industrial-multimodal-qa",
    ),
    "--wandb_name": ("--wandb.project qa --wandb.name multi-node-training", "wandb.name", "multi-node-training"),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_it_is_one_flag_here_too(parser, monkeypatch, flag):
    monkeypatch.chdir(REPOSITORY)
    said, key, value = FLAGS[flag]
    config = parser.parse_args(["--config", CONFIG, *shlex.split(said)])
    assert config[key] == value


@pytest.mark.parametrize("flag", FLAGS)
def test_the_table_says_so(flag):
    """Each in the row of its flag, with the short names of the guide."""
    table = GUIDE.partition("## From the original guide to this program")[2]
    rows = [row for row in re.findall(r"^\|.*\|$", table, flags=re.MULTILINE) if f"`{flag}" in row.split("|")[1]]
    assert rows, flag
    for option in re.findall(r"--([a-z][\w.]+)", FLAGS[flag][0]):
        names = (option, option.replace("init_args.", ""))
        assert any(name in row for row in rows for name in names), (flag, option)


def test_the_best_model_is_loaded_at_the_end(lockstep, tmp_path):
    """`--load_best_model_at_end`: figures of `test` are those of best.ckpt, which is not the last one here."""
    worst = ["--best_checkpoint.monitor", "val/loss", "--best_checkpoint.mode", "max"]  # while it learns, the first
    options = [*write_config(tmp_path), *worst, "--trainer.max_steps", "4", "--data.init_args.size", "32"]
    run = lockstep("fit", *options, name="a")
    validated = run.series("val/loss")
    assert max(validated, key=validated.get) < max(validated)

    def tested(*checkpoint):
        lockstep("test", *options, *checkpoint, name="a")
        return json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])["test/loss"]

    found = tested()
    assert found == tested("--ckpt_path", str(run.folder / "checkpoints/best.ckpt"))
    assert found > tested("--ckpt_path", "last")


COMMANDS = [shlex.split(line, comments=True) for line in re.findall(r"^    (.*train\.(?:py|sbatch).*)$", JOINED, re.M)]


def test_there_are_commands():
    assert len(COMMANDS) >= 14
    launchers = {words[0] for words in COMMANDS}
    assert launchers == {"python", "torchrun", "accelerate", "sbatch"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_command_line_takes_it(words, monkeypatch, capsys):
    """Parsed to the end by the real parser, which then prints the config instead of running it."""
    monkeypatch.chdir(REPOSITORY)
    program = next(place for place, word in enumerate(words) if word.endswith(("train.py", "train.sbatch")))
    arguments = words[program + 1 :]
    if words[program].endswith("sbatch"):
        arguments = ["fit", *arguments]
    if "--config" not in arguments:  # it is that of the run
        config = "retriever.yaml" if "pages" in arguments else "your_documents.yaml"
        arguments[1:1] = ["--config", f"configs/document_qa/{config}"]
    with pytest.raises(SystemExit) as end:
        LockstepCLI([*arguments, "--print_config"])
    assert end.value.code in (0, None), capsys.readouterr().err


def test_accelerate_has_the_options():
    from accelerate.commands.launch import launch_command_parser

    (words,) = [words for words in COMMANDS if words[0] == "accelerate"]
    found = launch_command_parser().parse_args(words[2:])
    assert (found.training_script, found.num_processes) == ("train.py", 4)
