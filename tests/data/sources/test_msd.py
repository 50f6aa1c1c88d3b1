import random
import zipfile
from pathlib import Path

import pytest

import rankfold as rf
from rankfold.data.read.reading import Reading
from rankfold.data.sources.msd import read
from rankfold.errors import UserError

_RNG = random.Random(0)
USERS = [f"{_RNG.getrandbits(160):040x}" for _ in range(4)]
SONGS = [
    f"SO{''.join(_RNG.choices('ABCDEFGH', k=6))}12A{_RNG.getrandbits(36):09X}" for _ in range(7)
]
ROWS = [(USERS[n // 5], SONGS[(n * 3) % 7], float(1 + n % 4)) for n in range(20)]
TEXT = "".join(f"{user}\t{song}\t{plays:g}\n" for user, song, plays in ROWS)


def test_lines_are_written_as_published() -> None:
    user, song, plays = TEXT.splitlines()[0].split("\t")
    assert (len(user), len(song), song[:2], plays) == (40, 20, "SO", "1")


def test_rows(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "train_triplets.txt").write_text(TEXT)
    frame = read([tmp_path], reading).collect()
    assert frame.columns == ["query", "candidate", "grade"]
    assert frame.rows() == ROWS


def test_zip_as_published(tmp_path: Path, reading: Reading) -> None:
    with zipfile.ZipFile(tmp_path / "train_triplets.txt.zip", "w") as archive:
        archive.writestr("train_triplets.txt", TEXT)
    assert read([tmp_path / "train_triplets.txt.zip"], reading).collect().rows() == ROWS


def test_prepared_data(tmp_path: Path) -> None:
    (tmp_path / "train_triplets.txt").write_text(TEXT + f"{USERS[0]}\t{SONGS[0]}\tmany\n")
    data = rf.prepare(tmp_path / "train_triplets.txt", source="msd", split=(1.0, 0.0, 0.0))
    assert set(data.queries.keys) == set(USERS)
    assert set(data.candidates.keys) == set(SONGS)
    assert [entry["rows"] for entry in data.summary["dropped"]] == [1]


def test_other_file_is_refused(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "unique_tracks.txt").write_text("TRMMMYQ128F932D901<SEP>SOQMMHC12AB0180CB8\n")
    with pytest.raises(UserError, match="not a file of taste profiles"):
        read([tmp_path / "unique_tracks.txt"], reading)
    with pytest.raises(UserError, match="holds no taste profiles"):
        read([tmp_path], reading)
