import numpy as np
import pytest
from PIL import Image, ImageDraw

from oncurve.errors import DataError
from oncurve.tasks.images import ImageError, open_image


def reason(path):
    with pytest.raises(ImageError) as caught:
        open_image(path)
    assert isinstance(caught.value, DataError)
    assert str(path) in str(caught.value)
    return caught.value.reason


def test_rgb_is_kept_as_it_is(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = open_image(tmp_path / "a.png")
    assert image.pixels.mode == "RGB"
    assert image.pixels.size == (20, 12)
    assert np.array_equal(np.asarray(image.pixels), pixels)
    assert image.source == str(tmp_path / "a.png")


def test_hash_is_of_the_pixels_and_not_of_the_file(tmp_path):
    image = Image.new("RGB", (10, 10), "teal")
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "b.bmp")
    image.putpixel((3, 4), (0, 0, 0))
    image.save(tmp_path / "c.png")
    a, b, c = (open_image(tmp_path / name).sha256 for name in ("a.png", "b.bmp", "c.png"))
    assert a == b != c


# Where the stored top-left corner belongs: EXIF 2.32, tag 274.
@pytest.mark.parametrize(
    ("orientation", "corner", "size"),
    [
        (1, (0, 0), (40, 24)),
        (2, (39, 0), (40, 24)),
        (3, (39, 23), (40, 24)),
        (4, (0, 23), (40, 24)),
        (5, (0, 0), (24, 40)),
        (6, (23, 0), (24, 40)),
        (7, (23, 39), (24, 40)),
        (8, (0, 39), (24, 40)),
    ],
)
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_exif_orientation_is_applied(tmp_path, orientation, corner, size, suffix):
    stored = Image.new("RGB", (40, 24), "white")
    ImageDraw.Draw(stored).rectangle((0, 0, 7, 7), fill="red")
    exif = Image.Exif()
    exif[274] = orientation
    stored.save(tmp_path / f"a.{suffix}", exif=exif)
    pixels = open_image(tmp_path / f"a.{suffix}").pixels
    assert pixels.size == size
    red, green, _ = pixels.getpixel(corner)
    assert red > 240
    assert green < 40
    corners = {(x, y) for x in (0, size[0] - 1) for y in (0, size[1] - 1)}
    assert all(pixels.getpixel(other)[1] > 240 for other in corners - {corner})


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(tmp_path, suffix):
    values = np.full((8, 8), 40_000, np.uint16)
    values[0, :5] = 0, 257, 20_000, 32_896, 65_535
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    pixels = np.asarray(open_image(tmp_path / f"a.{suffix}").pixels)
    assert pixels[0, :6, 0].tolist() == [0, 1, 78, 128, 255, 156]
    assert np.array_equal(pixels[..., 0], pixels[..., 1])
    assert np.array_equal(pixels[..., 0], pixels[..., 2])


def test_sixteen_bit_pgm(tmp_path):
    values = np.array([[0, 257, 65_535, 32_896] * 2] * 8, ">u2")
    (tmp_path / "a.pgm").write_bytes(b"P5 8 8 65535\n" + values.tobytes())
    assert np.asarray(open_image(tmp_path / "a.pgm").pixels)[0, :4, 1].tolist() == [0, 1, 255, 128]


def test_cmyk_jpeg(tmp_path):
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    with Image.open(tmp_path / "a.jpg") as file:
        assert file.mode == "CMYK"
    assert np.allclose(open_image(tmp_path / "a.jpg").pixels.getpixel((8, 8)), (255, 0, 0), atol=3)


def test_grey_one_bit_and_palette(tmp_path):
    Image.new("L", (8, 8), 77).save(tmp_path / "grey.png")
    Image.new("1", (8, 8), 1).save(tmp_path / "bit.png")
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    palette.save(tmp_path / "palette.gif")
    found = [open_image(tmp_path / name).pixels.getpixel((3, 3)) for name in ("grey.png", "bit.png", "palette.gif")]
    assert found == [(77, 77, 77), (255, 255, 255), (10, 200, 30)]


def test_alpha_is_composed_over_white(tmp_path):
    rgba = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    rgba.putpixel((1, 0), (200, 0, 0, 255))
    rgba.putpixel((2, 0), (0, 0, 0, 102))
    rgba.save(tmp_path / "a.png")
    pixels = open_image(tmp_path / "a.png").pixels
    assert [pixels.getpixel((x, 0)) for x in range(3)] == [(255, 255, 255), (200, 0, 0), (153, 153, 153)]

    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "p.png", transparency=0)
    pixels = open_image(tmp_path / "p.png").pixels
    assert [pixels.getpixel((x, 0)) for x in range(2)] == [(255, 255, 255), (10, 200, 30)]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "gif", "tif", "bmp"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_truncated_files_are_errors_and_never_half_a_picture(tmp_path, suffix, share):
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(noise).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert reason(path) in ("image_damaged", "image_unknown")


def test_a_truncated_jpeg_says_so(tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("RGB", (64, 64), "olive").save(path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ImageError, match="truncated"):
        open_image(path)


def test_files_that_are_no_usable_picture(tmp_path):
    (tmp_path / "text.jpg").write_text("this is no picture")
    (tmp_path / "empty.png").touch()
    Image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(np.full((8, 8), 70_000, np.int32)).save(tmp_path / "int.tif")
    assert reason(tmp_path / "none.jpg") == "image_missing"
    assert reason(tmp_path) == "image_unreadable"
    assert reason(tmp_path / "text.jpg") == "image_unknown"
    assert reason(tmp_path / "empty.png") == "image_unknown"
    assert reason(tmp_path / "float.tif") == "image_values"
    assert reason(tmp_path / "int.tif") == "image_values"


@pytest.mark.parametrize("size", [(1, 1), (7, 100), (100, 7)])
def test_a_picture_that_is_too_small(tmp_path, size):
    Image.new("RGB", size).save(tmp_path / "a.png")
    assert reason(tmp_path / "a.png") == "image_too_small"


def test_eight_pixels_are_enough(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    assert open_image(tmp_path / "a.png").pixels.size == (8, 8)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    "limit", [6_000, 3_000]
)  # Pillow itself warns above the limit and refuses above twice the limit
def test_decompression_bombs(tmp_path, monkeypatch, limit):
    Image.new("RGB", (100, 80)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert reason(tmp_path / "a.png") == "image_too_large"
