"""Tests that archives of Python's tarfile are read in each format, and that corruption is reported."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from datamodules.vision_language.shards import tar_index
from datamodules.vision_language.shards.tar_index import iter_members
from engine.determinism.stateless_rng import hash_bits

FILES = {"000.jpg": b"j" * 700, "000.json": b"{}", "empty.txt": b"", "ü" * 80 + "/" + "n" * 120 + ".png": b"p" * 512}


def archive(files=FILES, form=tarfile.PAX_FORMAT, **attributes):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in attributes.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_of_every_tar_format_are_found(form, keep):
    files = {name: data for name, data in FILES.items() if form != tarfile.USTAR_FORMAT or len(name) < 90}
    data = archive(files, form)
    members = list(iter_members(io.BytesIO(data), "a.tar", keep))
    assert {member.name: data[member.offset : member.offset + member.size] for member in members} == files
    assert [member.data for member in members] == [files[member.name] if keep else None for member in members]


def test_a_large_number_of_seconds_is_no_path():
    members = list(iter_members(io.BytesIO(archive(mtime=1.5)), "a.tar", keep=False))  # a pax header for each file
    assert [member.name for member in members] == list(FILES)


@pytest.mark.parametrize("keep", [False, True])
def test_a_truncated_archive_names_the_member_wherever_it_ends(keep):
    data = archive({"000.jpg": b"j" * 700, "001.jpg": b"k" * 700})
    end = len(data.rstrip(b"\0"))  # within the last file's last block
    for length in (*range(0, end, 100), end, -(-end // 512) * 512):
        with pytest.raises(ValueError, match="a.tar: the archive ends") as error:
            list(iter_members(io.BytesIO(data[:length]), "a.tar", keep))
    assert "001.jpg" in str(error.value)


def test_a_corrupt_header_is_no_end():
    data = bytearray(archive())
    at = data.index(b"empty.txt")
    data[at] ^= 1
    with pytest.raises(ValueError, match="a.tar: found no tar header at byte 3,072, after 000.json"):
        list(iter_members(io.BytesIO(bytes(data)), "a.tar", keep=False))


def test_a_compressed_archive_is_refused_in_words():
    for content in (b"short", hash_bits(np.arange(1000)).tobytes()):
        with pytest.raises(ValueError, match="a.tar.gz: .*ecompress a compressed archive"):
            list(iter_members(io.BytesIO(gzip.compress(content)), "a.tar.gz", keep=False))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(kind):
    with pytest.raises(ValueError, match="a.tar: 000.jpg is a link or a device"):
        list(iter_members(io.BytesIO(archive(type=kind, linkname="/etc/passwd")), "a.tar", keep=False))


def test_large_members_are_not_kept(monkeypatch):
    monkeypatch.setattr(tar_index, "MAX_BYTES", 600)
    members = list(iter_members(io.BytesIO(archive()), "a.tar", keep=True))
    assert [member.data and len(member.data) for member in members] == [None, 2, b"", 512]
    assert members[0].size == 700


def test_an_extended_header_is_bounded_and_whole():
    for header in (b"9999999 path=x\n", b"0 path=x\n", b"x"):
        bomb = tarfile.TarInfo("a")
        bomb.type, bomb.size = tarfile.XHDTYPE, len(header)
        data = bomb.tobuf(tarfile.USTAR_FORMAT) + header.ljust(512, b"\0")
        with pytest.raises(ValueError, match="corrupt extended header"):
            list(iter_members(io.BytesIO(data), "a.tar", keep=False))
    bomb.size = 1 << 30
    with pytest.raises(ValueError, match="extended header of 1,073,741,824 bytes"):
        list(iter_members(io.BytesIO(bomb.tobuf(tarfile.USTAR_FORMAT)), "a.tar", keep=False))


def header(size, kind=tarfile.REGTYPE):
    """A header whose size, twelve bytes, is taken as it is."""
    info = tarfile.TarInfo("a.jpg")
    info.type = kind
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT)[:512])
    block[124:136] = size
    block[148:156] = b"%06o\0 " % (sum(block) - sum(block[148:156]) + 8 * 32)
    return bytes(block)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("size", [b"-0000001000\0", b"\x80" + b"\xff" * 11, b"\x80\0\0\0\0\x7f\0\0\0\0\0\0"])
def test_a_size_that_no_file_has_is_refused(size, keep):
    with pytest.raises(ValueError, match="the header of a.jpg states"):
        list(iter_members(io.BytesIO(header(size) + bytes(2048)), "a.tar", keep))


@pytest.mark.parametrize("keep", [False, True])
def test_a_size_beyond_the_archive_ends_it(keep):
    large = b"\x80" + (1 << 49).to_bytes(11, "big")
    with pytest.raises(ValueError, match="a.tar: the archive ends in a.jpg"):
        list(iter_members(io.BytesIO(header(large) + bytes(2048)), "a.tar", keep))


def test_a_large_size_is_read_as_gnu_writes_it():
    data = header(b"\x80" + (3).to_bytes(11, "big")) + b"abc".ljust(512, b"\0") + bytes(1024)
    assert [member.data for member in iter_members(io.BytesIO(data), "a.tar", keep=True)] == [b"abc"]


def test_a_folder_has_no_contents_whatever_its_header_holds():
    data = header(b"00000001000\0", tarfile.DIRTYPE) + archive({"1.jpg": b"j"})
    assert [member.name for member in iter_members(io.BytesIO(data), "a.tar", keep=False)] == ["1.jpg"]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a/../../b.jpg", "..", "..\\..\\b.jpg", "C:\\b.jpg", "\\\\host\\b.jpg"]
)
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_path_that_leaves_the_archive_is_refused(name, form):
    for written in (name, "d" * 120 + "/" + name):  # the second one in an extended header
        if ".." not in written and written != name:
            continue  # absolute at the beginning only
        with pytest.raises(ValueError, match=r"a.tar: found the file .*, expected a path inside the archive"):
            list(iter_members(io.BytesIO(archive({written: b"x"}, form)), "a.tar", keep=False))


def test_names_that_only_look_like_it_are_read():
    names = ["./000.jpg", "a..b.jpg", "v1..2/000.jpg", "...jpg", "10:30.jpg"]
    members = list(iter_members(io.BytesIO(archive(dict.fromkeys(names, b"x"))), "a.tar", keep=False))
    assert [member.name for member in members] == names


@pytest.mark.parametrize("name", ["a\nb\nc\nd.jpg", "x" * 100_000 + ".jpg", "\x1b[2J.jpg"])
def test_a_message_shows_a_strange_name_on_one_line(name):
    data = archive({name: b"x" * 600, "b.jpg": b"x"})
    assert [member.name for member in iter_members(io.BytesIO(data), "a.tar", keep=False)] == [name, "b.jpg"]
    with pytest.raises(ValueError) as error:
        list(iter_members(io.BytesIO(data[: data.index(b"x" * 600) + 512]), "a.tar", keep=False))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 700


def test_the_length_of_an_extended_record_has_few_digits():
    bomb = tarfile.TarInfo("a")
    bomb.type, bomb.size = tarfile.XHDTYPE, 10_000
    data = bomb.tobuf(tarfile.USTAR_FORMAT) + (b"9" * 9999 + b" ").ljust(10_240, b"\0")
    with pytest.raises(ValueError, match="a.tar: corrupt extended header .* at byte 512"):
        list(iter_members(io.BytesIO(data), "a.tar", keep=False))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("padding", [0, 10_240, 3 << 20])
def test_files_after_an_end_mark_are_not_lost(keep, padding):
    first, second = archive({"0.jpg": b"j"}), archive({"1.jpg": b"k"})
    assert len(list(iter_members(io.BytesIO(first + bytes(padding)), "a.tar", keep))) == 1
    with pytest.raises(ValueError, match="a.tar: the end mark at byte 1,536, after 0.jpg is followed by other bytes"):
        list(iter_members(io.BytesIO(first + bytes(padding) + second), "a.tar", keep))


def test_an_erased_header_is_no_end():
    data = bytearray(archive())
    at = data.index(b"empty.txt")
    data[at : at + 512] = bytes(512)
    with pytest.raises(ValueError, match="a.tar: the end mark at byte 3,072, after 000.json is followed by other"):
        list(iter_members(io.BytesIO(bytes(data)), "a.tar", keep=False))


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("slash", range(95, 105))
def test_a_long_path_is_a_file_wherever_its_short_name_is_cut(form, slash):
    name = "d" * slash + "/" + "n" * 120 + ".jpg"
    members = list(iter_members(io.BytesIO(archive({name: b"j" * 700, "b.jpg": b"k"}, form)), "a.tar", keep=True))
    assert [(member.name, member.size) for member in members] == [(name, 700), ("b.jpg", 1)]


@pytest.mark.parametrize("encoding", ["latin-1", "gbk"])
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_names_in_another_encoding_are_no_paths_out_of_the_archive(encoding, form):
    names = {"latin-1": ["é.jpg", "é" * 150 + ".jpg"], "gbk": ["图.jpg", "图像" * 60 + ".jpg"]}[encoding]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding=encoding) as tar:
        for name in names if form == tarfile.GNU_FORMAT else names[:1]:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    actual = [member.name for member in iter_members(io.BytesIO(buffer.getvalue()), "a.tar", keep=False)]
    expected = [name.encode(encoding).decode("utf-8", "backslashreplace") for name in names]
    assert actual == (expected if form == tarfile.GNU_FORMAT else expected[:1])
