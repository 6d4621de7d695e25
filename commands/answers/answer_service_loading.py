"""Loads the checkpoint of a run to answer questions, with the hooks in the order of Lightning's `predict`."""

from pathlib import Path

import torch
from lightning.pytorch.trainer.states import RunningStage, TrainerFn

from commands.answers.answer_service import AnswerService
from commands.answers.families.answer_service_registry import family_of
from commands.export.model_card import MODEL_CARD
from engine.datamodule import LockstepDataModule
from engine.io.checksum_file import verify_checksums
from engine.module import LockstepModule
from engine.run_trainer import RunTrainer


def load_answer_service(
    trainer: RunTrainer, model: LockstepModule, data: LockstepDataModule, checkpoint: str
) -> AnswerService:
    """Load a checkpoint and return the answer service of its model.

    Args:
        trainer: trainer of one process.
        model: module of the run, without weights.
        data: data module of the run.
        checkpoint: the file to load, or the directory of an export of the run.

    Raises:
        ValueError: the family has no answers, or the checkpoint or the export is of another model, or a file of the
            export changed.
    """
    family = family_of(model)  # before minutes of loading
    # The data modules ask the trainer which command runs, for example to skip the training files.
    trainer.state.fn = TrainerFn.PREDICTING
    trainer.state.stage = RunningStage.PREDICTING if family.stage == "predict" else RunningStage.VALIDATING
    model.trainer, data.trainer, trainer.datamodule = trainer, trainer, data
    trainer.strategy.connect(model)
    data.prepare_data()
    if family.stage is not None:
        data.setup(family.stage)
    model.setup("predict")
    model.configure_model()
    if (Path(checkpoint) / MODEL_CARD).is_file():
        verify_checksums(Path(checkpoint))
        model.load_export(Path(checkpoint))
        loaded = ("export", Path(checkpoint).name)
    else:
        # `on_load_checkpoint` first, as in Lightning: it adapts the content that `load_state_dict` then gets.
        content = trainer.strategy.checkpoint_io.load_checkpoint(checkpoint)
        model.on_load_checkpoint(content)
        model.load_state_dict(content["state_dict"])
        loaded = ("checkpoint", f"{Path(checkpoint).name}, step {content.get('global_step', 0):,}")
    # The model is moved after its weights are loaded, as Lightning does before `strategy.setup`.
    trainer.precision_plugin.convert_module(model)
    model.to(trainer.strategy.root_device).eval()
    with torch.inference_mode():
        service = family.create(model, data)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    service.about = [
        loaded,
        ("model", f"{type(model).__name__}, {parameters:,} parameters"),
        *service.about,
    ]
    return service
