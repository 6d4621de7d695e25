"""Options of the model and the data that are parts of an option are read by their old names, too."""

import pytest
import yaml
from jsonargparse import get_loader

from commands.cli.deprecated_names import PARSER_MODE, register_aliases
from commands.cli.main import main
from commands.runs.current_names import current_option
from tests.conftest import REPOSITORY
from tests.support.fit_parser import printed_config


def deprecations(lines):
    return [line for line in lines if line.startswith("deprecated: ")]


def test_a_part_of_an_old_option_is_replaced_in_a_config(messages):
    register_aliases()
    config = get_loader(PARSER_MODE)("data: {init_args: {exam: {min_steps: 20}}}\ndata.exam.max_steps: 30\n")
    assert config == {"data": {"init_args": {"synthesis": {"min_steps": 20}}}, "data.synthesis.max_steps": 30}
    line = "deprecated: exam is now synthesis; version 0.3.0 will not accept the old name"
    assert deprecations(messages) == [line]


def test_an_old_option_within_an_old_option_is_replaced(messages):
    register_aliases()
    config = get_loader(PARSER_MODE)("data: {init_args: {asking: {letters: 1}}}\ndata.asking.letters: 2\n")
    new = {"answer_letter_weights": 1}
    assert config == {"data": {"init_args": {"questions": new}}, "data.questions.answer_letter_weights": 2}
    assert current_option("data.init_args.asking.letters.0") == "data.init_args.questions.answer_letter_weights.0"
    assert [line.split(";")[0] for line in deprecations(messages)] == [
        "deprecated: asking is now questions",
        "deprecated: questions.letters is now questions.answer_letter_weights",
    ]


def test_parts_by_the_old_and_the_current_name_are_of_one_option():
    register_aliases()
    text = "data: {init_args: {exam: {min_steps: 20}, synthesis: {max_steps: 40}}}"
    assert get_loader(PARSER_MODE)(text) == {"data": {"init_args": {"synthesis": {"min_steps": 20, "max_steps": 40}}}}


@pytest.mark.parametrize(
    ("config", "old", "new", "value"),
    [
        ("temporal/quickstart_series", "exam.mix", "synthesis.task_mix", {"lag": 2.0}),
        ("document_qa/quickstart", "asking.kinds", "questions.task_mix", {"value": 1.0}),
        ("document_qa/quickstart", "asking.letters", "questions.answer_letter_weights", [1.0, 2.0, 3.0, 4.0]),
        ("document_qa/quickstart", "augmentation.unneeded", "augmentation.drop_irrelevant", 0.5),
        ("document_qa/quickstart", "manuals.parts", "manuals.parts_per_chapter", 4),
        ("vision_language/quickstart_sft", "tasks.question_mix", "tasks.task_mix", {"where": 1.0}),
        ("vision_language/sft", "fit", "resize_mode", "crop"),
        ("recommender/tisasrec_request_time", "predict_at", "predict_request_time", 5),
    ],
)
def test_the_options_of_a_family_are_read_by_their_old_names(capsys, tmp_path, config, old, new, value):
    shipped = yaml.safe_load((REPOSITORY / f"configs/{config}.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "old.yaml"
    inner = value
    for key in reversed(old.split(".")):
        inner = {key: inner}
    data = {"class_path": shipped["data"]["class_path"], "init_args": inner}
    path.write_text(yaml.safe_dump({"data": data}), encoding="utf-8")
    files = ["--config", str(REPOSITORY / f"configs/{config}.yaml"), "--config", str(path)]
    found = printed_config(capsys, *files)
    for key in ["data", "init_args", *new.split(".")]:
        found = found[key]
    assert found == value


@pytest.mark.parametrize(
    ("config", "old", "new"),
    [
        ("vision_language/sft", "--data.init_args.fit", "data.resize_mode"),
        ("temporal/quickstart_series", "--data.exam.min_steps", "data.synthesis.min_steps"),
    ],
)
def test_an_old_option_on_the_command_line_is_refused_with_its_current_name(capsys, config, old, new):
    """The class is not known there, and a class of the user may have an option of that name."""
    with pytest.raises(SystemExit) as end:
        main(["fit", "--config", str(REPOSITORY / f"configs/{config}.yaml"), old, "20", "--print_config"])
    assert end.value.code == 2
    assert f"there is no such setting; it is now {new}" in capsys.readouterr().err


def test_a_command_keeps_the_name_of_an_old_option(messages):
    register_aliases()
    config = {"fit": {"data": {"class_path": "ImageChats"}, "run_name": "fit"}}
    assert get_loader(PARSER_MODE)(yaml.safe_dump(config)) == config
    assert deprecations(messages) == []


def test_the_settings_of_a_command_are_read_by_their_old_names():
    register_aliases()
    config = get_loader(PARSER_MODE)("fit: {model: {class_path: A, init_args: {decay_share: 0.1}}}")
    assert config["fit"]["model"]["init_args"] == {"decay_fraction": 0.1}


def test_an_option_of_a_model_is_read_by_its_old_name(capsys, tmp_path):
    path = tmp_path / "old.yaml"
    path.write_text("model: {class_path: DocumentReader, init_args: {smoothing: 0.3}}", encoding="utf-8")
    quickstart = REPOSITORY / "configs/document_qa/quickstart.yaml"
    found = printed_config(capsys, "--config", str(quickstart), "--config", str(path))
    assert found["model"]["init_args"]["label_smoothing"] == 0.3
