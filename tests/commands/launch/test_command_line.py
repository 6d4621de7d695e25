"""Tests how a command line is split into options and values."""

import pytest

from commands.launch.command_line import CONFIG_OPTIONS, option_values, replace_values, split_arguments, values_of

LINE = ["fit", "--config", "a.yaml", "--trainer.max_steps", "3", "-c=b.yaml", "--config=c.yaml", "--merge", "--config"]


def test_values_are_in_the_order_of_the_command_line():
    assert values_of(LINE, *CONFIG_OPTIONS) == ["a.yaml", "b.yaml", "c.yaml"]
    assert values_of(LINE, "--trainer.max_steps") == ["3"]
    assert values_of(LINE, "--merge") == []


def test_the_words_of_all_arguments_are_the_command_line():
    assert [word for argument in split_arguments(LINE, CONFIG_OPTIONS) for word in argument.words] == LINE


@pytest.mark.parametrize("words", [["--runs"], ["--runs="], ["--runs", ""], ["--runs", "--run_name", "a"]])
def test_an_option_without_a_value_has_an_empty_one(words):
    argument = next(split_arguments(words, ["--runs"]))
    assert argument.option == "--runs"
    assert argument.value == ""


def test_replaced_values_keep_the_form_of_the_option():
    replaced = replace_values(LINE, CONFIG_OPTIONS, str.upper)
    assert replaced == [
        "fit",
        "--config",
        "A.YAML",
        "--trainer.max_steps",
        "3",
        "-c=B.YAML",
        "--config=C.YAML",
        "--merge",
        "--config",
    ]


def test_each_option_is_listed_with_the_text_that_follows_it():
    assert list(option_values(["fit", "--merge", "--a=1=2", "b"])) == [("--merge", "--a=1=2"), ("--a", "1=2")]
