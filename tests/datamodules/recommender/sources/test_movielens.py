"""Tests downloads of MovieLens: checksums, unpacked files, and refused archives."""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datamodules.download import DownloadError
from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.sources import movielens
from datamodules.recommender.sources.movielens import download_movielens
from datamodules.recommender.store.prepare import prepare_store
from tests.support.http_server import running

SMALL = {
    "ml-latest-small/ratings.csv": "userId,movieId,rating,timestamp\n1,10,5.0,9\n1,20,4.0,8\n",
    "ml-latest-small/movies.csv": 'movieId,title,genres\n10,"Made Up, The (2001)",Drama\n20,Other (2002),Drama\n',
    "ml-latest-small/README.txt": "the licence",
    "ml-latest-small/tags.csv": "not wanted",
}


def pack(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


class Mirror(ThreadingHTTPServer):
    daemon_threads = True
    files: dict[str, bytes]
    asked: list[str]

    def offer(self, archive: bytes) -> None:
        digest = hashlib.md5(archive).hexdigest()
        self.files = {
            "/ml-latest-small.zip": archive,
            "/ml-latest-small.zip.md5": f"MD5 (ml-latest-small.zip) = {digest}\n".encode(),
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = self.server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    server = Mirror(("127.0.0.1", 0), Handler)
    server.asked = []
    server.offer(pack(SMALL))
    with running(server):
        yield server


def get(mirror: Mirror, root: Path, name: str = "ml-latest-small") -> Path:
    return download_movielens(name, root / name, base_url=mirror.url, announce=lambda _: None, timeout=10, wait=0)


def test_download_unpacks_what_is_needed_and_only_once(mirror: Mirror, tmp_path: Path) -> None:
    reported: list[str] = []
    folder = download_movielens(
        "ml-latest-small", tmp_path / "set", base_url=mirror.url + "/", announce=reported.append, timeout=10
    )
    assert folder == tmp_path / "set"
    assert sorted(path.name for path in folder.iterdir()) == ["README.txt", "movies.csv", "ratings.csv"]
    assert [path.name for path in tmp_path.iterdir()] == ["set"], "no archive is left"
    assert "no redistribution" in reported[0]
    assert str(folder / "README.txt") in reported[0]
    assert download_movielens("ml-latest-small", folder, base_url=mirror.url) == folder
    assert mirror.asked == ["/ml-latest-small.zip.md5", "/ml-latest-small.zip"]
    store = prepare_store(folder, min_item_interactions=1)
    assert list(store.titles) == ["Other (2002)", "Made Up, The (2001)"]


def test_a_pinned_checksum_wins_over_the_published_one(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/ml-1m.zip"] = pack({"ml-1m/ratings.dat": "forged"})
    mirror.files["/ml-1m.zip.md5"] = hashlib.md5(mirror.files["/ml-1m.zip"]).hexdigest().encode()
    with pytest.raises(DownloadError, match="expected md5:c4d9eecfca2ab87c1945afe126590906"):
        get(mirror, tmp_path, "ml-1m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"<html>not found</html>", b"0" * 32 + b" a\n" + b"1" * 32 + b" b\n"])
def test_a_published_checksum_that_is_none(mirror: Mirror, tmp_path: Path, text: bytes) -> None:
    mirror.files["/ml-latest-small.zip.md5"] = text
    with pytest.raises(DownloadError, match="expected one MD5 checksum"):
        get(mirror, tmp_path)


def test_a_missing_checksum_file_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    del mirror.files["/ml-latest-small.zip.md5"]
    with pytest.raises(DownloadError, match=r"\.md5: HTTP Error 404.*check the address"):
        get(mirror, tmp_path)


def test_paths_in_the_archive_lead_nowhere(mirror: Mirror, tmp_path: Path) -> None:
    evil = {"../evil": "x", "/evil": "x", "ml-latest-small/../../evil": "x", "ml-latest-small/evil": "x"}
    mirror.offer(pack(SMALL | evil))
    root = tmp_path / "a" / "b"
    get(mirror, root)
    assert not list(tmp_path.rglob("evil"))
    assert not Path("/evil").exists()


def test_an_archive_that_unpacks_without_end_is_refused(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = movielens._ARCHIVES["ml-latest-small"]
    monkeypatch.setitem(movielens._ARCHIVES, "ml-latest-small", small._replace(largest=1000))
    mirror.offer(pack(SMALL | {"ml-latest-small/ratings.csv": "0" * 1001}))
    with pytest.raises(DownloadError, match="unpacks to more than 1000 bytes"):
        get(mirror, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ml-latest-small.zip"]


@pytest.mark.parametrize("archive", [b"no zip at all", pack({"ml-latest-small/ratings.csv": "x"}), pack(SMALL)[:-200]])
def test_an_archive_that_is_something_else(mirror: Mirror, tmp_path: Path, archive: bytes) -> None:
    mirror.offer(archive)
    with pytest.raises(DownloadError, match="not the expected archive"):
        get(mirror, tmp_path)
    assert not (tmp_path / "ml-latest-small").exists()


def test_a_folder_with_something_else_is_left_alone(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "ml-latest-small").mkdir()
    (tmp_path / "ml-latest-small" / "notes").write_text("mine")
    with pytest.raises(InteractionError, match="no interactions here.*found 'notes'"):
        get(mirror, tmp_path)
    assert mirror.asked == []


def test_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found MovieLens data set 'ml-2m', expected one of ml-100k, ml-1m"):
        download_movielens("ml-2m", tmp_path)


def test_every_set_unpacks_to_something_that_is_recognised() -> None:
    for archive in movielens._ARCHIVES.values():
        assert archive.members[0] in ("u.data", "ratings.dat", "ratings.csv")
        assert archive.md5 is None or len(archive.md5) == 32
