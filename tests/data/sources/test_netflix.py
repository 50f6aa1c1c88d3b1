import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

import rankfold as rf
from rankfold.data.read.reading import Reading
from rankfold.data.sources import netflix
from rankfold.data.sources.netflix import read
from rankfold.errors import UserError

RATINGS = [  # movie, customer, stars, date
    (1, 1488844, 3, "2005-09-06"),
    (1, 822109, 5, "2005-05-13"),
    (1, 885013, 4, "2005-10-19"),
    (1, 30878, 4, "2005-12-26"),
    (1, 823519, 3, "2004-05-03"),
    (1, 893988, 3, "2005-11-17"),
    (2, 2059652, 4, "2005-09-05"),
    (2, 1666394, 3, "2005-04-19"),
    (2, 822109, 4, "2005-04-22"),
    (2, 1759415, 4, "2005-04-22"),
    (2, 1959936, 5, "2005-11-21"),
    (3, 1025579, 4, "2003-03-29"),
    (3, 712664, 5, "2004-02-01"),
    (3, 1331154, 4, "2004-07-03"),
    (3, 2632461, 3, "2005-07-24"),
    (3, 44937, 5, "2004-04-29"),
    (17770, 656399, 4, "2000-02-29"),
    (17770, 30878, 1, "1999-11-11"),
    (17770, 2649429, 2, "2005-12-31"),
    (17770, 6, 5, "2002-01-01"),
]


def text_of(ratings: list[tuple[int, int, int, str]]) -> str:
    """The lines as published: a movie and a colon, then its ratings."""
    lines, movie = [], None
    for number, customer, stars, date in ratings:
        if number != movie:
            lines.append(f"{number}:")
        movie = number
        lines.append(f"{customer},{stars},{date}")
    return "".join(f"{line}\n" for line in lines)


def seconds(date: str) -> int:
    return int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp())


ROWS = [(customer, movie, float(stars), seconds(date)) for movie, customer, stars, date in RATINGS]


def test_lines_are_written_as_published() -> None:
    assert text_of(RATINGS).startswith("1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_combined_file(end: str, tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "combined_data_1.txt").write_text(text_of(RATINGS), newline=end)
    frame = read([tmp_path / "combined_data_1.txt"], reading).collect()
    assert frame.columns == ["query", "candidate", "grade", "time"]
    assert frame.rows() == ROWS


@pytest.mark.parametrize("block", [1, 30, 64])
def test_blocks_do_not_lose_the_movie(
    block: int, tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netflix, "BLOCK", block)
    (tmp_path / "combined_data_1.txt").write_text(text_of(RATINGS))
    assert read([tmp_path], reading).collect().rows() == ROWS


def test_training_set_has_a_file_for_each_movie(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "training_set").mkdir()
    (tmp_path / "movie_titles.txt").write_text("1,2003,Dinosaur Planet\n")
    for movie in {rating[0] for rating in RATINGS}:
        own = [rating for rating in RATINGS if rating[0] == movie]
        (tmp_path / "training_set" / f"mv_{movie:07}.txt").write_text(text_of(own))
    assert read([tmp_path], reading).collect().rows() == ROWS


def test_zip_of_combined_files(tmp_path: Path, reading: Reading) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("combined_data_2.txt", text_of(RATINGS[11:]))
        archive.writestr("combined_data_1.txt", text_of(RATINGS[:11]))
        archive.writestr("movie_titles.csv", "1,2003,Dinosaur Planet\n")
    assert read([tmp_path / "archive.zip"], reading).collect().rows() == ROWS


def test_bad_lines_are_counted(tmp_path: Path) -> None:
    text = text_of(RATINGS) + "x,3,2005-09-06\n7,y,2005-09-06\n"
    (tmp_path / "combined_data_1.txt").write_text(text)
    data = rf.prepare(tmp_path, source="netflix")
    assert sum(entry["rows"] for entry in data.summary["dropped"]) == 2
    assert data.summary["pairs"] == len(RATINGS)


def test_other_file_is_refused(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "movie_titles.txt").write_text("1,2003,Dinosaur Planet\n")
    with pytest.raises(UserError, match="first line is '1,2003,Dinosaur Planet'"):
        read([tmp_path / "movie_titles.txt"], reading)
    with pytest.raises(UserError, match="holds no ratings of the Netflix Prize"):
        read([tmp_path], reading)
