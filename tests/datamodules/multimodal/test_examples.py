import json

import pytest

from datamodules.multimodal.examples import read_examples


def test_chats_are_read_with_all_that_stands_beside_them(tmp_path):
    path = tmp_path / "chats.jsonl"
    turns = [{"role": "user", "content": "Wie?"}, {"role": "assistant", "content": "Schön.", "weight": 1}]
    lines = [{"id": 4, "messages": turns, "csv": "a.csv"}, {"messages": turns[:1]}]
    path.write_text("\n\n".join(map(json.dumps, lines)))
    first, second = read_examples(path)
    assert first.messages == [turns[0], {"role": "assistant", "content": "Schön."}]
    assert first.fields == {"id": 4, "csv": "a.csv"} and first.name == f"{path}:1"
    assert second.name == f"{path}:3" and second.messages == turns[:1] and second.fields == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"messages": [', "not a line of JSON"),
        (b'{"messages": "\xff"}', "not a line of JSON"),
        (b"[1]", "found list"),
        (b'{"chat": [], "id": 1}', "found keys chat, id"),
        (b'{"messages": []}', "of at least one"),
        (b'{"messages": [{"role": "robot", "content": ""}]}', 'message 1 must have a role.*found {"role": "robot"'),
        (b'{"messages": [{"role": "user", "content": [1]}]}', "message 1 must have a role"),
        (b'{"messages": ["hello"]}', "message 1 must have a role"),
    ],
)
def test_a_line_that_is_no_chat_is_named(tmp_path, line, said):
    path = tmp_path / "chats.jsonl"
    path.write_bytes(b'{"messages": [{"role": "user", "content": "a"}]}\n' + line + b"\n")
    with pytest.raises(ValueError, match=f"chats.jsonl:2: .*{said}"):
        list(read_examples(path))
