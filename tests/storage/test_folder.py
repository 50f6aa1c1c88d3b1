"""A folder is what was written, or it is refused: never half of it, never a traceback."""

import errno
import fcntl
import hashlib
import json
import math
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from rankfold.errors import UserError
from rankfold.storage import folder as store

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]
ONE_FOLDER = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def content(version: int) -> dict[str, store.Content]:
    """Two files that both tell their version."""
    return {
        "numbers": {"values": torch.full((5, 3), float(version)), "all": torch.ones(3) > 0},
        "keys": pl.DataFrame({"key": [f"{version}-{row}" for row in range(4)]}),
    }


def write(path: Path, version: int = 1, kind: str = "model") -> None:
    store.write(path, kind, {"version": version}, content(version))


def version_in(folder: store.Folder) -> int:
    """The version of an opened folder, all of its content compared."""
    version: int = folder.manifest["version"]
    expected = content(version)
    assert same(folder.tensors("numbers"), expected["numbers"])
    assert folder.table("keys").equals(expected["keys"])
    return version


def version_at(path: Path) -> int:
    return version_in(store.read(path, "model", full=True))


def same(found: Mapping[str, Tensor], expected: Any) -> bool:
    return found.keys() == expected.keys() and all(
        found[name].dtype == tensor.dtype
        and found[name].shape == tensor.shape
        and bits(found[name]) == bits(tensor)
        for name, tensor in expected.items()
    )


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def files_of(path: Path) -> list[Path]:
    return sorted(path.iterdir())


def file_of(path: Path, name: str) -> Path:
    return store.open_folder(path).file(name)


def refusal(*arguments: Any, **options: Any) -> str:
    """What ``store.read`` says against a folder."""
    with pytest.raises(UserError) as caught:
        store.read(*arguments, **options)
    assert caught.value.hint
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write(path)
    return path


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: only a power cut would show it."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)


# ---------------------------------------------------------------------------------- round trip


def shapes_of(dtype: torch.dtype) -> dict[str, Tensor]:
    """Tensors of all layouts, filled with random bits, NaN among them where there is NaN."""
    rng = torch.Generator().manual_seed(0)
    width = torch.empty((), dtype=dtype).element_size()
    noise = torch.randint(0, 256, (24 * width,), dtype=torch.uint8, generator=rng)
    flat = noise % 2 == 0 if dtype == torch.bool else noise.view(dtype)
    matrix = flat.reshape(4, 6)
    return {
        "matrix": matrix,
        "scalar": flat[5],
        "single": flat[5:6],
        "empty": flat[:0],
        "no rows": matrix[:0],
        "no columns": matrix[:, :0],
        "transposed": matrix.T,
        "strided": flat[1::3],
        "expanded": flat[:1].expand(7),
        "cube": flat.reshape(2, 3, 4).permute(2, 0, 1),
    }


def test_tensors_without_entries_come_back(tmp_path: Path) -> None:
    """Also one that NumPy made, which has no strides."""
    none = {"tokens": torch.from_numpy(np.concatenate([np.empty(0, np.int32)])), "n": torch.ones(2)}
    store.write(tmp_path / "f", "model", {}, {"texts": none})
    found = store.read(tmp_path / "f", "model", full=True).tensors("texts")
    assert found["tokens"].shape == (0,)
    assert found["tokens"].dtype == torch.int32
    assert torch.equal(found["n"], torch.ones(2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_are_what_the_library_reads_and_writes(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = shapes_of(dtype)
    store.write(tmp_path / "ours", "model", {}, {"t": tensors})
    ours = store.read(tmp_path / "ours", "model", full=True)
    assert same(ours.tensors("t"), tensors)
    assert same(load_file(ours.file("t")), tensors)

    save_file({n: t.contiguous().clone() for n, t in tensors.items()}, tmp_path / "theirs")
    forge_file(tmp_path / "ours", "t", (tmp_path / "theirs").read_bytes())
    assert same(store.read(tmp_path / "ours", "model", full=True).tensors("t"), tensors)


@given(st.dictionaries(st.text(max_size=5), st.sampled_from(DTYPES), max_size=6), st.data())
@ONE_FOLDER
def test_mixed_tensors_of_any_name_are_aligned(
    tmp_path: Path, dtypes: dict[str, torch.dtype], data: st.DataObject
) -> None:
    tensors = {
        name: torch.zeros(data.draw(st.lists(st.integers(0, 3), max_size=3)), dtype=dtype)
        for name, dtype in dtypes.items()
    }
    store.write(tmp_path / "mixed", "model", {}, {"t": tensors})
    read = store.open_folder(tmp_path / "mixed", full=True)
    assert same(read.tensors("t"), tensors)
    assert same(load_file(read.file("t")), tensors)
    assert all(t.data_ptr() % t.element_size() == 0 for t in read.tensors("t").values())


def test_a_tensor_that_learns_is_written_as_it_is(tmp_path: Path) -> None:
    weights = torch.nn.Parameter(torch.ones(2, 2))
    store.write(tmp_path / "m", "model", {}, {"t": {"w": weights}})
    assert torch.equal(store.open_folder(tmp_path / "m").tensors("t")["w"], torch.ones(2, 2))


def test_the_pieces_in_which_a_file_is_written_do_not_show(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "CHUNK", 7)
    write(tmp_path / "pieces")
    assert {p.name: p.read_bytes() for p in files_of(tmp_path / "pieces")} == {
        p.name: p.read_bytes() for p in files_of(folder)
    }


@pytest.mark.parametrize(
    "table",
    [
        pl.DataFrame({"key": ["", "a", "grün", "\N{SNOWMAN}", "two\nlines", "\0"]}),
        pl.DataFrame({"key": [-(2**63), 0, 2**63 - 1], "x": [0.5, None, math.inf]}),
        pl.DataFrame({"key": pl.Series([], dtype=pl.String)}),
        pl.DataFrame(),
    ],
    ids=["text", "numbers", "no rows", "nothing"],
)
def test_tables_are_read_back(table: pl.DataFrame, tmp_path: Path) -> None:
    store.write(tmp_path / "d", "data", {}, {"keys": table})
    found = store.read(tmp_path / "d", "data", full=True).table("keys")
    assert found.schema == table.schema
    assert found.equals(table)


def test_the_manifest_keeps_what_it_was_given(tmp_path: Path) -> None:
    meta = {
        "text": 'grün, "quoted", \N{SNOWMAN}',
        "name of a file that is not UTF-8": "caf\udce9.csv",
        "numbers": [0.1, 1e300, math.inf, 2**70, -0.0, True, None],
        "nested": {"a": [{"b": []}]},
    }
    store.write(tmp_path / "d", "data", meta, {})
    manifest = store.read(tmp_path / "d", "data", full=True).manifest
    assert {name: manifest[name] for name in meta} == meta
    assert manifest["versions"].keys() == {"rankfold", "torch", "numpy", "python"}


def test_tensors_are_memory_mapped_and_not_written_through(folder: Path) -> None:
    opened = store.read(folder, "model")
    held = opened.tensors("numbers")["values"]
    path = opened.file("numbers")
    before = path.read_bytes()
    held[0, 0] = 7.0
    assert path.read_bytes() == before
    untouched = opened.tensors("numbers")["values"]
    with path.open("r+b") as file:
        file.seek(before.index(torch.tensor(1.0).numpy().tobytes()))
        file.write(torch.tensor(5.0).numpy().tobytes())
    assert untouched[0, 0] == 5.0  # a copy would still say 1


NAMES = [
    "plain",
    "two words",
    "grün\N{SNOWMAN}",
    "run[1]",
    "what?*",
    "seed=1",
    "~",
    "-x",
    "a.b",
    "'",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spelling", ["{}", "./{}/", "{}//", "../{home}/{}"])
def test_any_name_of_a_folder_will_do(
    name: str, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    path = Path(spelling.format(name, home=tmp_path.name))
    for version in (1, 2):
        write(path, version)
        assert version_at(path) == version
    assert names(tmp_path) == {name}


def test_a_name_full_of_patterns_touches_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / ".abc.writing-1-00000000").mkdir()
    (tmp_path / ".abc.writing-notes").mkdir()
    write(tmp_path / "a*")
    assert version_at(tmp_path / "a*") == 1
    assert len(names(tmp_path)) == 3


def test_here_and_a_link_are_folders_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    write(Path(), 1)
    assert version_at(Path()) == version_at(here) == 1
    write(tmp_path / "link", 2)
    assert version_at(Path()) == version_at(tmp_path / "link") == 2
    assert (tmp_path / "link").is_symlink()


def test_an_opened_folder_stays_open_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    opened = store.read(Path("model"), "model")
    monkeypatch.chdir("/")
    assert version_in(opened) == 1


# ---------------------------------------------------------------------------------- replacing


class Watched(Mapping[str, store.Content]):
    """Files that call ``look`` before each of them is written, and after the last."""

    def __init__(self, version: int, look: Callable[[], None]) -> None:
        self.files = content(version)
        self.look = look

    def __getitem__(self, name: str) -> store.Content:
        self.look()
        return self.files[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.files
        self.look()

    def __len__(self) -> int:
        return len(self.files)


def test_a_new_folder_appears_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new"
    seen: list[bool] = []
    store.write(path, "model", {"version": 1}, Watched(1, lambda: seen.append(path.exists())))
    assert seen == [False] * 3
    assert version_at(path) == 1
    assert names(tmp_path) == {"new"}


def test_an_old_folder_is_whole_until_it_is_replaced(folder: Path) -> None:
    seen: list[int] = []
    store.write(
        folder, "model", {"version": 2}, Watched(2, lambda: seen.append(version_at(folder)))
    )
    assert seen == [1] * 3
    assert version_at(folder) == 2


def test_old_files_stay_until_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "model"
    named = []
    for version in range(4):
        write(path, version)
        manifest = store.open_folder(path).manifest
        named.append({entry["file"] for entry in manifest["files"].values()})
        assert names(path) == {"manifest.json"}.union(*named[-2:])
    assert len(set.union(*named)) == 8


def test_foreign_files_are_never_removed(folder: Path) -> None:
    foreign = {"README.md", "keys.parquet", "Keys-0123456789abcdef.parquet", ".writing-notes.md"}
    foreign |= {"keys-0123456789abcdef.txt", "keys-0123456789ABCDEF.parquet", ".writing-"}
    for name in foreign:
        (folder / name).write_text("mine")
    (folder / "keys-0123456789abcdef.parquet").mkdir()
    for version in (2, 3):
        write(folder, version)
    assert all((folder / name).read_text() == "mine" for name in foreign)
    assert (folder / "keys-0123456789abcdef.parquet").is_dir()
    assert version_at(folder) == 3


def test_leftovers_of_killed_writes_go_at_the_next_write(folder: Path) -> None:
    before = names(folder)
    for name in (".writing-numbers", ".writing-manifest.json", "keys-0123456789abcdef.parquet"):
        (folder / name).write_text("half")
    beside = folder.with_name(".model.writing-1-01234567")
    shutil.copytree(folder, beside)
    assert version_at(folder) == 1
    write(folder, 1)
    assert names(folder) == before
    assert not beside.exists()


def test_a_killed_first_write_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.mkdir()
    for name in (".writing-numbers", ".writing-manifest.json"):
        (path / name).write_text("half")
    (path / "keys-0123456789abcdef.parquet").write_text("whole, but not named")
    assert "not a rankfold folder" in refusal(path, "model")
    write(path)
    assert version_at(path) == 1
    assert len(names(path)) == 3


@pytest.mark.parametrize("number", [1, os.getpid()], ids=["the first", "our own"])
def test_what_is_beside_goes_unless_it_is_still_being_written(number: int, tmp_path: Path) -> None:
    beside = tmp_path / f".model.writing-{number}-01234567"
    beside.mkdir()
    handle = os.open(beside, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        write(tmp_path / "model", 1)
        assert beside.exists()
    finally:
        os.close(handle)
    write(tmp_path / "model", 2)
    assert not beside.exists()


def test_a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    beside = tmp_path / ".model.writing-1-01234567"
    beside.mkdir()
    for version in (1, 2):
        write(tmp_path / "model", version)
        assert version_at(tmp_path / "model") == version
    assert beside.exists()  # somebody may still be writing it


@pytest.mark.parametrize("exists", [True, False])
def test_of_two_writers_one_is_refused(*, exists: bool, tmp_path: Path) -> None:
    """The second one would remove what the first has not named yet."""
    path = tmp_path / "model"
    if exists:
        write(path, 1)
    says: list[str] = []

    def write_too() -> None:
        try:
            write(path, 3)
        except UserError as error:
            says.append(str(error))

    first = lambda: store.write(path, "model", {"version": 2}, Watched(2, write_too))  # noqa: E731
    if exists:
        first()
        assert version_at(path) == 2
        assert says == [f"another process is writing {path}"] * 3
    else:
        with pytest.raises(UserError, match=f"cannot write {path}"):
            first()
        assert version_at(path) == 3
    assert names(tmp_path) == {"model"}


def test_a_folder_has_the_usual_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write(tmp_path / "model")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o750
    assert {stat.S_IMODE(p.stat().st_mode) for p in files_of(tmp_path / "model")} == {0o640}


def test_what_is_named_is_on_the_disk_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may lose what was not synchronised: data, then names, then the manifest."""
    events: list[tuple[str, ...]] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        opened = os.fstat(handle).st_ino
        synced = [p.name for p in (folder, *folder.iterdir()) if p.stat().st_ino == opened]
        events.append(("sync", *synced))
        fsync(handle)

    def note_replace(source: Path, target: Path) -> None:
        events.append((Path(source).name, Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    write(folder, 2)
    entries = store.open_folder(folder).manifest["files"]
    expected = []
    for name in ("numbers", "keys"):
        temporary = f".writing-{name}"
        expected += [("sync", temporary), (temporary, entries[name]["file"])]
    commit = (".writing-manifest.json", "manifest.json")
    assert events == [*expected, ("sync", commit[0]), ("sync", "model"), commit, ("sync", "model")]


# ---------------------------------------------------------------------------------- failing


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Stands for a full disk: a write beyond ``size`` bytes of a file fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


LARGE: list[store.Content] = [
    {"t": torch.zeros(50_000)},
    pl.DataFrame({"key": pl.int_range(50_000, eager=True).shuffle(seed=0)}),
]


@pytest.mark.parametrize("large", LARGE, ids=["tensors", "table"])
def test_a_full_disk_leaves_all_as_it_was(large: store.Content, folder: Path) -> None:
    before, new = names(folder), folder.with_name("new")
    files = {**content(2), "large": large}
    for path in (folder, new):
        with files_no_larger_than(20_000), pytest.raises(UserError) as caught:
            store.write(path, "model", {"version": 2}, files)
        assert str(caught.value) == f"cannot write {path}: File too large"
        assert "untouched" in caught.value.hint
    assert names(folder) == before
    assert version_at(folder) == 1
    assert names(folder.parent) == {"model"}


@pytest.mark.parametrize(
    ("meta", "tensor", "error"),
    [
        ({"x": object()}, torch.zeros(1), TypeError),
        ({}, torch.zeros(1, dtype=torch.complex64), KeyError),
        ({}, torch.zeros(1, device="meta"), NotImplementedError),
    ],
    ids=["meta", "type", "device"],
)
def test_a_bug_leaves_all_as_it_was(
    meta: dict[str, Any], tensor: Tensor, error: type[Exception], folder: Path
) -> None:
    before = snapshot(folder.parent)
    for path in (folder, folder.with_name("new")):
        with pytest.raises(error):
            store.write(path, "model", meta, {**content(2), "more": {"t": tensor}})
    assert snapshot(folder.parent) == before


def test_an_interrupted_write_leaves_all_as_it_was(folder: Path) -> None:
    def stop() -> None:
        if (folder / ".writing-numbers").exists() or len(names(folder)) > 3:
            raise KeyboardInterrupt

    before = snapshot(folder.parent)
    with pytest.raises(KeyboardInterrupt):
        store.write(folder, "model", {}, Watched(2, stop))
    assert snapshot(folder.parent) == before


CALLS = ["os.open", "os.fsync", "os.replace", "os.rename", "os.mkdir", "os.stat", "os.lstat"]
CALLS += ["os.listdir", "os.unlink", "io.open"]


@contextmanager
def failing_call(place: int) -> Iterator[list[str]]:
    """Let the ``place``-th call to the system fail, from 0; gives the calls that were made."""
    made: list[str] = []

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def fail_or_call(*arguments: Any, **options: Any) -> Any:
            made.append(name)
            if len(made) == place + 1:
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
            return call(*arguments, **options)

        return fail_or_call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            module, _, function = name.partition(".")
            real = getattr(sys.modules[module], function)
            patch.setattr(sys.modules[module], function, wrapped(name, real))
        yield made


@pytest.mark.parametrize("exists", [True, False])
def test_whatever_the_system_refuses_a_write_is_done_or_undone(
    *, exists: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    refused = set()
    for place in count():
        shutil.rmtree(path, ignore_errors=True)
        for version in (0, 1) if exists else ():
            write(path, version)
        expected: int | None = 2
        with failing_call(place) as calls:
            try:
                write(path, 2)
            except UserError:
                expected = 1 if exists else None
                refused.add(calls[place])
        assert (version_at(path) if path.exists() else None) == expected
        if len(calls) <= place:
            break
    assert refused >= {"os.fsync", "os.replace", "io.open", "os.stat"}
    assert refused >= ({"os.unlink", "os.listdir"} if exists else {"os.mkdir", "os.rename"})


def test_whatever_the_system_refuses_a_read_is_right_or_refused(folder: Path) -> None:
    refused = 0
    for place in count():
        with failing_call(place) as calls:
            try:
                assert version_at(folder) == 1
            except UserError as error:
                assert str(error).startswith(f"cannot read {folder}")  # noqa: PT017
                assert "Permission denied" in str(error)  # noqa: PT017
                refused += 1
        if len(calls) <= place:
            break
    assert refused >= 3  # the manifest and two files


def test_a_folder_that_is_not_ours_to_write_is_refused_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    with pytest.raises(UserError, match=f"{folder} is not yours to write into"):
        store.check_writable(folder, "model")
    with pytest.raises(UserError, match=f"{folder.parent} is not yours to write into"):
        store.check_writable(folder.with_name("new"), "model")


def test_a_place_that_takes_no_file_is_refused_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root is told that all is his: only trying shows that /sys, say, takes nothing."""
    before = snapshot(folder.parent)
    store.check_writable(folder, "model")
    store.check_home(folder.with_name("new.parquet"))
    assert snapshot(folder.parent) == before
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT or flags & getattr(os, "O_TMPFILE", 0):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    for path in (folder, folder.with_name("new")):
        with pytest.raises(UserError, match=f"cannot write {path}: {os.strerror(errno.EPERM)}"):
            store.check_writable(path, "model")


@pytest.fixture
def bound() -> Iterator[Path]:
    """A folder of somebody whom permissions bind, unlike root."""
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, nobody, -1)
        before = os.geteuid()
        os.seteuid(nobody)
        try:
            yield Path(home)
        finally:
            os.seteuid(before)


def test_permissions_are_minded(bound: Path) -> None:
    path = bound / "model"
    write(path, 1)
    bound.chmod(0o100)  # no listing, no new names: what is in it may still be written
    write(path, 2)
    with pytest.raises(UserError, match=f"cannot write {bound / 'new'}: Permission denied"):
        write(bound / "new")
    path.chmod(0o500)
    with pytest.raises(UserError, match=f"cannot write {path}: Permission denied"):
        write(path, 3)
    assert version_at(path) == 2
    path.chmod(0o300)
    with pytest.raises(UserError, match=f"cannot write {path}: Permission denied"):
        write(path, 3)
    path.chmod(0o000)
    assert refusal(path, "model") == f"cannot read {path / 'manifest.json'}: Permission denied"
    path.chmod(0o700)
    secret = file_of(path, "keys")
    secret.chmod(0o000)
    assert refusal(path, "model") == f"cannot read {secret}: Permission denied"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: (path.mkdir(), (path / "notes").touch()), "was not written by rankfold"),
        (lambda path: path.write_text("mine"), "was not written by rankfold"),
        (
            lambda path: store.write(path, "data", {}, {}),
            "is a data folder, which a model folder would",
        ),
        (lambda path: spoil_manifest(path, "{}"), "manifest.json is not a manifest"),
        (lambda path: spoil_manifest(path, '{"format": 2}'), "is of format 2"),
        (lambda path: spoil_manifest(path, '{"format": 1}'), "does not match its own checksum"),
        (lambda path: (path.mkdir(), (path / "manifest.json").mkdir()), "Is a directory"),
        (lambda path: path.symlink_to("nowhere"), "Not a directory"),
    ],
    ids=["folder", "file", "kind", "other manifest", "format", "damaged", "strange", "dead link"],
)
def test_what_may_not_be_replaced_is_not(
    spoil: Callable[[Path], Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    spoil(path)
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match=says) as caught:
        write(path)
    assert str(path) in str(caught.value)
    assert "--out" in caught.value.hint
    assert snapshot(tmp_path) == before


def spoil_manifest(path: Path, text: str) -> None:
    path.mkdir()
    (path / "manifest.json").write_text(text)


def snapshot(path: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() if p.is_file() else b"" for p in path.rglob("*")}


@pytest.mark.parametrize("home", ["absent", "file"])
def test_a_missing_parent_is_named(home: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=f"there is no folder {tmp_path / home}$"):
        write(tmp_path / home / "model")
    assert names(tmp_path) == {"file"}


# ---------------------------------------------------------------------------------- damage


@given(st.data())
@ONE_FOLDER
def test_one_changed_byte_anywhere_is_refused(folder: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(files_of(folder)))
    written = path.read_bytes()
    place = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.integers(1, 255))
    changed = bytearray(written)
    changed[place] ^= other
    path.write_bytes(changed)
    try:
        for full in (False, True):  # small files are all head
            says = refusal(folder, "model", full=full)
            assert path.name in says
            assert str(folder) in says
    finally:
        path.write_bytes(written)
    assert version_at(folder) == 1


@pytest.mark.parametrize("place", [0, 100, store.HEAD - 1, store.HEAD, -1])
def test_size_and_head_are_always_compared_and_the_rest_if_asked(
    place: int, tmp_path: Path
) -> None:
    large = {"t": torch.zeros(2 * store.HEAD, dtype=torch.uint8)}
    store.write(tmp_path / "d", "data", {}, {"large": large})
    path = file_of(tmp_path / "d", "large")
    changed = bytearray(path.read_bytes())
    changed[place] ^= 1
    path.write_bytes(changed)
    says = f"{path.name} does not match its checksum"
    assert says in refusal(tmp_path / "d", "data", full=True)
    if 0 <= place < store.HEAD:
        assert says in refusal(tmp_path / "d", "data")
    else:
        assert store.read(tmp_path / "d", "data").tensors("large")["t"].any()


def test_a_table_is_compared_when_it_is_read(tmp_path: Path) -> None:
    """Parquet reads one changed byte in eight as other keys."""
    keys = pl.DataFrame({"key": pl.int_range(2**19, eager=True).shuffle(seed=0)})
    store.write(tmp_path / "d", "data", {}, {"keys": keys})
    opened = store.read(tmp_path / "d", "data")
    path = opened.file("keys")
    changed = bytearray(path.read_bytes())
    assert len(changed) > store.HEAD
    changed[store.HEAD + 10] ^= 1
    path.write_bytes(changed)
    opened = store.read(tmp_path / "d", "data")
    with pytest.raises(UserError, match=f"{path.name} does not match its checksum"):
        opened.table("keys")


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ["numbers", "keys"])
class TestFile:
    """Damage that the size or the kind of a file tells."""

    def test_missing(self, *, name: str, full: bool, folder: Path) -> None:
        path = file_of(folder, name)
        path.unlink()
        says = refusal(folder, "model", full=full)
        assert says == f"{folder} is damaged: {path.name} is missing"

    def test_truncated(self, *, name: str, full: bool, folder: Path) -> None:
        path = file_of(folder, name)
        size = path.stat().st_size
        os.truncate(path, size - 1)
        says = refusal(folder, "model", full=full)
        assert says == f"{folder} is damaged: {path.name} has {size - 1:,} bytes, not {size:,}"

    def test_longer(self, *, name: str, full: bool, folder: Path) -> None:
        path = file_of(folder, name)
        path.write_bytes(path.read_bytes() + b"x")
        assert f"{path.name} has" in refusal(folder, "model", full=full)

    @pytest.mark.parametrize("kind", ["outside", "inside", "loop", "folder", "pipe"])
    def test_not_a_file(self, *, name: str, full: bool, kind: str, folder: Path) -> None:
        path = file_of(folder, name)
        place = {"outside": folder.parent / "x", "inside": folder / "x", "loop": path}.get(kind)
        path.rename(folder.parent / "x" if place in (None, path) else place)
        if place is not None:
            path.symlink_to(place)
        elif kind == "folder":
            path.mkdir()
        else:
            os.mkfifo(path)
        assert f"{path.name} is not a regular file" in refusal(folder, "model", full=full)


def test_a_missing_manifest_is_no_folder_of_ours(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    says = refusal(folder, "model")
    assert says == f"{folder} is not a rankfold folder: it has no manifest.json"


def test_paths_to_something_else_are_refused(folder: Path) -> None:
    absent, file = folder.with_name("absent"), folder / "manifest.json"
    assert refusal(absent, "model") == f"there is no folder {absent}"
    assert refusal(absent / "x", "model") == f"there is no folder {absent / 'x'}"
    assert refusal(file, "model") == f"{file} is a file, not a rankfold folder"
    assert "has no manifest.json" in refusal(folder.parent, "model")


def test_another_kind_is_refused_before_its_files_are_read(folder: Path) -> None:
    file_of(folder, "numbers").unlink()
    says = refusal(folder, "data", full=True)
    assert says == f"{folder} is a model folder, not a data folder"


def test_a_folder_of_any_kind_is_opened(tmp_path: Path) -> None:
    for kind in ("model", "data"):
        write(tmp_path / kind, kind=kind)
        assert store.open_folder(tmp_path / kind, full=True).manifest["kind"] == kind


@pytest.mark.parametrize("version", [0, 2, "1", None, [1], -1])
def test_another_format_is_refused(version: Any, folder: Path) -> None:
    forge(folder, lambda manifest: {**manifest, "format": version})
    assert (
        refusal(folder, "model")
        == f"{folder / 'manifest.json'} is of format {version}; this rankfold reads format 1"
    )


NO_MANIFESTS = {
    "empty": b"",
    "half": b'{"format": 1, "ki',
    "not JSON": b"format = 1",
    "not UTF-8": b'{"format": "\xff"}',
    "zeros": bytes(500),
    "list": b"[1]",
    "number": b"1",
    "text": b'"format"',
    "null": b"null",
    "no format": b'{"name": "an app", "icons": []}',
    "deep": b"[" * 10**6,
    "many digits": b'{"format": ' + b"9" * 10**4 + b"}",
}


@pytest.mark.parametrize("text", NO_MANIFESTS.values(), ids=NO_MANIFESTS)
def test_what_is_no_manifest_is_refused(text: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(text)
    for kind in ("model", None):
        says = refusal(folder, kind)
        assert says == f"{folder} is damaged: manifest.json is not a manifest of rankfold's"


def test_a_manifest_of_any_depth_is_refused(folder: Path) -> None:
    """There are depths that Python's JSON reads, but cannot write again."""
    for depth in range(100, 1500, 50):
        text = '{"format": 1, "x": ' + "[" * depth + "]" * depth + "}"
        (folder / "manifest.json").write_text(text)
        assert "is damaged: manifest.json" in refusal(folder, "model")


# ---------------------------------------------------------------------------------- malice


def forge(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a manifest and make its checksum right again."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["checksum"]
    manifest = change(manifest)
    checksum = hashlib.sha256(json.dumps(manifest, indent=2).encode()).hexdigest()
    text = json.dumps({**manifest, "checksum": checksum}, indent=2) + "\n"
    (path / "manifest.json").write_text(text)


def forge_file(path: Path, name: str, data: bytes) -> None:
    """Change a file and make its entry right again."""

    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        entry = manifest["files"][name]
        (path / entry["file"]).write_bytes(data)
        head, sha256 = (hashlib.sha256(d).hexdigest() for d in (data[: store.HEAD], data))
        entry.update(size=len(data), head=head, sha256=sha256)
        return manifest

    forge(path, change)


def put(*where: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of one value of a manifest."""

    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        place: Any = manifest
        for name in where[:-1]:
            place = place[name]
        place[where[-1]] = value
        return manifest

    return change


def test_a_forged_manifest_is_read_if_it_is_well_formed(folder: Path) -> None:
    """Else the tests below would refuse for the wrong reason."""
    forge(folder, lambda manifest: {**manifest, "more": 1})
    forge_file(folder, "numbers", file_of(folder, "numbers").read_bytes())
    assert version_at(folder) == 1


@pytest.mark.parametrize("field", ["kind", "versions", "files"])
@pytest.mark.parametrize("value", [None, 1, [], ["x"], True], ids=repr)
def test_a_manifest_without_its_fields_is_refused(field: str, value: Any, folder: Path) -> None:
    forge(folder, put(field, value=value))
    says = f"{folder} is damaged: manifest.json: '{field}' is missing or not of type"
    assert refusal(folder, "model").startswith(says)
    with pytest.raises(UserError, match=f"'{field}' is missing"):
        write(folder, 2)
    forge(folder, lambda manifest: {n: v for n, v in manifest.items() if n != field})
    assert refusal(folder, "model").startswith(says)


@pytest.mark.parametrize("field", ["file", "size", "head", "sha256"])
@pytest.mark.parametrize("value", [None, [], {}, 1.5], ids=repr)
def test_an_entry_without_its_fields_is_refused(field: str, value: Any, folder: Path) -> None:
    forge(folder, put("files", "keys", field, value=value))
    says = f"manifest.json, files, keys: '{field}' is missing or not of type"
    assert says in refusal(folder, "model")


OUTSIDE = ["../x", "../model/{}", "./{}", "/etc/passwd", "{path}/{}", "..", ".", "", "x/../{}"]
OUTSIDE += ["a\0b", "..\\x", "manifest.json", "{}\n", "x" * 300, "caf\udce9"]


@pytest.mark.parametrize("spelling", OUTSIDE, ids=ascii)
def test_an_entry_that_leaves_the_folder_is_refused(spelling: str, folder: Path) -> None:
    good = file_of(folder, "keys")
    shutil.copy(good, folder.parent / "x")
    file = spelling.replace("{path}", str(folder)).replace("{}", good.name)
    forge(folder, put("files", "keys", "file", value=file))
    for full in (False, True):
        says = refusal(folder, "model", full=full)
        assert says.endswith(f"manifest.json names {file!r}, which is not a file of the folder")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
PLACES = [("kind",), ("files",), ("format",), ("versions",), ("version",)]
PLACES += [("files", "keys"), ("files", "numbers"), ("files", "new")]
PLACES += [("files", "keys", field) for field in ("file", "size", "head", "sha256", "new")]


@given(st.sampled_from(PLACES), JSON)
@example(("files", "keys", "size"), "12")
@example(("files", "keys"), "file")
@ONE_FOLDER
def test_no_manifest_makes_a_traceback(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    path = tmp_path / "model"
    shutil.rmtree(path, ignore_errors=True)
    write(path)
    forge(path, put(*place, value=value))
    with suppress(UserError):
        opened = store.open_folder(path)
        opened.tensors("numbers"), opened.table("keys")
    with suppress(UserError):
        write(path, 2)
        assert version_at(path) == 2


def header(entries: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of any header."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(shape: list[int], offsets: list[int], dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BAD_TENSORS = {
    "nothing": b"",
    "short": b"1234567",
    "length beyond memory": header({}, length=2**64 - 1),
    "length beyond the file": header({}, length=10**7),
    "not JSON": header(b"xxxx"),
    "list": header([]),
    "deep": header(b"[" * 10**5),
    "overlapping": header({"a": tensor([4], [0, 4]), "b": tensor([4], [2, 6])}, bytes(6)),
    "hole": header({"a": tensor([4], [0, 4]), "b": tensor([4], [5, 9])}, bytes(9)),
    "backwards": header({"a": tensor([4], [4, 0])}, bytes(4)),
    "beyond the end": header({"a": tensor([4], [0, 4])}, bytes(2)),
    "before the end": header({"a": tensor([4], [0, 4])}, bytes(6)),
    "other shape": header({"a": tensor([5], [0, 4])}, bytes(4)),
    "negative shape": header({"a": tensor([-4], [0, 4])}, bytes(4)),
    "overflow": header({"a": tensor([2**62, 2**62, 0], [0, 0])}),
    "overflow in torch": header({"a": tensor([0, 2**63], [0, 0])}),
    "no such type": header({"a": tensor([4], [0, 4], "X8")}, bytes(4)),
    "type that torch lacks": header({"a": tensor([4], [0, 3], "F6_E2M3")}, bytes(3)),
    "no shape": header({"a": {"dtype": "U8", "data_offsets": [0, 4]}}, bytes(4)),
    "pickle": b"\x80\x04\x95" + bytes(100),
}


@pytest.mark.parametrize("data", BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_hostile_tensors_are_refused(data: bytes, folder: Path) -> None:
    forge_file(folder, "numbers", data)
    opened = store.read(folder, "model", full=True)
    with pytest.raises(UserError, match=r"is damaged: numbers-\w+.safetensors is not readable"):
        opened.tensors("numbers")


@pytest.mark.parametrize("value", [0, 255])
def test_no_table_makes_a_traceback(value: int, folder: Path) -> None:
    """Polars panics at some of these, with an exception that is not an Exception.

    Every byte in turn takes one value, rather than any: at a page length near ``2**64`` (a false
    checksum beside it) Polars asks for that much memory and ends the process, which no one catches.
    """
    keys = content(1)["keys"]
    assert isinstance(keys, pl.DataFrame)
    keys.write_parquet(folder.parent / "keys")
    whole = (folder.parent / "keys").read_bytes()
    refused = 0
    for place in range(len(whole)):
        forge_file(folder, "keys", whole[:place] + bytes([value]) + whole[place + 1 :])
        try:
            store.read(folder, "model", full=True).table("keys")
        except UserError as error:
            assert "parquet is not readable" in str(error)  # noqa: PT017
            refused += 1
    assert refused > len(whole) // 3


def test_a_panic_in_a_parser_is_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(_file: Any) -> None:
        raise pl.exceptions.PanicException("unwrap")

    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(UserError, match=r"keys-\w+.parquet is not readable"):
        store.open_folder(folder).table("keys")


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_is_no_damage_is_not_called_so(
    error: type[BaseException], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_file: Any) -> None:
        raise error

    monkeypatch.setattr(pl, "read_parquet", stop)
    with pytest.raises(error):
        store.open_folder(folder).table("keys")


def test_a_file_that_is_not_named_is_refused(folder: Path) -> None:
    opened = store.open_folder(folder)
    assert "keys" in opened
    assert "more" not in opened
    for ask in (opened.file, opened.tensors, opened.table):
        with pytest.raises(UserError, match=r"manifest.json names no 'more'"):
            ask("more")


# ---------------------------------------------------------------------------------- races


def write_after_manifest(path: Path, versions: list[int], patch: pytest.MonkeyPatch) -> None:
    """Let a writer write ``versions`` right after a reader has read the manifest."""
    real = store._manifest

    def read_and_write(asked: Path) -> dict[str, Any]:
        manifest = real(asked)
        patch.undo()
        for version in versions:
            write(path, version)
        return manifest

    patch.setattr(store, "_manifest", read_and_write)


@pytest.mark.parametrize(
    ("versions", "expected"), [([2], 1), ([2, 3], 3), ([2, 3, 4], 4), ([2, 1], 1), ([2, 3, 1], 1)]
)
def test_a_reader_whose_file_vanished_reads_the_manifest_again(
    versions: list[int], expected: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_after_manifest(folder, versions, monkeypatch)
    opened = store.read(folder, "model", full=True)
    assert version_in(opened) == expected


def test_a_reader_follows_a_writer_that_is_faster(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in a row the files vanish between the manifest and them."""
    real = store._manifest
    reads = []

    def read_and_write(asked: Path) -> dict[str, Any]:
        manifest = real(asked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_manifest", real)
            reads.append(manifest["version"])
            for more in (1, 2) if len(reads) < 3 else ():
                write(folder, manifest["version"] + more)
        return manifest

    monkeypatch.setattr(store, "_manifest", read_and_write)
    assert store.read(folder, "model", full=True).manifest["version"] == 5
    assert reads == [1, 3, 5]


def test_a_missing_file_is_told_though_the_manifest_equals_not_itself(tmp_path: Path) -> None:
    store.write(tmp_path / "m", "model", {"loss": math.nan}, content(1))
    path = file_of(tmp_path / "m", "keys")
    path.unlink()
    assert f"{path.name} is missing" in refusal(tmp_path / "m", "model")


@pytest.mark.parametrize("ask", [store.Folder.file, store.Folder.tensors, store.Folder.table])
def test_what_was_opened_outlives_one_write_and_is_refused_after_two(
    ask: Callable[[store.Folder, str], Any], folder: Path
) -> None:
    name = "keys" if ask is store.Folder.table else "numbers"
    opened = store.read(folder, "model")
    held = opened.tensors("numbers")["values"]
    write(folder, 2)
    assert version_in(opened) == 1
    write(folder, 3)
    with pytest.raises(UserError) as caught:
        ask(opened, name)
    gone = opened.manifest["files"][name]["file"]
    assert str(caught.value) == f"{folder} was replaced since it was opened, and {gone} is gone"
    assert caught.value.hint == "open it again"
    assert torch.equal(held, torch.ones(5, 3))  # mapped: it lives as long as it is held
    opened = store.read(folder, "model")
    current = opened.file(name)
    current.unlink()
    with pytest.raises(UserError, match=f"is damaged: {current.name} is missing"):
        ask(opened, name)


def test_a_file_that_vanishes_under_the_parser_is_not_called_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser of tensors opens a file twice, and tells in its own words that it is gone."""
    opened = store.open_folder(folder)
    real = torch.UntypedStorage.from_file

    def write_and_open(*arguments: Any, **options: Any) -> Any:
        for version in (2, 3):
            write(folder, version)
        return real(*arguments, **options)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", write_and_open)
    with pytest.raises(UserError, match="was replaced since it was opened"):
        opened.tensors("numbers")


WRITER = """
import os, sys
from pathlib import Path
import polars as pl, torch
from rankfold.storage import folder as store
os.fsync = lambda handle: None  # quicker than any disk
for version in range(1, int(sys.argv[2]) + 1):
    keys = pl.DataFrame({"key": [f"{version}-{row}" for row in range(4)]})
    numbers = {"values": torch.full((5, 3), float(version)), "all": torch.ones(3) > 0}
    files = {"numbers": numbers, "keys": keys}
    store.write(Path(sys.argv[1]), "model", {"version": version}, files)
"""


def test_a_reader_beside_a_writer_always_finds_one_version(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write(path, 0)
    found, outrun = [0], 0
    with subprocess.Popen([sys.executable, "-c", WRITER, path, "300"]) as writer:
        while writer.poll() is None:
            opened = store.read(path, "model", full=True)
            try:
                found.append(version_in(opened))
            except UserError as error:  # two more writes since ``read``
                assert "was replaced since it was opened" in str(error)  # noqa: PT017
                outrun += 1
    assert writer.returncode == 0
    assert version_at(path) == 300
    assert found == sorted(found)
    assert len(set(found)) > 20
    assert outrun < len(found)
    assert len(names(path)) == 5


def test_text_is_a_file_of_its_own(tmp_path: Path) -> None:
    store.write(tmp_path / "m", "model", {}, {"tokenizer": '{"é": 1}'})
    folder = store.read(tmp_path / "m", "model", full=True)
    assert folder.text("tokenizer") == '{"é": 1}'
    (file,) = (tmp_path / "m").glob("tokenizer-*.json")
    file.write_bytes(file.read_bytes().replace(b"1", b"2"))
    with pytest.raises(UserError, match=file.name):
        folder.text("tokenizer")
