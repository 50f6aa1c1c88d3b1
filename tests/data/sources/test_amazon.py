import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rankfold.data.read.reading import Reading
from rankfold.data.sources.amazon import read
from rankfold.errors import UserError

ROWS = [  # reviewer, item, stars, time
    ("A40V77ZVAYJO7", "9698231100", 5.0, 1365811200.0),
    ("AAL0OCBTHBHP2Z", "0780735004", 5.0, 1341100800.0),
    ("A6Y7RXXCCIR3QS", "8090369391", 1.0, 1367193600.0),
    ("AJBB625OZ51ZJE", "8090369391", 3.0, 1374451200.0),
    ("AU4QYMS3F5UAGZ", "8090369391", 1.0, 1334707200.0),
    ("ADZYMHC39SVDSR", "6673724767", 5.0, 1397433600.0),
    ("AAYNK0J9OGTNSC", "6673724767", 2.0, 1397433600.0),
    ("AIJ5UXHOPQ6SKN", "6673724767", 5.0, 1395878400.0),
    ("A7OM1G814B661G", "6673724767", 5.0, 1395532800.0),
    ("A4TD1M3JCKYTF", "6673724767", 5.0, 1395446400.0),
    ("ACW03KM5MWDF8", "6673724767", 5.0, 1401321600.0),
    ("AEBZHAH4MFAST0", "5297221929", 5.0, 1405641600.0),
    ("ALHNLQ4RAJCAJG", "5297221929", 1.0, 1352073600.0),
    ("A0SFKPMHWDEU7", "5297221929", 5.0, 1370131200.0),
    ("A5HJHB5LT28TS", "5297221929", 1.0, 1290643200.0),
    ("ANYP4AX5LE5M13D22KQV4", "B00FBLHXD2", 4.0, 1353456000.0),
    ("AP5MIWJM9J9RI4", "237176060X", 3.0, 1283990400.0),
    ("A4L8VHBS1Q15YO", "B0084ZNT5M", 2.0, 1290556800.0),
    ("AC8BMCD4TNSFU", "B00ILKQE31", 2.0, 1277078400.0),
    ("A71WHR0GWMFG35", "B005DDV599", 4.0, 1294790400.0),
]
USER_2023, PARENT_2023 = "AOGY4OAOQ57082EZDBGAQP58OXNF", "B0Z02SE1JZ"


def read_text(text: str, tmp_path: Path, reading: Reading) -> list[tuple[Any, ...]]:
    path = tmp_path / "reviews"
    path.write_text(text)
    frame = read([path], reading).collect(engine="streaming")
    assert frame.columns == ["query", "candidate", "grade", "time"]
    return frame.rows()


def test_ratings_of_2014_name_the_user_first(tmp_path: Path, reading: Reading) -> None:
    text = "".join(f"{user},{item},{stars},{time:.0f}\n" for user, item, stars, time in ROWS)
    assert text.startswith("A40V77ZVAYJO7,9698231100,5.0,1365811200\n")
    assert read_text(text, tmp_path, reading) == ROWS


def test_ratings_of_2018_name_the_item_first(tmp_path: Path, reading: Reading) -> None:
    text = "".join(f"{item},{user},{stars},{time:.0f}\n" for user, item, stars, time in ROWS)
    assert text.startswith("9698231100,A40V77ZVAYJO7,5.0,1365811200\n")
    assert read_text(text, tmp_path, reading) == ROWS


def test_the_majority_of_rows_determines_the_order(tmp_path: Path, reading: Reading) -> None:
    odd = "A5A8H1XDXO,B00ILKQE31,1.0,5\n"  # an item whose key looks like a reviewer's
    text = odd + "".join(f"{item},{user},{stars},{time:.0f}\n" for user, item, stars, time in ROWS)
    assert read_text(text, tmp_path, reading)[0] == ("B00ILKQE31", "A5A8H1XDXO", 1.0, 5.0)


@pytest.mark.parametrize("item", ["0123456789", "012345678X", "B00ILKQE31"])
def test_one_row_determines_the_order(item: str, tmp_path: Path, reading: Reading) -> None:
    row = ("A40V77ZVAYJO7", item, 2.0, 1365811200.0)
    assert read_text(f"{item},A40V77ZVAYJO7,2.0,1365811200\n", tmp_path, reading) == [row]


@pytest.mark.parametrize("more", ["", ",history"])
def test_ratings_of_2023_have_a_header_and_milliseconds(
    more: str, tmp_path: Path, reading: Reading
) -> None:
    text = f"user_id,parent_asin,rating,timestamp{more}\n" + (
        f"{USER_2023},{PARENT_2023},4.0,1592678549731{',B07N69T6TM B01G8JO5F3' if more else ''}\n"
    )
    rows = read_text(text, tmp_path, reading)
    assert rows == [(USER_2023, PARENT_2023, 4.0, 1592678549.731)]


def test_reviews_of_2014_and_2018(tmp_path: Path, reading: Reading) -> None:
    reviews = [
        {
            "reviewerID": user,
            "asin": item,
            "reviewerName": 'J. "Mac" {McDonald}',
            "helpful": [2, 3],
            "reviewText": "I bought this for my husband.\nHe, too, is happy.",
            "overall": stars,
            "summary": "Heavenly",
            "unixReviewTime": int(time),
            "reviewTime": "09 13, 2009",
        }
        for user, item, stars, time in ROWS
    ]
    text = "".join(json.dumps(review) + "\n" for review in reviews)
    assert read_text(text, tmp_path, reading) == ROWS


def test_reviews_of_2023_count_for_the_parent_of_a_variant(
    tmp_path: Path, reading: Reading
) -> None:
    review = {
        "rating": 5.0,
        "title": "Pretty locket",
        "text": "I think this locket is really pretty.",
        "images": [],
        "asin": "B0IC32WHX1",
        "parent_asin": PARENT_2023,
        "user_id": USER_2023,
        "timestamp": 1389182132500,
        "helpful_vote": 0,
        "verified_purchase": True,
    }
    early = {name: value for name, value in review.items() if name != "parent_asin"}
    text = json.dumps(review) + "\n" + json.dumps(early) + "\n"
    assert read_text(text, tmp_path, reading) == [
        (USER_2023, PARENT_2023, 5.0, 1389182132.5),
        (USER_2023, "B0IC32WHX1", 5.0, 1389182132.5),
    ]


def test_unreadable_lines_are_noted_and_missing_values_left_empty(
    tmp_path: Path, reading: Reading
) -> None:
    good = '{"reviewerID": "A40V77ZVAYJO7", "asin": "9698231100"}'
    text = "\n".join(
        [good, '{"reviewerID": "A2', "", "17", good.replace(", ", ', "overall": "x", ')]
    )
    assert read_text(text, tmp_path, reading) == [("A40V77ZVAYJO7", "9698231100", None, None)]
    assert reading.bad.counts == {"an unreadable line": 3}
    assert reading.bad.places == {"an unreadable line": ["reviews:2", "reviews:4", "reviews:5"]}


def test_files_of_all_years_together_and_compressed(tmp_path: Path, reading: Reading) -> None:
    user, item, stars, time = ROWS[0]
    texts = [
        f"{user},{item},{stars},{time:.0f}\n",
        f"{item},{user},{stars},{time:.0f}\n",
        f"user_id,parent_asin,rating,timestamp\n{user},{item},{stars},{time * 1000:.0f}\n",
        json.dumps({"reviewerID": user, "asin": item, "overall": 5, "unixReviewTime": time}),
    ]
    paths = [tmp_path / f"{number}.gz" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(gzip.compress(text.encode()))
    assert read(paths, reading).collect().rows() == [ROWS[0]] * 4


@pytest.mark.parametrize("text", ["alice,tea,5,1\n", "user,item\n", ""])
def test_file_without_amazon_keys_is_refused(text: str, tmp_path: Path, reading: Reading) -> None:
    with pytest.raises(UserError, match=r"cannot tell users from items in .*reviews") as error:
        read_text(text, tmp_path, reading)
    assert "--query-column" in error.value.hint
