"""Image files. PNG has a plain reference; of the other formats only size and mode of a decoded image are checked."""

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz.mutations.byte_strings import mutate_bytes
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class Images(Reader):
    """Decoded pixels of one image of a folder."""

    seconds: ClassVar[float] = 5.0
    """The same image is allocated and reduced in 1 to 2.5 seconds."""

    megabytes: ClassVar[float] = 1024.0
    """An image with the most pixels that are decoded has 716 MB: 179 million in Pillow's 4 bytes each."""

    def seeds(self) -> Sequence[Input]:
        from PIL import Image

        found = []
        ramp = bytes((7 * x + 13 * y + 50 * c) % 256 for y in range(9) for x in range(11) for c in range(3))
        picture = Image.frombytes("RGB", (11, 9), ramp)
        for name, mode, options in (
            ("rgb.png", "RGB", {}),
            ("grey.png", "L", {}),
            ("palette.png", "P", {}),
            ("a.jpg", "RGB", {"quality": 90}),
            ("progressive.jpeg", "L", {"progressive": True}),
            ("a.webp", "RGB", {"lossless": True}),
            ("a.gif", "P", {}),
            ("a.bmp", "RGB", {}),
        ):
            file = io.BytesIO()
            picture.convert(mode).save(
                file, {"jpg": "JPEG", "jpeg": "JPEG"}.get(name.split(".")[1], name.split(".")[1]), **options
            )
            found.append(Input(name, file.getvalue()))
        return found

    def restructure(self, random: Random, data: bytes) -> bytes:
        """Mutate chunks of a PNG with right checksums, or the bytes of another format."""
        if not data.startswith(_SIGNATURE):
            return mutate_bytes(random, data)
        chunks = [(kind, content) for kind, content, _ in _chunks(data)]
        if not chunks:
            return mutate_bytes(random, data)
        index, other, kind = random.randrange(len(chunks)), random.randrange(len(chunks)), random.randrange(5)
        if kind == 0:
            del chunks[index]
        elif kind == 1:
            chunks.insert(other, chunks[index])
        elif kind == 2:
            chunks[index], chunks[other] = chunks[other], chunks[index]
        elif kind == 3:
            size = random.choice((0, 1, 12, 65_535, 2**31 - 1))
            header = struct.pack(">II", size, random.choice((9, 1, size))) + chunks[0][1][8:]
            chunks[0] = (chunks[0][0], random.choice((header, mutate_bytes(random, chunks[0][1]))))
        else:
            chunks[index] = (chunks[index][0], mutate_bytes(random, chunks[index][1]))
        return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)

    def read(self, path: Path) -> Any:
        import numpy as np

        from datamodules.image_classifier.sources.image_folder import read_unlabeled
        from datamodules.images.decoding import MAX_PIXELS, decode

        pixels = read_unlabeled(path.parent, (3, 8, 8)).read(np.zeros(1, np.int64))
        assert pixels.shape == (1, 3, 8, 8)
        image = decode(path.read_bytes(), str(path), MAX_PIXELS)
        return image.mode, image.size, image.tobytes() if image.width * image.height < 10_000 else b""

    def reference(self, path: Path) -> Any:
        data = path.read_bytes()
        if not data.startswith(_SIGNATURE):
            raise Unknown("only PNG has a plain reference")
        return _decoded(data)

    def names_location(self, message: str, data: bytes) -> bool:
        return True  # an offset in an image does not help the user


READERS = {"images": Images}


def write_images(folder: Path) -> None:
    """Write the images to which records refer: a.png and deep/b.jpg."""
    seeds = {seed.path: seed.data for seed in Images().seeds()}
    (folder / "deep").mkdir()
    (folder / "a.png").write_bytes(seeds["rgb.png"])
    (folder / "deep/b.jpg").write_bytes(seeds["a.jpg"])


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _chunks(data: bytes) -> list[tuple[bytes, bytes, bool]]:
    """Return (kind, content, whether the checksum is right) of each chunk up to IEND."""
    at, found = len(_SIGNATURE), []
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind, content, checksum = data[at + 4 : at + 8], data[at + 8 : at + 8 + length], data[at + 8 + length :][:4]
        if len(checksum) < 4:  # a PNG without its end is whole if it has all pixels
            return [*found, (kind, content, True)] if kind == b"IDAT" else found
        found.append((kind, content, zlib.crc32(kind + content) == int.from_bytes(checksum, "big")))
        at += 12 + length
        if kind == b"IEND":
            return found
    return found


def _decoded(data: bytes) -> tuple[str, tuple[int, int], bytes]:
    """Decode a PNG of 8 bits, grey or RGB, without transparency."""
    chunks = _chunks(data)
    last = max((index for index, (kind, _, _) in enumerate(chunks) if kind == b"IDAT"), default=-1)
    if any(not right and kind in (b"IHDR", b"PLTE", b"IDAT") for kind, _, right in chunks[: last + 1]):
        raise InvalidInput("a checksum is wrong")
    if [kind for kind, _, _ in chunks[:1]] != [b"IHDR"] or len(chunks[0][1]) != 13:
        raise Unknown("its chunks are in another order")
    kinds = [kind for kind, _, _ in chunks]
    width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if (
        kinds.count(b"IHDR") > 1
        or depth != 8
        or color not in (0, 2)
        or interlaced
        or b"tRNS" in kinds
        or b"eXIf" in kinds
    ):
        raise Unknown("the plain reference reads 8 bits, grey or RGB")
    channels = 1 if color == 0 else 3
    stride = width * channels
    try:
        # Without the checksum of the stream, which Pillow does not compare: the chunk's checksum has been compared.
        packed = b"".join(content for kind, content, _ in chunks if kind == b"IDAT")
        # Pillow reads no further than the last pixel.
        raw = zlib.decompressobj(-15).decompress(packed[2:], min(1_000_000, height * (stride + 1)))
    except zlib.error as error:
        raise InvalidInput(f"its pixels are corrupt: {error}") from error
    if len(raw) < height * (stride + 1):
        # Pillow leaves rows black that a sound stream lacks. No damage of a file leads to that, as checksums hold, and
        # to find it out costs a second decompression.
        raise Unknown("it was written with fewer rows than its header states")
    above, rows = bytes(stride), []
    for row in range(height):
        line = raw[row * (stride + 1) : (row + 1) * (stride + 1)]
        above = _unfiltered(line[0], line[1:], above, channels)
        rows.append(above)
    pixels = b"".join(rows)
    return "RGB", (width, height), pixels if channels == 3 else bytes(value for value in pixels for _ in range(3))


def _unfiltered(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    """Undo a filter of PNG (RFC 2083, section 6)."""
    if kind > 4:
        raise InvalidInput(f"it has the filter {kind}")
    found = bytearray(line)
    for at in range(len(line)):
        left, up = found[at - step] if at >= step else 0, above[at]
        corner = above[at - step] if at >= step else 0
        estimate = left + up - corner
        nearest = min((abs(estimate - value), index) for index, value in enumerate((left, up, corner)))[1]
        found[at] = (line[at] + (0, left, up, (left + up) // 2, (left, up, corner)[nearest])[kind]) % 256
    return bytes(found)
