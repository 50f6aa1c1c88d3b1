"""What a fuzzer tries: for each reader a function that reads bytes, or raises an error for users.

``tests/faults/corpus/NAME.json`` lists inputs as strings whose characters are bytes. They are read
by ``tests/faults/test_corpus.py``, and are where ``benchmarks.checks.fuzz`` starts.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import rankfold as rf
from rankfold import storage
from rankfold.data.read.keyed_tables import open_table, open_texts
from rankfold.data.read.queries import QueryColumns, read_queries
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError
from rankfold.serve import schema
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.storage.manifest import dump

CORPUS = Path(__file__).parent / "faults" / "corpus"
EXPECTED = (UserError, HttpError)
SEPARATOR = b"\n=====\n"  # between the files of a folder

Target = Callable[[bytes, Path], object]


def prepared(name: str, **options: Any) -> Target:
    """Prepare the bytes as a file of this name."""

    def read(content: bytes, home: Path) -> None:
        rf.prepare(written(home / name, content), **options)

    return read


def prepared_folder(*names: str, **options: Any) -> Target:
    """Prepare the bytes as the files of a folder."""

    def read(content: bytes, home: Path) -> None:
        for name, part in zip(names, content.split(SEPARATOR), strict=False):
            written(home / name, part)
        rf.prepare(home, **options)

    return read


def queries(content: bytes, home: Path) -> None:
    path = written(home / "queries.csv", content)
    with storage.scratch() as scratch:
        rows = read_queries([path], QueryColumns(), Reading(scratch))
        if rows.texts is not None:
            list(rows.blocks(2))


def features_of_keys(content: bytes, home: Path) -> None:
    open_table(written(home / "features.csv", content))


def texts_of_keys(content: bytes, home: Path) -> None:
    open_texts(written(home / "texts.txt", content), None, None)


def manifest(content: bytes, home: Path) -> None:
    """A manifest as it is, and with a checksum that fits: anybody can write one."""
    written(home / storage.MANIFEST, content)
    try:
        storage.read(home)
    except UserError:
        body = parsed(content)
        if isinstance(body, dict):
            written(home / storage.MANIFEST, dump(body))
            storage.read(home).text("notes")


def file_of_folder(suffix: str, use: Callable[[storage.Folder], Any]) -> Target:
    """A file of a folder whose manifest fits."""

    def read(content: bytes, home: Path) -> None:
        sha = storage.manifest.digest(written(home / "file", content))
        path = (home / "file").rename(home / f"made-{sha[:16]}.{suffix}")
        entry = {"file": path.name, "size": len(content), "head": sha, "sha256": sha}
        body = {"format": 1, "kind": "data", "versions": {}, "files": {"made": entry}}
        written(home / storage.MANIFEST, dump(body))
        use(storage.read(home))

    return read


def body_of(model: type[schema.Body]) -> Target:
    return lambda content, _home: schema.parse_body(model, content)


TARGETS: dict[str, Target] = {
    "csv": prepared("t.csv"),
    "gzip": prepared("t.csv.gz"),
    "json-lines": prepared("t.jsonl"),
    "parquet": prepared("t.parquet"),
    "arrow": prepared("t.arrow"),
    "adjacency": prepared("t.txt"),
    "texts": prepared("t.csv", format="texts"),
    "text-lines": prepared("t.txt", format="texts"),
    "text-json": prepared("t.jsonl", format="texts"),
    "features": prepared("t.csv", format="features"),
    "keel": prepared("t.dat", format="features"),
    "arrays": prepared("t.npz", format="features"),
    "images": prepared_folder("a/0.png", "b/0.png", format="features", image_size=2),
    "xc": prepared_folder("train.txt", "test.txt", format="xc"),
    "xc-raw": prepared_folder("trn.json", "tst.json", "lbl.json", format="xc"),
    "queries": queries,
    "features-of-keys": features_of_keys,
    "texts-of-keys": texts_of_keys,
    "manifest": manifest,
    "tensors": file_of_folder("safetensors", lambda folder: folder.tensors("made")),
    "table": file_of_folder("parquet", lambda folder: folder.table("made")),
    "search": body_of(schema.search_request(Limits())),
    "grade": body_of(schema.grade_request(Limits())),
}


def defect(target: str, content: bytes, home: Path) -> BaseException | None:
    """Try an input in an empty folder: any exception that is not for users."""
    try:
        TARGETS[target](content, home)
    except EXPECTED as error:
        str(error).encode()  # it can be printed
    except (Exception, pl.exceptions.PanicException) as error:  # the latter is no Exception
        return error
    return None


def corpus(target: str) -> list[bytes]:
    texts = json.loads((CORPUS / f"{target}.json").read_text())
    return [text.encode("latin-1") for text in texts]


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
