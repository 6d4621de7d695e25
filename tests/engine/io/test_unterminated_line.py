"""A file that may be cut off is reported once for each folder."""

import pytest

from engine.io import unterminated_line


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch):
    monkeypatch.setattr(unterminated_line, "_warned", set())


@pytest.mark.parametrize("data", [b"", b"a\n", b"a\r\n", b"a\r"])
def test_a_file_that_ends_with_a_line_end_or_is_empty_is_not_reported(tmp_path, caplog, data):
    (tmp_path / "a.csv").write_bytes(data)
    unterminated_line.warn_if_unterminated(tmp_path / "a.csv")
    assert not caplog.records


def test_the_first_open_line_of_a_folder_is_reported(tmp_path, caplog):
    for name in ("a/1.csv", "a/2.csv", "b/3.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"time_ms,gpu_sm\n0,1\n100,16")
        unterminated_line.warn_if_unterminated(tmp_path / name)
    assert [record.getMessage().split(": the last line has no line end")[0] for record in caplog.records] == [
        str(tmp_path / "a/1.csv"),
        str(tmp_path / "b/3.csv"),
    ]
