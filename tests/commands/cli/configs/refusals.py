"""Starts `train.py fit` with an option, up to the data, and returns `ACCEPTED` or its exit code and last lines."""

from commands.cli.arguments import refuse_lone_values
from commands.cli.configs.parser_message import raised_by_class
from commands.cli.error_reporting import report_error
from commands.cli.trainer import LockstepTrainer
from tests.conftest import REPOSITORY

QUICKSTARTS = {
    "recommender": "quickstart",
    "image_classifier": "digits",
    "document_qa": "quickstart",
    "temporal": "quickstart",
    "vision_language": "quickstart_pretrain",
}
ACCEPTED = "accepted"


def config_of(family):
    return ["--config", str(REPOSITORY / f"configs/{family}/{QUICKSTARTS[family]}.yaml")]


def answer(parser, arguments, capsys, messages):
    """`ACCEPTED`, or the exit code and the lines with which `train.py fit` would end before the data are opened."""
    capsys.readouterr()
    messages.clear()
    try:
        config = parser.parse_args(arguments)
        refuse_lone_values(parser, config)
        created = parser.instantiate(config)
        if any(word.startswith("--trainer.") for word in arguments):
            settings = {**created.trainer.as_dict(), "logger": False, "callbacks": [], "enable_checkpointing": False}
            settings["accelerator"] = "cpu" if settings["accelerator"] == "auto" else settings["accelerator"]
            LockstepTrainer(**settings)
    except SystemExit as end:
        return end.code, capsys.readouterr().err.splitlines()
    except Exception as error:
        return report_error(raised_by_class(error)), [line for line in messages if "LOCKSTEP_DEBUG" not in line]
    return ACCEPTED
