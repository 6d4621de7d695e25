"""Detects files that are not plain UTF-8 text, by their first bytes."""

from pathlib import Path

BOM = b"\xef\xbb\xbf"
"""Byte-order mark of UTF-8, which a text file may start with."""

HEAD = 1 << 16
"""Bytes that are examined, and longest first line of a table."""

_SIGNATURES = (
    (b"\x1f\x8b", "a gzip file", "unpack it with gunzip"),
    (b"PK\x03\x04", "a zip archive or a spreadsheet", "unpack it, or export the sheet as CSV in UTF-8"),
    (b"BZh91AY&SY", "a bzip2 file", "unpack it with bunzip2"),
    (b"\xfd7zXZ\x00", "an xz file", "unpack it with unxz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", "unpack it with unzstd"),
    (b"PAR1", "a Parquet file", "give it the ending .parquet"),
    (b"SQLite format 3\x00", "an SQLite database", "export the table as CSV"),
    (b"%PDF-", "a PDF file", "export the table as CSV"),
    (b"\xff\xfe", "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
)


def detect_binary_format(path: Path) -> str | None:
    """Return what a file is and what to do, if it is not lines of UTF-8 text; None if it may be.

    Compressed files, archives, databases, UTF-16 and lines that end with CR alone are recognized.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    for signature, kind, advice in _SIGNATURES:
        if head.startswith(signature):
            return f"the file is {kind}, expected text in UTF-8; {advice}"
    first = head.partition(b"\n")[0]
    if b"\x00" in first:
        return "line 1: found a NUL byte, expected text in UTF-8; the file is binary, or UTF-16 without its mark"
    # A quoted field may contain a CR. Where only the first lines end with CR, `first` holds several of them.
    if b"\r" in first.rstrip(b"\r") and (b"\n" not in head or b'"' not in first):
        return (
            "line 1: found lines that end with CR alone, expected LF or CR LF; convert them: tr '\\r' '\\n' < OLD > NEW"
        )
    return None
