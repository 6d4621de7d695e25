"""Downloads MovieLens from GroupLens, verifies and unpacks it.

The license of MovieLens allows research and forbids redistribution, so the data are not in this repository. Cite F.
Maxwell Harper and Joseph A. Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015.
"""

import contextlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from datamodules.download import DownloadError, Progress, fetch_text
from datamodules.download import download as download_file
from datamodules.recommender.reading.file_formats import detect_layout

BASE_URL = "https://files.grouplens.org/datasets/movielens"

LICENSE = (
    "MovieLens {name} by GroupLens, University of Minnesota: for research; no commercial use and no redistribution "
    "without permission; cite Harper and Konstan 2015 (doi 10.1145/2827872). The full license: {readme}"
)


class _Archive(NamedTuple):
    """`NAME.zip`, whose files are in a folder `NAME`."""

    members: tuple[str, ...]  # members to unpack; the first has the interactions
    readme: str
    largest: int  # maximum size of an unpacked member, in bytes
    md5: str | None = None  # None: use the checksum that GroupLens publishes beside the archive


_CSV = ("ratings.csv", "movies.csv")
_ARCHIVES = {
    "ml-100k": _Archive(("u.data", "u.item", "u.user"), "README", 10 << 20, "0e33842e24a9c977be4e0107933c0723"),
    "ml-1m": _Archive(
        ("ratings.dat", "movies.dat", "users.dat"), "README", 64 << 20, "c4d9eecfca2ab87c1945afe126590906"
    ),
    "ml-25m": _Archive(_CSV, "README.txt", 2 << 30, "6b51fb2759a8657d3bfcbfc42b592ada"),
    "ml-32m": _Archive(_CSV, "README.txt", 2 << 30),
    # GroupLens updates this archive from time to time, so there is no fixed checksum.
    "ml-latest-small": _Archive(_CSV, "README.txt", 64 << 20),
}
NAMES = tuple(_ARCHIVES)


def download_movielens(
    name: str,
    root: Path,
    *,
    base_url: str = BASE_URL,
    progress: Progress | None = None,
    announce: Callable[[str], None] = print,
    timeout: float = 30.0,
    wait: float = 1.0,
) -> Path:
    """Download a data set and unpack it to the folder `root`, unless the folder has interactions.

    Args:
        name: one of `NAMES`.
        root: folder to unpack to.
        base_url: URL of the archives, for a mirror.
        progress: see `datamodules.download`; by default a progress bar in the terminal.
        announce: function that receives the license before the download.
        timeout: see `datamodules.download`.
        wait: see `datamodules.download`.

    Raises:
        ValueError: the name is unknown.
        InteractionError: the folder has other content.
        DownloadError: no connection, a wrong checksum, or an unexpected archive.
    """
    if name not in _ARCHIVES:
        raise ValueError(f"found MovieLens data set {name!r}, expected one of {', '.join(NAMES)}")
    archive, root = _ARCHIVES[name], Path(root)
    if root.is_dir() and any(root.iterdir()):
        # Raises an error unless the folder has interactions.
        detect_layout(root)
        return root
    announce(LICENSE.format(name=name, readme=root / archive.readme))
    url = f"{base_url.rstrip('/')}/{name}.zip"
    md5 = archive.md5 or _published_md5(f"{url}.md5", timeout)
    with _bar(f"{name}.zip") if progress is None else contextlib.nullcontext(progress) as report:
        packed = download_file(
            url, root.parent / f"{name}.zip", f"md5:{md5}", progress=report, timeout=timeout, wait=wait
        )
    _unpack(packed, name, root)
    packed.unlink()
    return root


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _published_md5(url: str, timeout: float) -> str:
    text = fetch_text(url, timeout=timeout)
    digests = re.findall(r"\b[0-9a-fA-F]{32}\b", text)
    if len(digests) != 1:
        raise DownloadError(f"{url}: found {text[:80]!r}, expected one MD5 checksum (32 hex digits)")
    return digests[0]


def _unpack(packed: Path, name: str, folder: Path) -> None:
    """Unpack the required members to a temporary folder and rename it.

    Members are opened by name, and the paths in the archive are not used, so no member can be written outside.
    """
    archive = _ARCHIVES[name]
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        with zipfile.ZipFile(packed) as opened:
            for member in (*archive.members, archive.readme):
                _unpack_member(opened, f"{name}/{member}", temporary / member, archive.largest)
        # mkdtemp creates a folder that only its owner can read.
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / archive.members[0]).is_file():
                raise
            # Another process finished first with the same archive.
    except (zipfile.BadZipFile, KeyError, NotImplementedError) as error:
        raise DownloadError(f"{packed}: not the expected archive: {error}; delete it and start again") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unpack_member(opened: zipfile.ZipFile, name: str, target: Path, largest: int) -> None:
    with opened.open(name) as source, target.open("wb") as file:
        written = 0
        while chunk := source.read(1 << 20):
            written += len(chunk)
            # Counted here, because the size stated in an archive cannot be trusted.
            if written > largest:
                raise DownloadError(f"{opened.filename}: {name} unpacks to more than {largest} bytes; refused")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
