"""Tests downloads: resumed, verified by a checksum, and complete or absent."""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datamodules.download import DownloadError, download, fetch_text
from tests.support.http_server import running

BODY = bytes(range(256)) * 4000
GOOD = "sha256:" + hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY; what it does wrong is set by the test."""

    daemon_threads = True
    body = BODY
    ranges = True  # honours Range
    cut_at: list[int]  # bytes after which the next connections are cut
    statuses: list[int]  # answers given before the real one
    requests: list[str]  # the Range header of each request, "" without
    wrong_range = False


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        byte_range = self.headers.get("Range", "")
        self.server.requests.append(byte_range)
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return
        body, start = self.server.body, 0
        if byte_range and self.server.ranges:
            start = int(byte_range.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            claimed = start + 1 if self.server.wrong_range else start
            self.send_header("Content-Range", f"bytes {claimed}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        stop = start + self.server.cut_at.pop(0) if self.server.cut_at else len(body)
        with contextlib.suppress(ConnectionError):  # a client that refuses hangs up
            self.wfile.write(body[start:stop])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.cut_at, server.statuses, server.requests = [], [], []
    with running(server):
        yield server


def fetch(server: Server, target: Path, checksum: str = GOOD, **options: object) -> Path:
    url = f"http://127.0.0.1:{server.server_address[1]}/file"
    return download(url, target, checksum, timeout=10, wait=0, **options)


def test_a_download_is_whole_and_done_once(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file.bin"
    assert fetch(server, target, progress=lambda *state: seen.append(state)) == target
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]
    fetch(server, target)
    assert len(server.requests) == 1, "a file that is there is not fetched again"


def test_an_interrupted_download_is_continued(server: Server, tmp_path: Path) -> None:
    server.cut_at = [100_000, 200_000]
    assert fetch(server, tmp_path / "f").read_bytes() == BODY
    assert server.requests == ["", "bytes=100000-", "bytes=300000-"]


def test_a_later_call_continues_the_download(server: Server, tmp_path: Path) -> None:
    server.cut_at = [100_000]
    with pytest.raises(DownloadError, match=r"1 attempts failed.*100000 of 1024000 bytes.*start again to resume"):
        fetch(server, tmp_path / "f", attempts=1)
    assert not (tmp_path / "f").exists()
    assert (tmp_path / "f.partial").stat().st_size == 100_000
    assert fetch(server, tmp_path / "f").read_bytes() == BODY
    assert server.requests == ["", "bytes=100000-"]


def test_a_server_without_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cut_at = False, [100_000]
    assert fetch(server, tmp_path / "f").read_bytes() == BODY
    assert len(server.requests) == 2


def test_a_server_that_sends_another_range_is_not_believed(server: Server, tmp_path: Path) -> None:
    server.wrong_range, server.cut_at = True, [100_000]
    with pytest.raises(DownloadError, match="requested bytes from 100000, received 'bytes 100001-"):
        fetch(server, tmp_path / "f", attempts=2)
    assert (tmp_path / "f.partial").read_bytes() == BODY[:100_000]


def test_remains_of_another_version_are_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.partial").write_bytes(b"x" * 1000)
    assert fetch(server, tmp_path / "f").read_bytes() == BODY
    assert server.requests == ["bytes=1000-", ""]


def test_remains_longer_than_the_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.partial").write_bytes(BODY + b"more")
    assert fetch(server, tmp_path / "f").read_bytes() == BODY


def test_remains_that_are_whole_only_lack_their_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.partial").write_bytes(BODY)
    assert fetch(server, tmp_path / "f").read_bytes() == BODY
    assert server.requests == [f"bytes={len(BODY)}-"]


def test_a_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    wrong = "md5:" + "0" * 32
    with pytest.raises(DownloadError, match=rf"checksum is md5:{hashlib.md5(BODY).hexdigest()}, expected {wrong}"):
        fetch(server, tmp_path / "f", wrong)
    assert list(tmp_path.iterdir()) == []
    assert len(server.requests) == 1


def test_a_file_that_is_there_but_wrong_is_not_overwritten(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"someone's own")
    with pytest.raises(DownloadError, match="exists, but its checksum is not"):
        fetch(server, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"someone's own"
    assert server.requests == []


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server: Server, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    assert fetch(server, tmp_path / "f").read_bytes() == BODY
    server.statuses = [404]
    with pytest.raises(DownloadError, match="the server returns 404"):
        fetch(server, tmp_path / "g")
    assert [path.name for path in tmp_path.iterdir()] == ["f"], "no empty remains"
    assert len(server.requests) == 4


def test_a_server_that_does_not_answer_is_an_error(tmp_path: Path, server: Server) -> None:
    with pytest.raises(DownloadError, match="2 attempts failed"):
        download("http://127.0.0.1:9/file", tmp_path / "f", GOOD, timeout=5, wait=0, attempts=2)


def test_a_second_process_waits(server: Server, tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / "f.partial").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="another process is downloading"):
            fetch(server, tmp_path / "f")
    assert fetch(server, tmp_path / "f").read_bytes() == BODY


def test_a_download_larger_than_the_free_space_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
    with pytest.raises(DownloadError, match=r"needs 1024000 more bytes, but .* has 1000 free"):
        fetch(server, tmp_path / "f")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/f", "no address"])
def test_addresses_other_than_http_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(DownloadError, match="expected an https"):
        download(url, tmp_path / "f", GOOD)
    with pytest.raises(DownloadError, match="expected an https"):
        fetch_text(url)


@pytest.mark.parametrize("checksum", ["", "c4d9eecfca2ab87c1945afe126590906", "md5:xyz", "crc:" + "0" * 32])
def test_a_checksum_has_an_algorithm(tmp_path: Path, checksum: str) -> None:
    with pytest.raises(ValueError, match="expected algorithm:hex digits"):
        download("https://example.org/f", tmp_path / "f", checksum)
