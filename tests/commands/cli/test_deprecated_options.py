"""Options of the model and the data that are parts of an option are read by their old names, too."""

import json

import pytest
import yaml
from jsonargparse import get_loader

from commands.cli.deprecated_names import PARSER_MODE, register_aliases, replace_aliases
from commands.cli.main import main
from commands.runs.current_names import current_option
from tests.conftest import REPOSITORY


def deprecations(lines):
    return [line for line in lines if line.startswith("deprecated: ")]


def test_a_part_of_an_old_option_on_the_command_line_and_in_a_text(messages):
    arguments = ["fit", "--data.exam.min_steps", "20", "--data.init_args.exam.max_steps=2"]
    new = ["fit", "--data.synthesis.min_steps", "20", "--data.init_args.synthesis.max_steps=2"]
    assert replace_aliases(arguments) == new
    register_aliases()
    config = get_loader(PARSER_MODE)("data: {init_args: {exam: {min_steps: 20}}}\ndata.exam.max_steps: 30\n")
    assert config == {"data": {"init_args": {"synthesis": {"min_steps": 20}}}, "data.synthesis.max_steps": 30}
    line = "deprecated: exam is now synthesis; version 0.3.0 will not accept the old name"
    assert deprecations(messages) == [line] * 2, "each reader of options logs it once"


def test_an_old_option_within_an_old_option(messages):
    text = "{letters: [1, 1e-1], choice_share: 1}"
    own = ["--model", text]
    arguments = ["--data.asking.letters", "5", "--data.asking", text, f"--data.init_args.asking={text}", *own]
    new = '{"answer_letter_weights": [1, 0.1], "choice_share": 1}'
    assert replace_aliases(["fit", *arguments]) == [
        "fit", "--data.questions.answer_letter_weights", "5", "--data.questions", new,
        f"--data.init_args.questions={new}", *own,
    ]  # fmt: skip
    register_aliases()
    config = get_loader(PARSER_MODE)("data: {init_args: {asking: {letters: 1}}}\ndata.asking.letters: 2\n")
    new = {"answer_letter_weights": 1}
    assert config == {"data": {"init_args": {"questions": new}}, "data.questions.answer_letter_weights": 2}
    assert current_option("data.init_args.asking.letters.0") == "data.init_args.questions.answer_letter_weights.0"
    assert [line.split(";")[0] for line in deprecations(messages)[:2]] == [
        "deprecated: asking is now questions",
        "deprecated: questions.letters is now questions.answer_letter_weights",
    ]


@pytest.mark.parametrize(
    ("config", "old", "new", "value"),
    [
        ("temporal/quickstart_series", "exam.mix", "synthesis.task_mix", {"lag": 2.0}),
        ("document_qa/quickstart", "asking.kinds", "questions.task_mix", {"value": 1.0}),
        ("document_qa/quickstart", "asking.letters", "questions.answer_letter_weights", [1.0, 2.0, 3.0, 4.0]),
        ("document_qa/quickstart", "manuals.parts", "manuals.parts_per_chapter", 4),
        ("vision_language/quickstart_sft", "tasks.question_mix", "tasks.task_mix", {"where": 1.0}),
        ("vision_language/sft", "fit", "resize_mode", "crop"),
        ("recommender/tisasrec_request_time", "predict_at", "predict_request_time", 5),
    ],
)
def test_the_options_of_a_family_are_read_by_their_old_names(capsys, config, old, new, value):
    shipped = ["--config", str(REPOSITORY / f"configs/{config}.yaml")]
    text = value if isinstance(value, str) else json.dumps(value)
    with pytest.raises(SystemExit):
        main(["fit", *shipped, f"--data.init_args.{old}", text, "--print_config"])
    found = yaml.safe_load(capsys.readouterr().out)
    for key in ["data", "init_args", *new.split(".")]:
        found = found[key]
    assert found == value


def test_a_command_keeps_the_name_of_an_old_option(messages):
    register_aliases()
    config = {"fit": {"data": {"class_path": "ImageChats"}, "run_name": "fit"}}
    assert get_loader(PARSER_MODE)(yaml.safe_dump(config)) == config
    assert deprecations(messages) == []


def test_a_value_that_is_no_yaml_stays_for_the_parser():
    arguments = ["fit", "--data.questions", "{letters: [1"]
    assert replace_aliases(arguments) == arguments
