"""A folder of images, one folder per grade in it: ``FOLDER/<grade>/*.png``; or some of them."""

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

from rankfold.data.read.files import Reading
from rankfold.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

GREY = ("1", "L", "LA", "La")  # modes of Pillow
DEEP = ("I", "F")  # of 32 bits: nobody says which value is white
SCALED = ("PNG", "PPM")  # whose mode I holds 16 bits: 65,535 is white
USUAL = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".ppm")
RESERVED = "Thumbs.db"  # written by file managers, as are hidden files


class Shape(NamedTuple):
    """What images are brought to."""

    height: int
    width: int
    channels: int | None = None  # 1 grey, 3 colour; None: grey where all images are


class Album(NamedTuple):
    """Image files that belong together: each is known by its path inside their home."""

    name: str
    home: Path
    files: Sequence[Path]


def album_of(folder: Path) -> Album:
    """All files of a folder, in the order of their names."""
    files = (file for file in folder.rglob("*") if file.is_file() and not is_reserved(file))
    return Album(folder.name or str(folder), folder, sorted(files))


def album_of_files(files: Sequence[Path], homes: Sequence[Path]) -> Album:
    """Some files; their home is the innermost folder that all of the ``homes`` are in, or are."""
    name = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    if len(set(homes)) == 1:
        return Album(name, homes[0], files)
    full = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100 - links stay as they are
    home = os.path.commonpath([os.path.abspath(home) for home in homes])  # noqa: PTH100
    return Album(name, Path(home), full)


def is_picture(path: Path) -> bool:
    """Whether a path is that of an image, by its name; a folder is none."""
    suffix = path.suffix.lower()
    return not path.is_dir() and (suffix in USUAL or _is_read_by_pillow(suffix))


def is_reserved(path: Path) -> bool:
    """Whether a file belongs to a file manager; hidden ones are told when images are read."""
    return path.name == RESERVED


def _is_read_by_pillow(suffix: str) -> bool:
    try:
        from PIL import Image
    except ImportError:
        return False
    return Image.registered_extensions().get(suffix) in Image.OPEN


class Pictures(NamedTuple):
    """The images of an album, in its order."""

    images: Tensor  # [n, height, width, channels] uint8
    names: pl.Series  # the path of each inside their home
    folders: pl.Series  # the first part of that path, null where it has only a file


def read(album: Album, shape: Shape, reading: Reading) -> Pictures:
    """All images of an album; a file that is none, or none of use, is noted as a bad row."""
    check_library()
    home = album.home
    files = [file for file in album.files if not _hidden(file.relative_to(home))]
    found: list[tuple[str, NDArray[np.uint8]]] = []
    grey = True
    for number, file in enumerate(files):
        reading.progress(f"reading {album.name}", number / len(files))
        name = file.relative_to(home).as_posix()
        loaded = _load(file, shape)
        if isinstance(loaded, str):
            reading.bad.add(loaded, (Path(home.name) / name).as_posix())
            continue
        pixels, is_grey = loaded
        grey = grey and is_grey
        found.append((name, pixels))
    if not found:
        raise UserError(
            f"{album.name} has no images",
            hint="; ".join(reading.bad.describe()) or "images stand in it, in a folder per grade",
        )
    channels = shape.channels or (1 if grey else 3)
    names = pl.Series([name for name, _ in found], dtype=pl.String)
    parts = names.str.split("/")
    folders = pl.select(pl.when(parts.list.len() > 1).then(parts.list.first())).to_series()
    images = np.stack([pixels[..., :channels] for _, pixels in found])
    return Pictures(torch.from_numpy(images), names, folders)


def check_size(images: Tensor, name: str) -> None:
    """A UserError for images [n, height, width, channels] without a pixel; one is enough."""
    height, width = images.shape[1:3]
    if not height or not width:
        raise UserError(
            f"the images of {name} are of {height} x {width} pixels",
            hint="they have a height and a width of 1 at least: was the array cut or reshaped?",
        )


def check_library() -> None:
    """A UserError where the library is missing."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise UserError(
            "folders of images need the library Pillow", hint="pip install 'rankfold[images]'"
        ) from None


def _load(file: Path, shape: Shape) -> tuple[NDArray[np.uint8], bool] | str:
    """The pixels [height, width, 3] and whether they are grey; or why there are none."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as raw:
            if raw.mode in DEEP and not _is_of_16_bits(raw):
                return "an image of 32 bits a pixel: convert it to 8 or 16"
            is_grey = raw.mode in GREY or _is_of_16_bits(raw)
            image = ImageOps.exif_transpose(_in_bytes(raw))
            image = image.convert("L" if shape.channels == 1 else "RGB").convert("RGB")
            image = image.resize((shape.width, shape.height), Image.Resampling.BILINEAR)
            return np.asarray(image, dtype=np.uint8), is_grey
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return "a file that is no image"


def _is_of_16_bits(image: Image) -> bool:
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in SCALED)


def _in_bytes(image: Image) -> Image:
    """An image of 16 bits as one of 8; Pillow would clip it."""
    from PIL import Image

    if not _is_of_16_bits(image):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
