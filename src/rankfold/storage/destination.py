"""The place that a folder is written to: whether it is free, and which old files are removed."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from rankfold.errors import UserError
from rankfold.storage.disk import (
    MARK,
    beside,
    check_encodable,
    flush,
    locked_to_write,
    remove_stale,
    stale_beside,
    write_errors,
)
from rankfold.storage.manifest import CARD, DATA_FILE, MANIFEST, NAME, read_manifest

_UNFINISHED = re.compile(rf"\.({NAME.pattern}|{re.escape(MANIFEST)}){MARK.pattern}")


class OtherKindError(UserError):
    """A folder of another kind would be replaced."""


def check_writable(path: Path, kind: str, *, overwrite: bool = False) -> None:
    """A UserError if ``write`` must not replace ``path``; call it before long work."""
    check_destination(path)
    with write_errors(path):
        if (path / MANIFEST).exists():
            _check_replaceable(path, kind, overwrite=overwrite)
        elif path.exists() and not (path.is_dir() and all(map(_may_stay, path.iterdir()))):
            raise UserError(
                f"{path} exists and was not written by rankfold",
                hint="choose another --out; nothing was changed",
            )


def check_destination(path: Path) -> None:
    """A UserError if no file or folder can be created at ``path``, or in it if it is a folder."""
    check_named(path)
    with write_errors(path):
        if path.is_symlink() and not path.exists():
            raise UserError(f"{path} is a link that leads nowhere", hint="choose another --out")
        folder = path if path.is_dir() else path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}", hint="create it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder} is not writable", hint="choose another folder, or change its permissions"
            )
        with TemporaryFile(prefix=".writing-probe_", dir=folder):
            pass  # permissions are not enough: root may write anywhere, but not into /sys


def sweep(path: Path) -> None:
    """Remove the files that earlier writes left; readers that opened the folder may miss them."""
    with write_errors(path):
        remove_stale(path)
        with locked_to_write(path):
            _sweep(path)
            flush(path)


def leftovers(path: Path) -> list[Path]:
    """The files that ``sweep`` removes, if no write of them still runs."""
    with write_errors(path):
        return [*_unnamed(path), *stale_beside(path)]


def foreign(path: Path) -> list[Path]:
    """What a folder holds besides, which rankfold never removes."""
    ours = {*_unnamed(path), path / MANIFEST, path / CARD, *_named(path)}
    return sorted(other for other in path.iterdir() if other not in ours)


def as_path(given: object) -> Path:
    """A path; a UserError for another type."""
    if not isinstance(given, str | Path):
        got = type(given).__name__
        raise UserError(f"expected a path, got {got}", hint='write a name such as "model"')
    return Path(given)


def check_named(path: Path) -> None:
    """A UserError for a path that names no folder or file: the root, or the parent folder."""
    check_encodable(path)
    if path.absolute().name in ("", ".."):
        raise UserError(f"{path} cannot be replaced", hint="give --out the name of a new folder")


@contextmanager
def target(path: Path) -> Iterator[Path]:
    """The folder to write into: ``path``, or a new one beside it that is renamed at the end."""
    if not path.is_dir():
        with beside(path, Path.mkdir) as folder:
            yield folder
            folder.rename(path)
            with suppress(OSError):  # the folder is complete; at worst a power cut undoes it
                flush(path.parent)
        return
    remove_stale(path)
    with locked_to_write(path):
        _sweep(path)
        try:
            yield path
        except BaseException:
            with suppress(OSError, UserError):
                _sweep(path)  # do not leave a full disk fuller
            raise


def _check_replaceable(path: Path, kind: str, *, overwrite: bool) -> None:
    hint = "choose another --out, or remove the folder first"
    try:
        present = read_manifest(path)["kind"]
    except UserError as error:
        raise UserError(str(error), hint=hint) from None
    if present != kind and not overwrite:
        hint = f"{hint}, or use --overwrite" if kind == "data" else hint
        raise OtherKindError(
            f"{path} is a {present} folder; a {kind} folder must not replace it", hint=hint
        )


def _sweep(folder: Path) -> None:
    for path in _unnamed(folder):
        path.unlink()


def _unnamed(folder: Path) -> list[Path]:
    """Rankfold's files that the manifest does not name."""
    named = _named(folder)
    return sorted(path for path in folder.iterdir() if path not in named and _is_ours(path))


def _named(folder: Path) -> set[Path]:
    present = (folder / MANIFEST).exists()
    files = read_manifest(folder)["files"] if present else {}
    return {folder / entry["file"] for entry in files.values()}


def _may_stay(path: Path) -> bool:
    """Whether a folder with this file can be written to: a killed write may leave its card."""
    return path.name == CARD or _is_ours(path)


def _is_ours(path: Path) -> bool:
    """Whether a write left this file, finished or not; False for the manifest."""
    name = path.name
    return bool(DATA_FILE.fullmatch(name) or _UNFINISHED.fullmatch(name)) and not path.is_dir()
