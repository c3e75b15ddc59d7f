"""Opening a picture file: RGB, upright, eight bits a channel, or an error that says why not."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from oncurve.errors import DataError
from oncurve.types import TaskImage

MIN_SIDE_PX = 8  # a smaller picture can't show a thing, let alone hold a box that means something


class ImageError(DataError):
    """A picture that can't be used. `reason` is a short slug that is counted, the message says it with the path."""

    def __init__(self, reason: str, path: Path, words: str):
        super().__init__(f"{path}: {words}")
        self.reason = reason


def open_image(path: Path) -> TaskImage:
    """The picture at `path`, decoded in full; of several frames the first.

    The EXIF orientation is applied. Grey, palette, CMYK and other modes become RGB (colour profiles are not applied).
    Transparent parts are composed over white. Sixteen-bit grey is scaled, 0..65535 to 0..255.

    Raises `ImageError` with reason `image_missing`, `image_unreadable`, `image_unknown` (not a picture),
    `image_damaged` (truncated as well), `image_values` (numbers without a declared range), `image_too_small` (a side
    under 8 px) or `image_too_large` (more pixels than Pillow's guard against decompression bombs allows).
    """
    try:
        with Image.open(path) as file:
            _check_size(path, *file.size)
            return TaskImage.of(_rgb(path, ImageOps.exif_transpose(file)), str(path))
    except (ImageError, MemoryError):
        raise
    except FileNotFoundError:
        raise ImageError("image_missing", path, "there is no such file") from None
    except (PermissionError, IsADirectoryError) as error:
        raise ImageError("image_unreadable", path, f"can't be read: {error.strerror}") from None
    except UnidentifiedImageError:
        raise ImageError("image_unknown", path, "not a picture in a format that Pillow reads") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError("image_too_large", path, str(error)) from None
    except Exception as error:  # decoders of broken files raise all kinds
        raise ImageError("image_damaged", path, f"truncated or damaged: {error}") from error


def _check_size(path: Path, width: int, height: int) -> None:
    if min(width, height) < MIN_SIDE_PX:
        raise ImageError("image_too_small", path, f"{width}x{height} px; each side must have at least {MIN_SIDE_PX} px")
    if Image.MAX_IMAGE_PIXELS and width * height > Image.MAX_IMAGE_PIXELS:
        raise ImageError(
            "image_too_large", path, f"{width}x{height} px, above {Image.MAX_IMAGE_PIXELS:,} pixels in all"
        )


def _rgb(path: Path, image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65_535:
            raise ImageError("image_values", path, f"grey values {values.min()} … {values.max()}; allowed: 0 … 65535")
        return Image.fromarray(np.rint(values / 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ImageError(
            "image_values", path, "floating-point pixels have no declared range; save it with 8 or 16 bits"
        )
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")
