"""Writing a folder: data files first, then the manifest, which is replaced atomically."""

from __future__ import annotations

import hashlib
import io
import json
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.errors import UserError
from rankfold.storage.destination import check_writable, target
from rankfold.storage.disk import (
    CHUNK,
    Put,
    commit,
    filling,
    flush,
    new_file,
    new_name,
    replacing,
    write_errors,
)
from rankfold.storage.manifest import (
    CARD,
    CARD_MARK,
    FORMAT,
    HEAD,
    MANIFEST,
    NAME,
    Content,
    ForeignFile,
    ReusedFile,
    damaged,
    dump,
    versions,
)

if TYPE_CHECKING:
    from rankfold.types import Comm


def write(
    path: Path,
    kind: str,
    meta: Mapping[str, Any],
    files: Mapping[str, Content],
    comm: Comm | None = None,
    *,
    overwrite: bool = False,
    card: str | None = None,
) -> None:
    """Make ``path`` a folder that holds ``files``, or leave it unchanged.

    Args:
        path: a new folder, or one written by this function, which is replaced.
        kind: what the folder is, such as ``"model"``; readers check it.
        meta: plain JSON values, stored in the manifest.
        files: content by name: tensors (safetensors), a table (Parquet), a text (JSON), a file in
            another library's format, or a file of an opened folder.
        comm: several processes on one file system that write together, no two of them the same
            name. Rank 0 writes the manifest, with its own ``meta``, after all files.
        overwrite: also replace a folder of another kind.
        card: the text of ``README.md``, which replaces one with ``CARD_MARK``.
    """
    if comm is not None and comm.rank > 0:
        folder = Path(comm.texts("")[0])
        comm.texts(json.dumps(_write_files(folder, files)))
        comm.barrier()
        return
    check_writable(path, kind, overwrite=overwrite)
    needed = lambda: sum(map(_size, files.values()))  # noqa: E731
    with write_errors(path, needed), target(path.absolute()) as folder:
        if comm is not None:
            comm.texts(str(folder))
        entries = _write_files(folder, files)
        if comm is not None:
            for text in comm.texts(json.dumps(entries)):
                entries |= json.loads(text)
        if card is not None and _is_replaceable(folder / CARD):
            _replace(folder / CARD, card.encode(), as_name="card")
        about = {"format": FORMAT, "kind": kind, "versions": versions(), **meta, "files": entries}
        _replace(folder / MANIFEST, dump(about))
    if comm is not None:
        comm.barrier()


def write_text(path: Path, text: str) -> None:
    """Write a text file outside rankfold's folders, atomically."""
    content = text.encode()
    with write_errors(path, lambda: len(content)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, filling(temporary) as put:
            put(content)


def to_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """The text of a document, with a final newline.

    JSON has no NaN and no infinity. Python's own writer writes them anyway, and strict readers such
    as ``jq`` and browsers then refuse the whole document.
    """
    plain = _finite(document)
    return json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _size(content: Content) -> int:
    """The bytes that a file will have, about; 0: unknown."""
    if isinstance(content, ReusedFile):
        return int(content.entry["size"])
    if isinstance(content, ForeignFile):
        return 0
    if isinstance(content, Mapping):
        return sum(tensor.nbytes for tensor in content.values())
    return len(content) if isinstance(content, str) else int(content.estimated_size())


def _write_files(folder: Path, files: Mapping[str, Content]) -> dict[str, dict[str, Any]]:
    """Write all files; their manifest entries by name."""
    return {name: _write_file(folder, name, content) for name, content in files.items()}


def _write_file(folder: Path, name: str, content: Content) -> dict[str, Any]:
    assert NAME.fullmatch(name), name  # otherwise it would never be swept
    if isinstance(content, ReusedFile):
        return _reuse(folder, name, content)
    temporary = new_name(folder, f".{name}")
    new_file(temporary)
    sha256, head, size = hashlib.sha256(), hashlib.sha256(), 0
    with filling(temporary) as put:

        def note(piece: bytes | memoryview) -> int:
            nonlocal size
            for start in range(0, len(piece), CHUNK):
                part = memoryview(piece)[start : start + CHUNK]
                head.update(part[: max(0, HEAD - size)])
                sha256.update(part)
                size += put(part)
            return len(piece)

        suffix = _fill(content, note)
    entry: dict[str, Any] = {
        "file": f"{name}-{sha256.hexdigest()[:16]}.{suffix}",
        "size": size,
        "head": head.hexdigest(),
        "sha256": sha256.hexdigest(),
    }
    temporary.replace(folder / entry["file"])
    return entry


def _fill(content: Content, put: Put) -> str:
    """Write the bytes of a file; its suffix."""
    if isinstance(content, ForeignFile):
        content.write(put)
        return content.suffix
    if isinstance(content, str):
        put(content.encode())
        return "json"
    if isinstance(content, Mapping):
        from rankfold.storage.tensors import tensor_bytes  # needs torch

        for piece in tensor_bytes(content):
            put(piece)
        return "safetensors"
    assert not isinstance(content, ReusedFile)
    buffer = io.BytesIO()  # not written to a path: Polars expands patterns and ``~`` in paths
    content.write_parquet(buffer)
    put(buffer.getvalue())  # shared, not copied
    return "parquet"


def _reuse(folder: Path, name: str, reused: ReusedFile) -> dict[str, Any]:
    """The entry of a file that is already in ``folder``, or is copied into it."""
    source = reused.folder / reused.entry["file"]
    if not source.exists():
        raise UserError(f"{reused.folder} was replaced since it was opened", hint="open it again")
    if folder.exists() and reused.folder.samefile(folder):
        return dict(reused.entry)

    def copy(put: Put) -> None:
        with source.open("rb") as file:
            while piece := file.read(CHUNK):
                put(piece)

    copied = _write_file(folder, name, ForeignFile(source.suffix[1:], copy))
    if copied != reused.entry:
        raise damaged(reused.folder, f"{source.name} does not match its checksum")
    return copied


def _is_replaceable(card: Path) -> bool:
    """Whether there is no card, or one that rankfold wrote."""
    try:
        if not stat.S_ISREG(card.lstat().st_mode):
            return False
        with card.open("rb") as file:
            return CARD_MARK.encode() in file.read(CHUNK)
    except FileNotFoundError:
        return True


def _replace(path: Path, content: bytes, as_name: str | None = None) -> None:
    """Put the manifest at ``path``; the files that it names must be on disk before it is."""
    temporary = new_name(path.parent, f".{as_name or path.name}")
    new_file(temporary)
    with filling(temporary) as put:
        put(content)
    flush(path.parent)
    commit(temporary, path)
