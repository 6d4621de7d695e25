"""Downloads files, resumes after interruptions, and compares checksums.

Bytes are written to `NAME.partial`; a later call requests the rest (HTTP Range). A file gets its name only after its
checksum has been verified, so a file that exists is complete.
"""

import contextlib
import errno
import hashlib
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl

    _HAS_LOCKS = True
except ImportError:  # Windows
    _HAS_LOCKS = False

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received and the total number (None if the server does not report it)."""

_CHUNK = 1 << 18
# Time-outs, rate limits and failures of a gateway may pass; other errors (404, 403) will not.
_RETRIED_STATUS = (408, 429, 500, 502, 503, 504)


class DownloadError(OSError):
    """A download failed; the message names the address, the cause and what to do."""


class _Broken(Exception):
    """The connection failed or ended early; another attempt may resume."""


def download(
    url: str,
    target: Path,
    checksum: str,
    *,
    progress: Progress | None = None,
    timeout: float = 30.0,
    attempts: int = 4,
    wait: float = 1.0,
) -> Path:
    """Download a file, unless it exists, and verify its checksum.

    Args:
        url: http(s) address.
        target: path of the file; its folder is created.
        checksum: `algorithm:hex digits`, for example `md5:c4d9...`; any algorithm of hashlib.
        progress: called after every received block; None for no reports.
        timeout: seconds without data after which a connection counts as broken.
        attempts: number of connections; each resumes where the previous connection ended.
        wait: seconds before the second attempt, doubled with every further attempt.

    Raises:
        DownloadError: the server refuses, all attempts fail, or the checksum is wrong (the file is deleted then).
    """
    target = Path(target)
    digest = _digest_of(checksum)
    # An existing file may be the user's own, so it is compared and never overwritten.
    if target.is_file():
        if _hash(target, checksum) == digest:
            return target
        raise DownloadError(f"{target}: exists, but its checksum is not {checksum}; move it away and start again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _own_partial(target) as file:
        for attempt in range(attempts):
            resumed = file.seek(0, os.SEEK_END) > 0
            try:
                _fetch(url, file, progress, timeout)
            except _Broken as error:
                if attempt + 1 == attempts:
                    raise DownloadError(
                        f"{url}: {attempts} attempts failed, the last with: {error}. {file.tell()} bytes are kept in "
                        f"{file.name}; start again to resume"
                    ) from error
                time.sleep(wait * 2**attempt)
                continue
            file.flush()
            # A rename may reach the disk before the content of the file.
            os.fsync(file.fileno())
            found = _hash(Path(file.name), checksum)
            if found == digest:
                os.replace(file.name, target)
                return target
            # Bytes of an earlier call may belong to an older version of the file: retry once from the start.
            file.truncate(0)
            if not resumed:
                break
        raise DownloadError(
            f"{url}: checksum is {found}, expected {digest}; the file was deleted. It has changed at its source, or "
            "was altered on the way (by a proxy's error page?)"
        )


def fetch_text(url: str, *, timeout: float = 30.0, limit: int = 1 << 16) -> str:
    """Return a small text file, for example a published checksum."""
    try:
        with urllib.request.urlopen(_request(url), timeout=timeout) as response:
            return response.read(limit).decode("utf-8", errors="replace")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise DownloadError(f"{url}: {error}; check the address and the connection") from error


def _fetch(url: str, file: IO[bytes], progress: Progress | None, timeout: float) -> None:
    """Append the missing bytes; return after the server's last byte."""
    start = file.seek(0, os.SEEK_END)
    try:
        with urllib.request.urlopen(_request(url, start), timeout=timeout) as response:
            # A server that ignores the range sends the file from its first byte: write from there and drop the rest.
            start = _agreed_start(response, start)
            file.seek(start)
            file.truncate()
            length = response.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else None
            _check_space(url, Path(file.name), total, start)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                if progress:
                    progress(file.tell(), total)
            if total is not None and file.tell() < total:
                raise _Broken(f"{file.tell()} of {total} bytes received")
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:
            # No bytes are left: the file is complete, or longer than the server's. The checksum decides.
            return
        if error.code in _RETRIED_STATUS:
            raise _Broken(f"the server returns {error.code} {error.reason}") from error
        raise DownloadError(f"{url}: the server returns {error.code} {error.reason}; check the address") from error
    except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, ConnectionError, TimeoutError) as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _agreed_start(response: http.client.HTTPResponse, start: int) -> int:
    """Return where the received bytes belong: `start` if the server resumes, 0 if it ignores the range."""
    if response.status != 206:
        return 0
    sent = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if not sent or int(sent.group(1)) != start:
        raise _Broken(f"requested bytes from {start}, received {response.headers.get('Content-Range')!r}")
    return start


def _request(url: str, start: int = 0) -> urllib.request.Request:
    if urllib.parse.urlsplit(url).scheme not in ("https", "http"):
        raise DownloadError(f"{url}: expected an https (or http) address")
    # A compressed transfer cannot be resumed at a byte of the file.
    headers = {"User-Agent": "lockstep", "Accept-Encoding": "identity"}
    return urllib.request.Request(url, headers=headers | ({"Range": f"bytes={start}-"} if start else {}))


def _check_space(url: str, path: Path, total: int | None, start: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if total is not None and total - start > free:
        raise DownloadError(f"{url}: needs {total - start} more bytes, but {path.parent} has {free} free; make room")


@contextlib.contextmanager
def _own_partial(target: Path) -> Iterator[IO[bytes]]:
    """Open the partial file with an exclusive lock: two writers would mix their bytes."""
    path = target.with_name(target.name + ".partial")
    # "r+b" alone does not create a file, and "w+b" would truncate what an earlier call received.
    with open(path, "r+b", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666)) as file:
        busy = f"{path}: another process is downloading this file; wait until it ends, then start again"
        try:
            if _HAS_LOCKS:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DownloadError(busy) from error
        except OSError as error:
            # Some network file systems have no locks; only one process may download there.
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
                raise
        # Between open and lock, another process may have finished and renamed the file.
        if not path.exists() or not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            raise DownloadError(busy)
        try:
            yield file
        finally:
            file.flush()
            # Compare inodes: after the rename, the path may belong to another process.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()) and not path.stat().st_size:
                path.unlink()


def _digest_of(checksum: str) -> str:
    algorithm, _, digest = checksum.partition(":")
    if algorithm not in hashlib.algorithms_available or not re.fullmatch(r"[0-9a-fA-F]{32,}", digest):
        raise ValueError(f"found checksum {checksum!r}, expected algorithm:hex digits, for example md5:c4d9...")
    return f"{algorithm}:{digest.lower()}"


def _hash(path: Path, checksum: str) -> str:
    algorithm = checksum.partition(":")[0]
    # OpenSSL in FIPS mode refuses MD5 for security; here it detects transfer errors.
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"
