"""Defines the smallest temporal family, which trains in seconds."""

from pathlib import Path

from tests.conftest import REPOSITORY

QUICKSTART = REPOSITORY / "configs/temporal/quickstart.yaml"

# What any temporal config becomes small with.
SMALL_RUN = [
    "--model.init_args.encoder_size=8",
    "--model.init_args.feature_size=8",
    "--model.init_args.max_new_tokens=4",
    "--data.init_args.batch_size=16",
    "--data.init_args.num_samples=64",
    "--data.init_args.validation_size=10",
    "--data.init_args.test_size=10",
    "--data.init_args.evaluation_batch_size=4",
    "--data.init_args.num_workers=0",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]

TINY_TEMPORAL = [
    f"--config={QUICKSTART}",
    *SMALL_RUN,
    "--model.init_args.language_model.config.hidden_size=16",
    "--model.init_args.language_model.config.intermediate_size=32",
    "--model.init_args.language_model.config.num_hidden_layers=2",
    "--model.init_args.schedule=constant",
    "--trainer.check_val_every_n_epoch=2",
]


def write_qwen2(folder: Path) -> None:
    """A checkpoint of a tiny Qwen2 with random weights and its tokenizer, as transformers writes them."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from datamodules.temporal.timelines.datamodule import ResourceTimelines

    tokenizer = ResourceTimelines(batch_size=1).tokenizer.tokenizer
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
