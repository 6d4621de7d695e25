"""YAML files are read within bounds, and a key that stands twice is an error with both lines."""

import os
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.io.yaml_file import MAX_BYTES, YamlFileError, check_yaml, parse_yaml, read_yaml

_NAMES = st.text("abc", min_size=1, max_size=3)
_SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab 01:#'-", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=20,
)
_NINE_TIMES_EACH = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))

REFUSED = {
    "a section twice": ("trainer:\n  a: 1\nmodel: 2\ntrainer:\n  b: 1\n", r"x.yaml:4: the key trainer .* line 1"),
    "a key of a section": ("a:\n  b:\n    c: 1\n    d: 2\n    c: 3\n", r"x.yaml:5: the key a\.b\.c .* line 3"),
    "a key in a list": ("a:\n- b: 1\n- b: 1\n  b: 2\n", r"x.yaml:4: the key a\[1\]\.b .* line 3"),
    "a dotted key": ("a:\n  b: 1\na.b: 2\n", r"x.yaml:3: the key a\.b .* line 2"),
    "a nest": ("[" * 3000 + "]" * 3000, "x.yaml:1: found more than 50 levels"),
    "a nest of keys": ("".join(f"{' ' * i}a:\n" for i in range(300)), "x.yaml:51: found more than 50 levels"),
    "a bomb": ("a0: &a0 [1]\n" + _NINE_TIMES_EACH, r"x.yaml:\d+: found more than 10,000 keys and values"),
    "a long bomb": (f"a: &a {'x' * 50_000}\nb: [{', '.join(['*a'] * 100)}]", "found more than 10,000"),
    "a bomb of merges": ("a0: &a0 {x: 1}\n" + _NINE_TIMES_EACH, "found more than 10,000"),
    "a circle": ("a: &a [*a]", r"x.yaml:1: the alias \*a is inside its own anchor"),
    "many keys": ("".join(f"k{i}: 1\n" for i in range(6000)), "x.yaml:5000: found more than 10,000"),
    "a tab": ("a:\n\tb: 1\n", "x.yaml:2: no YAML: .*tab: indent with spaces"),
    "a control character": ("a: 1\nb: \x00\n", "x.yaml:2: no YAML: "),
    "an open list": ("a: [1\n", r"x.yaml:2: no YAML: "),
    "two documents": ("a: 1\n---\nb: 1\n", "x.yaml:2: no YAML: .*single document"),
    "a Python object": (
        "a: !!python/object/apply:os.getcwd []\n",
        "x.yaml:1: found the tag python/object/apply:os.getcwd",
    ),
    "an impossible date": ("a: 2024-13-45\n", "x.yaml: no YAML: month"),
    "an endless number": (f"a:\n- {'1' * 5000}\n", "x.yaml:2: found an integer of 5,000 digits, expected at most 300"),
    "bytes": ("a: 1\nb: !!binary R0lGOD\n", "x.yaml:2: found the tag binary, expected a plain value"),
    "a number as a key": ("a: 1\n1: 2\n", "x.yaml:2: found '1' as a key, expected the name of a setting"),
    "no key": ("a: 1\n~: 2\n", "x.yaml:2: found '~' as a key"),
    "a list as a key": ("a:\n  b: 1\n  ? [c, d]\n  : 2\n", "x.yaml:3: found a list or a mapping as a key"),
    "an octal number": ("a:\n  b: 0100\n", "x.yaml:2: YAML reads 0100 as octal or of base 60"),
    "a time": ("a: 12:00:00\n", "x.yaml:1: YAML reads 12:00:00 as octal or of base 60"),
}


def test_a_time_that_yaml_reads_as_text_is_accepted():
    assert yaml.safe_load("a: 00:12:00:00") == {"a": "00:12:00:00"}
    assert check_yaml("a: 00:12:00:00\n", "x.yaml") is not None


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_file_is_refused_in_one_line_and_soon(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(text)
    began = time.perf_counter()
    with pytest.raises(YamlFileError, match=message) as error:
        read_yaml(tmp_path / "x.yaml")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert time.perf_counter() - began < 5


def test_a_path_that_is_no_file_of_text_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "latin").write_bytes("a: 1\nb: größe\n".encode("latin-1"))
    (tmp_path / "wide").write_bytes("a: 1\n".encode("utf-16"))
    (tmp_path / "large").write_bytes(b"a: " + b"x" * MAX_BYTES)
    for name, message in (
        ("", "found a directory; expected a YAML file"),
        ("fifo", "found no regular file"),
        ("latin", r"latin:2: found byte 0xf6, which is not UTF-8"),
        ("wide", "wide:1: found byte 0xff"),
        ("large", r"found 500,003 bytes; a config has at most 500,000 bytes"),
    ):
        with pytest.raises(YamlFileError, match=message):
            read_yaml(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_yaml(tmp_path / "absent")


@settings(max_examples=50)
@given(_SETTINGS)
def test_dumped_yaml_is_read_back(content):
    assert parse_yaml(yaml.safe_dump(content), "x") == content


def test_a_mapping_of_numbers_and_a_quoted_number_are_keys():
    """GradientAccumulationScheduler takes {epoch: batches}."""
    assert parse_yaml('a: {2: 4}\n"3": 1\n', "x") == {"a": {2: 4}, "3": 1}


def test_anchors_aliases_and_merges_are_read_as_before():
    text = "base: &base {a: 1, b: 2}\nfirst: {<<: *base, b: 3}\nsecond:\n  <<: [*base, {c: 4}]\nlist: [*base, *base]\n"
    assert parse_yaml(text, "x") == yaml.safe_load(text)
    assert parse_yaml(text, "x")["first"] == {"a": 1, "b": 3}


@settings(max_examples=50)
@given(_SETTINGS, _NAMES, st.lists(st.none(), max_size=3))
def test_a_key_that_stands_twice_is_refused_at_every_depth(content, name, levels):
    if name in ("n", "y"):  # no key of the alphabet, but YAML would read them as a boolean
        return
    lines = [*(f"{' ' * depth}level:" for depth in range(len(levels)))]
    indent = " " * len(levels)
    lines += [
        f"{indent}{name}: 1",
        f"{indent}other: {yaml.safe_dump(content, default_flow_style=True).splitlines()[0]}",
    ]
    lines += [f"{indent}{name}: 2"]
    with pytest.raises(YamlFileError):
        check_yaml("\n".join(lines), "x")
