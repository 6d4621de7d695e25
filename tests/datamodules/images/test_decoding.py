"""Tests image files of many kinds: each becomes the RGB that people see, or is refused by name."""

import io
import struct
import time
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from datamodules.images.decoding import decode, decode_pages
from engine.data.errors import BadSampleError
from tests.support.data_files.vision_language_files import encoded

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def decoded(data, max_pixels=10_000_000, **options):
    image = decode(data, "a.json, row 3", max_pixels, **options)
    assert image.mode == "RGB"
    return np.asarray(image)


def halves(left=RED, right=BLUE, size=(16, 8)):
    image = Image.new("RGB", size, left)
    image.paste(right, (size[0] // 2, 0, size[0], size[1]))
    return image


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "WEBP", "JPEG"])
def test_each_format_decodes_to_its_pixels(kind):
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95, "subsampling": 0}}
    pixels = decoded(encoded(halves(), kind, **options.get(kind, {})))
    assert pixels.shape == (8, 16, 3)
    assert np.abs(pixels.astype(int) - np.asarray(halves())).max() <= (8 if kind == "JPEG" else 0)


@pytest.mark.parametrize("kind", ["TIFF", "ICO", "PPM"])
def test_other_formats_are_refused(kind):
    with pytest.raises(BadSampleError, match=r"a.json, row 3: found .* expected an image \(JPEG, PNG, WEBP, GIF, BMP"):
        decoded(encoded(halves(size=(32, 32)), kind))


def test_an_animation_is_its_first_frame():
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, GREEN, BLUE)]
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True})):
        pixels = decoded(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options))
        assert (pixels == RED).all()


def test_transparent_pixels_become_white():
    rgba = Image.new("RGBA", (4, 4), (*RED, 255))
    rgba.paste((0, 0, 0, 0), (2, 0, 4, 4))
    rgba.putpixel((0, 0), (0, 0, 0, 128))
    pixels = decoded(encoded(rgba))
    assert (pixels[1, 1] == RED).all()
    assert (pixels[:, 2:] == WHITE).all()
    assert (pixels[0, 0] == 127).all()
    grey = Image.new("LA", (4, 4), (0, 0))
    assert (decoded(encoded(grey)) == WHITE).all()
    palette = halves().quantize(4)
    hidden = palette.getpixel((0, 0))
    pixels = decoded(encoded(palette, transparency=hidden))
    assert (pixels[:, :8] == WHITE).all()
    assert (pixels[:, 8:] == BLUE).all()
    assert (decoded(encoded(halves(), transparency=RED))[:, :8] == WHITE).all()  # a color that stands for nothing


def test_all_depths_and_color_spaces_are_decoded_to_rgb():
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    assert (decoded(encoded(Image.fromarray(ramp)))[..., 1] == ramp >> 8).all()
    bits = Image.new("1", (8, 8))
    bits.putpixel((3, 3), 1)
    assert decoded(encoded(bits)).sum() == 3 * 255
    assert (decoded(encoded(Image.new("L", (4, 4), 77))) == 77).all()
    assert (decoded(encoded(halves().quantize(4))) == np.asarray(halves())).all()
    ink = decoded(encoded(halves(left=WHITE).convert("CMYK"), "JPEG", quality=95))
    assert ink[4, 4].min() > 240
    assert ink[4, 12].argmax() == 2
    assert ink[4, 12, 2] > 200


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_the_camera_is_applied(orientation):
    """An image that is rotated according to its EXIF tag is upright after decoding."""
    upright = Image.new("RGB", (64, 32), BLUE)
    upright.paste(RED, (0, 0, 32, 16))
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Image.Transpose that the camera did
    lying = upright.transpose(Image.Transpose(undo[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = decoded(encoded(lying, "JPEG", exif=exif, quality=95)).astype(int)
    assert pixels.shape == (32, 64, 3)
    assert np.abs(pixels[4:12, 4:28] - RED).max() < 12
    assert np.abs(pixels[20:28, 36:60] - BLUE).max() < 12


def test_a_broken_tag_does_not_take_the_picture_along():
    data = encoded(halves(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05\x01\x12\0\x03")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decoded(data).shape == (8, 16, 3)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def bomb(width, height):
    """A PNG whose header promises so many pixels, in a few bytes; there is nothing behind it."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def test_bombs_are_refused_by_their_header():
    with pytest.raises(BadSampleError, match=r"row 3: .*5000 x 4000 = 20,000,000 pixels, expected at most 10,000,000"):
        decoded(bomb(5000, 4000))  # decoding would report that it is truncated
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BadSampleError, match="10000 x 10000"):  # Pillow would warn
            decoded(bomb(10_000, 10_000))
        with pytest.raises(BadSampleError, match="row 3: found an image of more than"):  # Pillow would refuse
            decoded(bomb(60_000, 60_000), max_pixels=10**12)
    assert decoded(encoded(halves()), max_pixels=128).shape == (8, 16, 3)
    with pytest.raises(BadSampleError, match="at most 127"):
        decoded(encoded(halves()), max_pixels=127)


def png_of(rows, depth, color, transparent=b"", size=(4, 4), interlaced=0):
    """A PNG of raw rows, each with the byte of its filter; Pillow writes neither all depths nor wrong lengths."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, color, 0, 0, interlaced))
    hidden = chunk(b"tRNS", transparent) if transparent else b""
    return b"\x89PNG\r\n\x1a\n" + header + hidden + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("depth", "color", "row"), [(8, 2, 13), (8, 6, 17), (8, 0, 5), (16, 0, 9), (1, 0, 2), (16, 2, 25)]
)
@pytest.mark.parametrize("value", [0, 255])
def test_a_png_with_too_few_rows_is_refused(depth, color, row, value):
    """Pillow would leave the others black."""
    rows = (b"\0" + bytes([value]) * (row - 1)) * 4
    assert decoded(png_of(rows, depth, color)).shape == (4, 4, 3)
    for left in (1, 2, 3):
        with pytest.raises(BadSampleError, match=rf"row 3: found pixels of {left * row} bytes, expected {4 * row} for"):
            decoded(png_of(rows[: left * row], depth, color))


@pytest.mark.parametrize("size", [(1, 1), (5, 1), (1, 5), (3, 3), (8, 8), (9, 5)])
def test_an_interlaced_png_with_too_few_rows_is_refused(size):
    width, height = size
    rows = []
    for x, y, across, down in (
        (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2),
    ):  # fmt: skip
        columns = len(range(x, width, across))
        rows += [b"\0" + b"\xff" * columns for _ in range(y, height, down)] if columns else []
    assert (decoded(png_of(b"".join(rows), 8, 0, size=size, interlaced=1)) == 255).all()
    for left in range(1, len(rows)):
        with pytest.raises(BadSampleError, match="row 3: found pixels of|cannot be decoded"):
            decoded(png_of(b"".join(rows[:left]), 8, 0, size=size, interlaced=1))


def test_a_transparent_gray_is_the_same_in_each_depth():
    """Pillow compares it with pixels that it has scaled to 8 bits."""
    for depth, rows in ((2, b"\0\x1b" * 4), (4, b"\0\x01\x23" * 4), (8, b"\0\0\1\2\3" * 4)):
        scale = 255 // (2**depth - 1)
        pixels = decoded(png_of(rows, depth, 0, struct.pack(">H", 2)))
        assert pixels[:, :, 1].tolist() == [[0, scale, 255, 3 * scale]] * 4
    rows = (b"\0" + struct.pack(">4H", 1000, 1001, 3, 0x8000)) * 4
    for hidden, expected in ((1000, [255, 3, 0, 128]), (3, [3, 3, 255, 128]), (128, [3, 3, 0, 128])):
        assert decoded(png_of(rows, 16, 0, struct.pack(">H", hidden)))[:, :, 1].tolist() == [expected] * 4


def test_a_transparent_color_of_16_bits_is_refused():
    """Pillow reads 8 of the 16 bits, which it would compare with all 16."""
    rows = (b"\0" + struct.pack(">12H", *(0x1234, 0x1235, 0x1236) * 4)) * 4
    assert decoded(png_of(rows, 16, 2)).max() == 0x12
    with pytest.raises(BadSampleError, match=r"row 3: found a PNG with 16 bits per channel and a transparent color"):
        decoded(png_of(rows, 16, 2, struct.pack(">3H", 0x1234, 0x1235, 0x1236)))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_a_truncated_image_is_refused(kind):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    data = encoded(noise, kind)
    for end in (len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(BadSampleError, match=r"row 3: found [\d,]+ bytes that begin with .* cannot be decoded"):
            decoded(data[:end])
    with pytest.raises(BadSampleError, match="row 3: found"):
        decoded(data[:5])


def test_corrupt_files_are_either_refused_or_decoded():
    """Whatever Pillow raises, the error names the sample."""
    generator = np.random.default_rng(0)
    noise = Image.fromarray(generator.integers(0, 256, (16, 16, 3), np.uint8))
    refused = 0
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP"):
        data = np.frombuffer(encoded(noise, kind), np.uint8)
        for _ in range(100):
            corrupt = data.copy()
            corrupt[generator.integers(0, len(data), 4)] = generator.integers(0, 256, 4)
            try:
                decoded(corrupt.tobytes(), max_pixels=100_000)
            except BadSampleError as error:
                refused += 1
                assert "row 3" in str(error)
    assert refused > 100


@pytest.mark.parametrize("data", [b"", b"not an image", b"<svg></svg>"])
def test_bytes_of_no_image_are_refused(data):
    with pytest.raises(BadSampleError, match="row 3: found .*expected an image|row 3: found no bytes"):
        decoded(data)


def test_a_far_larger_jpeg_is_decoded_smaller():
    ramp = np.linspace(0, 255, 1600, dtype=np.uint8)
    data = encoded(Image.fromarray(np.stack([np.tile(ramp, (800, 1))] * 3, -1)), "JPEG", quality=95)
    assert decoded(data).shape == (800, 1600, 3)
    assert decoded(data, needed=64).shape == (200, 400, 3)  # a quarter: at least twice what is needed
    assert decoded(data, needed=500).shape == (800, 1600, 3)
    small, full = (
        np.asarray(Image.fromarray(decoded(data, needed=needed)).resize((64, 64), Image.Resampling.BICUBIC)).astype(int)
        for needed in (64, None)
    )
    assert np.abs(small - full).max() <= 4


@pytest.mark.parametrize("kind", ["GIF", "BMP", "PNG"])
def test_no_image_is_without_pixels(kind):
    data = bytearray(encoded(Image.new("RGB", (3, 3)), kind))
    at, size = {"GIF": (6, 2), "BMP": (18, 4), "PNG": (16, 4)}[kind]
    data[at : at + size] = bytes(size)
    if kind == "PNG":
        data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    if kind == "GIF":  # Pillow takes the size of the frame
        assert decoded(bytes(data)).shape == (3, 3, 3)
        return
    with pytest.raises(BadSampleError, match="a.json, row 3: found"):
        decoded(bytes(data))


def test_a_message_is_one_line_whatever_the_file_holds():
    for data in (b"\n" * 50, b"GIF89a\n\n\n\n", encoded(halves())[:40]):
        with pytest.raises(BadSampleError) as error:
            decoded(data)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300


def test_the_pages_of_a_file_are_those_of_a_tiff_or_one():
    file = io.BytesIO()
    halves().save(file, "TIFF", save_all=True, append_images=[Image.new("RGB", (4, 4), GREEN)])
    pages = list(decode_pages(file.getvalue(), "scan.tif", 1000))
    assert [page.size for page in pages] == [(16, 8), (4, 4)]
    assert pages[1].getpixel((0, 0)) == GREEN
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, GREEN)]
    animation = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert [page.getpixel((0, 0)) for page in decode_pages(animation, "a.gif", 1000)] == [RED]


def test_a_jpeg_that_repeats_its_scans_is_refused_before_they_are_decoded():
    data = encoded(halves(size=(2000, 2000)), "JPEG", progressive=True)
    assert decoded(data, max_pixels=10**8).shape == (2000, 2000, 3)
    last = data.rindex(b"\xff\xda")
    start = time.process_time()
    with pytest.raises(BadSampleError, match=r"row 3: found a progressive JPEG of 2000 x 2000 pixels and 2,\d+ scans"):
        decoded(data[:last] + data[last:-2] * 2000 + data[-2:], max_pixels=10**8)
    assert time.process_time() - start < 1
