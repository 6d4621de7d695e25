"""The classifier of digits at its smallest."""

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "configs/image_classifier"
SMALL = [
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
    "--trainer.log_every_n_steps=1",
    "--trainer.check_val_every_n_epoch=1",
    "--data.init_args.num_workers=0",
]
DIGITS = [
    f"--config={FOLDER / 'digits.yaml'}",
    *SMALL,
    "--model.init_args.width=8",
    "--model.init_args.norm=group",
    "--model.init_args.warmup_steps=0",
    "--trainer.max_epochs=1",
    "--trainer.limit_train_batches=6",
    "--model.init_args.evaluation_shift=0",
]
