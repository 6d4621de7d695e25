"""Extends Lightning's Trainer by checks of its settings and by the commands that Lightning does not have."""

import logging
import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Trainer

from commands.answers.answer_service import AnswerService
from commands.answers.answer_service_loading import load_answer_service
from commands.answers.compared_runs import ComparedAnswers, ComparedRun
from commands.export.model_card import write_card
from commands.runs.provenance import training_of
from engine.datamodule import LockstepDataModule
from engine.io.atomic_file import atomic_directory
from engine.io.checksum_file import write_checksums
from engine.module import LockstepModule
from engine.number_check import check_number
from engine.run_trainer import RunTrainer

log = logging.getLogger("lockstep")

_MINIMA = {
    "gradient_clip_val": 0, "max_epochs": -1, "min_epochs": 0, "max_steps": -1, "min_steps": 0, "log_every_n_steps": 0,
    "num_sanity_val_steps": -1, "check_val_every_n_epoch": 1, "num_nodes": 1, "accumulate_grad_batches": 1,
}  # fmt: skip
"""Smallest values of Lightning's numbers that Lightning does not check; -1 means no limit."""


class LockstepTrainer(RunTrainer):
    """Lightning's Trainer with the commands `prepare`, `export`, `demo` and `chat`.

    Args:
        auto_micro_batch: find the largest micro-batch that fits into GPU memory before training: try a rank's share of
            the global batch (at most `data.micro_batch_size`), half of it, and so on. Not possible on a CPU, with FSDP
            and with losses of the whole batch, which is an error; with `if_possible` a warning.
        limit_train_batches: global batches (optimizer steps) of an epoch, or their share; 1 is one batch, 1.0 is all.
        limit_val_batches: batches of a validation over all ranks, or their share.
        limit_test_batches: as `limit_val_batches`, of a test.
        limit_predict_batches: as `limit_val_batches`, of a prediction.
        overfit_batches: train and validate on this number of global batches, or their share, the same in every epoch;
            0.0 disables it.
        val_check_interval: number of optimizer steps, or share of an epoch, between validations. A time is refused:
            ranks, and a run and its resumption, would validate at different steps.
        lightning: see Lightning's Trainer.
    """

    checkpoint_to_load: str | None = None
    """Checkpoint that the command begins with, for modules that need it before Lightning loads it."""

    # Arguments that are a number or a share are declared again as `int | float`. For typing, Lightning's
    # Union[int, float] equals Union[float, int], and its cache returns the first of them: 1 could become 1.0, all.
    def __init__(
        self,
        *,
        auto_micro_batch: bool | Literal["if_possible"] = False,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        overfit_batches: int | float = 0.0,
        val_check_interval: int | float | str | timedelta | dict[str, int] | None = None,
        **lightning: Any,
    ) -> None:
        for name, least in _MINIMA.items():
            check_number(f"trainer.{name}", lightning.get(name), at_least=least)
        if lightning.get("barebones"):
            raise ValueError("trainer.barebones is not supported: it disables checkpoints and logs; remove it")
        _check_devices(lightning.get("devices"))
        _check_max_time(lightning.get("max_time"))
        if isinstance(val_check_interval, (str, timedelta, dict)):
            raise ValueError(
                "trainer.val_check_interval must be a number of optimizer steps (500) or a share of an epoch (0.25), "
                f"got {val_check_interval}; ranks and resumed runs would reach a time at different steps"
            )
        check_number("trainer.val_check_interval", val_check_interval, above=0)
        try:
            super().__init__(
                limit_train_batches=limit_train_batches,
                limit_val_batches=limit_val_batches,
                limit_test_batches=limit_test_batches,
                limit_predict_batches=limit_predict_batches,
                overfit_batches=overfit_batches,
                val_check_interval=val_check_interval,
                **lightning,
            )
        except TypeError as error:  # of a setting, such as devices: 0
            raise ValueError(f"trainer: {error}") from error
        except ModuleNotFoundError as error:
            raise ValueError(f"trainer.accelerator is {lightning.get('accelerator')!r}: {error}") from error
        self.auto_micro_batch = auto_micro_batch

    def prepare(self) -> None:
        """Download and convert the data of a config, once; safe to repeat and to interrupt."""
        # Not called: LightningCLI reads the signature and the docstring, and the DataModule prepares the data.

    def export(
        self,
        model: LockstepModule,
        datamodule: LockstepDataModule,
        output: str,
        ckpt_path: str | None = None,
        merge: bool = False,
    ) -> None:
        """Write a trained model as a directory that does not depend on this project.

        Args:
            model: model of the run.
            datamodule: describes the data in the model card.
            output: directory to create; it contains a model card, README.md.
            ckpt_path: `best`, `last` or a file.
            merge: merge the adapters of a language model into its weights.
        """
        if type(model).export is LockstepModule.export:
            raise ValueError(f"export: {type(model).__name__} cannot be exported; use its checkpoints")
        if ckpt_path is None:
            raise ValueError("export needs a checkpoint: --ckpt_path best, last or FILE")
        if not output:
            raise ValueError("--output: found nothing, expected the name of a new directory")
        folder = Path(output)
        if folder.exists():  # before minutes of loading
            raise FileExistsError(f"{output} exists already; --output must name a new directory")
        model.trainer, datamodule.trainer, self.datamodule = self, self, datamodule
        self.strategy.connect(model)  # the data find the module by it
        model.configure_model()
        checkpoint = self.strategy.checkpoint_io.load_checkpoint(ckpt_path)
        model.on_load_checkpoint(checkpoint)
        model.load_state_dict(checkpoint["state_dict"])
        training = training_of(Path(ckpt_path), checkpoint)
        with atomic_directory(folder) as new:
            exported = model.export(new, merge)
            write_checksums(new)  # before the card, which a user may edit
            write_card(new, folder.name, exported, datamodule.dataset_card(), training)
        log.info("exported to %s", folder)

    def demo(
        self,
        model: LockstepModule,
        datamodule: LockstepDataModule,
        ckpt_path: str | None = None,
        host: str = "127.0.0.1",
        port: int = 7860,
        auth: str | None = None,
        compare: str | None = None,
        load_compared: Callable[[], ComparedRun] | None = None,
    ) -> None:
        """Open a page on which a trained model answers a visitor's own input.

        Args:
            model: model of the run.
            datamodule: data of the run.
            ckpt_path: `best`, `last`, a file, or the directory of an export of the run.
            host: address to listen on; 0.0.0.0 is reached from other machines, too.
            port: port to listen on; 0 is any free port.
            auth: `USER:PASSWORD` that visitors need, or `@FILE` with a line of this form; the variable
                LOCKSTEP_DEMO_AUTH does the same. A password on the command line is in the list of processes.
            compare: name of another run of the same family and data, which answers each question beside this one.
            load_compared: loads that run; without it this run answers alone.
        """
        from commands.demo.access_control import read_login
        from commands.demo.main import serve

        check_number("port", port, at_least=0, at_most=65535)
        login, checkpoint = read_login(auth), _checkpoint_of(ckpt_path, "demo")
        title, context = Path(self.default_root_dir).name, self.precision_plugin.forward_context

        def create() -> AnswerService:
            return load_answer_service(self, model, datamodule, checkpoint)

        if load_compared is None:
            serve(create, context, title, host, port, login)
            return
        load = load_compared

        def create_both() -> AnswerService:
            return ComparedAnswers([ComparedRun(title, create(), context), load()])

        # Each run enters its own context.
        serve(create_both, nullcontext, f"{title} and {compare}", host, port, login)

    def chat(self, model: LockstepModule, datamodule: LockstepDataModule, ckpt_path: str | None = None) -> None:
        """Ask a trained model in the terminal.

        Args:
            model: model of the run.
            datamodule: data of the run.
            ckpt_path: `best`, `last`, a file, or the directory of an export of the run.
        """
        from commands.chat.main import chat

        service = load_answer_service(self, model, datamodule, _checkpoint_of(ckpt_path, "chat"))
        with torch.inference_mode(), self.precision_plugin.forward_context():
            chat(service, Path(self.default_root_dir))


def _checkpoint_of(ckpt_path: str | None, command: str) -> str:
    if ckpt_path is None:
        raise ValueError(f"{command} needs a checkpoint: --ckpt_path best, last or FILE")
    return ckpt_path


def require_batches(trainer: Trainer, command: str) -> None:
    """Raise ValueError if a limit of 0 leaves the command nothing to do."""
    limit = {"fit": "train", "validate": "val"}.get(command, command)
    limits = {f"limit_{limit}_batches"} if command not in ("export", "demo", "chat") else set()
    if command == "fit":
        limits |= {"max_epochs", "max_steps"}
    for name in sorted(limits):
        if getattr(trainer, name) == 0:
            raise ValueError(f"trainer.{name} is 0, so {command} would do nothing; set it to 1 or more")


def _check_max_time(max_time: str | timedelta | dict[str, int] | None) -> None:
    """Raise ValueError if a time has another form than Lightning's, or leaves no time."""
    if isinstance(max_time, str) and not re.fullmatch(r"\d+:\d\d:\d\d:\d\d", max_time.strip()):
        raise ValueError(f"trainer.max_time must be DD:HH:MM:SS, got {max_time!r}")
    if isinstance(max_time, timedelta):
        is_zero = max_time <= timedelta(0)
    elif isinstance(max_time, dict):
        is_zero = all(value <= 0 for value in max_time.values())
    else:
        is_zero = max_time is not None and not re.search("[1-9]", max_time)
    if is_zero:
        raise ValueError(f"trainer.max_time must be more than 0, got {max_time!r}")


def _check_devices(devices: list[int] | str | int | None) -> None:
    """Raise ValueError if there is no device; Lightning's message does not state what is expected."""
    found = devices.strip(" ,") if isinstance(devices, str) else devices
    none = found in ("", "0", []) or (isinstance(found, int) and found < 1 and found != -1)
    if none or (isinstance(found, str) and not re.fullmatch(r"auto|-1|\d+( *, *\d+)*", found)):
        raise ValueError(
            f"trainer.devices must be a number from 1 on, a list of devices, -1 for all or auto, got {devices!r}"
        )
