import gzip
import random
import zipfile
from pathlib import Path

import pytest
import zstandard

import rankfold as rf
from rankfold.data.read.reading import Reading
from rankfold.data.sources.movielens import read
from rankfold.errors import UserError

ROWS = [  # user, movie, stars, time
    (1, 40823, 5.0, 937140999),
    (1, 48614, 4.5, 992487287),
    (1, 52114, 0.5, 1170680827),
    (2, 61765, 5.0, 1197230021),
    (2, 42732, 3.0, 1084562980),
    (2, 1901, 5.0, 1049979259),
    (3, 50854, 4.0, 933709126),
    (3, 42532, 4.0, 827838503),
    (3, 59042, 3.5, 884208913),
    (4, 7420, 3.0, 999605039),
    (4, 30741, 5.0, 932377781),
    (4, 24954, 3.0, 1091929389),
    (5, 6683, 1.0, 1108132328),
    (5, 16341, 3.0, 807040627),
    (5, 47919, 3.0, 916355924),
    (6, 26749, 3.5, 950045955),
    (6, 11933, 2.0, 1009077566),
    (7, 10460, 4.0, 838618057),
    (70000, 9095, 5.0, 1131746595),
    (70000, 40466, 0.5, 1038819343),
]
WHOLE = [(user, movie, float(int(stars + 0.5)), time) for user, movie, stars, time in ROWS]


def write(rows: list[tuple[int, int, float, int]], separator: str) -> str:
    """The lines of a release; whole stars have no decimal point."""
    cells = ([f"{user}", f"{movie}", f"{stars:g}", f"{time}"] for user, movie, stars, time in rows)
    return "".join(separator.join(row) + "\n" for row in cells)


U_DATA = write(WHOLE, "\t")
RATINGS_DAT = write(ROWS, "::")
RATINGS_CSV = "userId,movieId,rating,timestamp\n" + "".join(
    f"{u},{m},{s},{t}\n" for u, m, s, t in ROWS
)


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        pytest.param("u.data", U_DATA, WHOLE, id="100K"),
        pytest.param("ratings.dat", RATINGS_DAT, ROWS, id="10M"),
        pytest.param("ratings.csv", RATINGS_CSV, ROWS, id="32M"),
        pytest.param("ratings.csv", RATINGS_CSV.replace("\n", "\r\n"), ROWS, id="from Windows"),
    ],
)
def test_each_layout_gives_its_rows(
    name: str, text: str, rows: list[tuple[int, int, float, int]], tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / name).write_text(text, newline="")
    frame = read([tmp_path / name], reading).collect(engine="streaming")
    assert frame.columns == ["query", "candidate", "grade", "time"]
    assert frame.rows() == rows


def test_lines_are_written_as_published() -> None:
    assert RATINGS_DAT.startswith("1::40823::5::937140999\n1::48614::4.5::992487287\n")
    assert U_DATA.startswith("1\t40823\t5\t937140999\n")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_folder_with_compressed_ratings(suffix: str, tmp_path: Path, reading: Reading) -> None:
    pack = gzip.compress if suffix == ".gz" else zstandard.compress
    (tmp_path / "movies.dat").write_text("1::Toy Story (1995)::Adventure\n")
    (tmp_path / f"ratings.dat{suffix}").write_bytes(pack(RATINGS_DAT.encode()))
    assert read([tmp_path], reading).collect().rows() == ROWS


def test_several_files_are_concatenated(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "a.base").write_text(U_DATA)
    (tmp_path / "b.dat").write_text(RATINGS_DAT)
    assert read([tmp_path / "a.base", tmp_path / "b.dat"], reading).collect().rows() == WHOLE + ROWS


def test_cell_that_is_not_a_number_is_left_empty(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "ratings.dat").write_text("1::2::3::4\n1::x::3::4\n5::6\n7::8::1.5::9\n")
    rows = read([tmp_path / "ratings.dat"], reading).collect().rows()
    assert rows == [(1, 2, 3, 4), (1, None, 3, 4), (5, 6, None, None), (7, 8, 1.5, 9)]


def test_many_rows_equal_a_plain_loop(tmp_path: Path, reading: Reading) -> None:
    rng = random.Random(0)
    text = "".join(
        f"{rng.randrange(1, 10**5)}::{rng.randrange(1, 10**5)}::{rng.choice(['0.5', '3', '4.5'])}"
        f"::{rng.randrange(10**9)}\n"
        for _ in range(20_000)
    )
    (tmp_path / "ratings.dat").write_text(text)
    cells = [line.split("::") for line in text.splitlines()]
    rows = [(int(u), int(m), float(s), int(t)) for u, m, s, t in cells]
    assert read([tmp_path / "ratings.dat"], reading).collect(engine="streaming").rows() == rows


def test_other_file_is_refused_with_its_first_line(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "movies.dat").write_text("1::Toy Story (1995)::Adventure\n")
    with pytest.raises(UserError, match=r"movies\.dat is not .* '1::Toy Story \(1995\)") as error:
        read([tmp_path / "movies.dat"], reading)
    assert "ratings.dat" in error.value.hint


def test_folder_without_ratings_is_refused(tmp_path: Path, reading: Reading) -> None:
    with pytest.raises(UserError, match="holds no MovieLens ratings") as error:
        read([tmp_path], reading)
    assert "u.data, ratings.dat, ratings.csv" in error.value.hint


@pytest.mark.parametrize("name", ["ml-10m", "ml-20m", "ml-25m", "ml-32m"])
def test_zipped_release_by_its_name(name: str, tmp_path: Path) -> None:
    file, text = ("ratings.dat", RATINGS_DAT) if name == "ml-10m" else ("ratings.csv", RATINGS_CSV)
    with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
        archive.writestr(f"{name}/README.txt", "Summary")
        archive.writestr(f"{name}/{file}", text)
    data = rf.prepare(tmp_path / f"{name}.zip", source=name, min_grade=4)
    assert data.summary["pairs"] == sum(stars >= 4 for _, _, stars, _ in ROWS)
    assert data.summary["source"] == name


def test_zip_without_ratings_is_refused(tmp_path: Path, reading: Reading) -> None:
    with zipfile.ZipFile(tmp_path / "ml.zip", "w") as archive:
        archive.writestr("ml/movies.csv", "movieId,title,genres")
    with pytest.raises(UserError, match="holds no MovieLens ratings"):
        read([tmp_path / "ml.zip"], reading)


def test_damaged_zip_is_refused(tmp_path: Path, reading: Reading) -> None:
    path = tmp_path / "ml.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml/ratings.csv", RATINGS_CSV * 50)
    content = bytearray(path.read_bytes())
    content[60:80] = b"x" * 20
    path.write_bytes(content)
    with pytest.raises(UserError, match="is damaged"):
        read([path], reading)
