"""Image files: a folder with one folder per grade, ``FOLDER/<grade>/*.png``, or single files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.read.reading import LINE, Reading
from rankfold.data.read.results import RawRows
from rankfold.errors import UserError, require

if TYPE_CHECKING:
    from PIL.Image import Image

_GREY_MODES = ("1", "L", "LA", "La")  # of Pillow
_MODES_OF_32_BITS = ("I", "F")  # the value of white is unknown
_FORMATS_OF_16_BITS = ("PNG", "PPM")  # their mode I has 16 bits: 65,535 is white
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".ppm")
_THUMBNAILS = "Thumbs.db"  # written by file managers


class ImageShape(NamedTuple):
    """The shape that images are converted to."""

    height: int
    width: int
    channels: int | None = None  # 1 grey, 3 colour; None: grey if all images are


class Album(NamedTuple):
    """Image files that belong together; each is known by its path relative to ``home``."""

    name: str
    home: Path
    files: Sequence[Path]


def album_of(folder: Path) -> Album:
    """All files of a folder, sorted by path."""
    files = (file for file in folder.rglob("*") if file.is_file() and not is_thumbnail_cache(file))
    return Album(folder.name or str(folder), folder, sorted(files))


def album_of_files(files: Sequence[Path], homes: Sequence[Path]) -> Album:
    """Some files; their home is the innermost common folder of ``homes``."""
    name = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    if len(set(homes)) == 1:
        return Album(name, homes[0], files)
    full = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100 - keeps links
    home = os.path.commonpath([os.path.abspath(home) for home in homes])  # noqa: PTH100
    return Album(name, Path(home), full)


def is_image(path: Path) -> bool:
    """Whether a path is an image file, by its suffix."""
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in SUFFIXES:
        return not path.is_dir()
    try:
        from PIL import Image
    except ImportError:
        return False
    return Image.registered_extensions().get(suffix) in Image.OPEN


def is_thumbnail_cache(path: Path) -> bool:
    """Whether a file belongs to a file manager. Hidden files are skipped by ``read``."""
    return path.name == _THUMBNAILS


def read(album: Album, shape: ImageShape, reading: Reading) -> RawRows:
    """All images of an album, in its order; an unusable file is recorded as a bad row.

    Each has its path as key, and the first folder of that path, if there is one, as grade.
    """
    require("PIL", "reading images", "images", "Pillow")
    home = album.home
    paths = {file: file.relative_to(home) for file in album.files}
    files = [f for f, path in paths.items() if not any(x.startswith(".") for x in path.parts)]
    named: list[tuple[str, NDArray[np.uint8]]] = []
    grey = True
    for number, file in enumerate(files):
        reading.progress(f"reading {album.name}", number / len(files))
        name = paths[file].as_posix()
        loaded = _load(file, shape)
        if isinstance(loaded, str):
            reading.bad.add(loaded, (Path(home.name) / name).as_posix())
            continue
        pixels, is_grey = loaded
        grey = grey and is_grey
        named.append((name, pixels))
    if not named:
        hint = reading.bad.hint("expected images in one folder per grade")
        raise UserError(f"{album.name} has no images", hint=hint)
    channels = shape.channels or (1 if grey else 3)
    names = pl.Series([name for name, _ in named], dtype=pl.String)
    parts = names.str.split("/")
    folders = pl.select(pl.when(parts.list.len() > 1).then(parts.list.first())).to_series()
    images = torch.from_numpy(np.stack([pixels[..., :channels] for _, pixels in named]))
    return RawRows(album.name, pl.DataFrame({LINE: names}), folders, names, images)


def check_size(images: Tensor, name: str) -> None:
    """A UserError for images [n, height, width, channels] without pixels."""
    height, width = images.shape[1:3]
    if not height or not width:
        raise UserError(
            f"the images of {name} have {height} x {width} pixels",
            hint="height and width must be at least 1",
        )


def _load(file: Path, shape: ImageShape) -> tuple[NDArray[np.uint8], bool] | str:
    """The pixels [height, width, 3] and whether they are grey; or why the file is unusable."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as raw:
            if raw.mode in _MODES_OF_32_BITS and not _has_16_bits(raw):
                return "an image of 32 bits per pixel: convert it to 8 or 16"
            is_grey = raw.mode in _GREY_MODES or _has_16_bits(raw)
            image = ImageOps.exif_transpose(_to_8_bits(raw))
            image = image.convert("L" if shape.channels == 1 else "RGB").convert("RGB")
            image = image.resize((shape.width, shape.height), Image.Resampling.BILINEAR)
            return np.asarray(image, dtype=np.uint8), is_grey
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return "a file that is not an image"


def _has_16_bits(image: Image) -> bool:
    return image.mode.startswith("I;16") or (
        image.mode == "I" and image.format in _FORMATS_OF_16_BITS
    )


def _to_8_bits(image: Image) -> Image:
    """An image of 16 bits as one of 8 bits; Pillow would clip it."""
    from PIL import Image

    if not _has_16_bits(image):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
