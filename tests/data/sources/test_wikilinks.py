import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import zstandard

from rankfold.data.read.reading import Reading
from rankfold.data.sources import wikilinks
from rankfold.data.sources.wikilinks import read
from rankfold.errors import UserError

CREATE = {
    "page": """CREATE TABLE `page` (
  `page_id` int(10) unsigned NOT NULL AUTO_INCREMENT,
  `page_namespace` int(11) NOT NULL DEFAULT 0,
  `page_title` varbinary(255) NOT NULL DEFAULT '',
  `page_is_redirect` tinyint(1) unsigned NOT NULL DEFAULT 0,
  `page_is_new` tinyint(1) unsigned NOT NULL DEFAULT 0,
  `page_random` double unsigned NOT NULL DEFAULT 0,
  `page_touched` binary(14) NOT NULL,
  `page_links_updated` varbinary(14) DEFAULT NULL,
  `page_latest` int(10) unsigned NOT NULL DEFAULT 0,
  `page_len` int(10) unsigned NOT NULL DEFAULT 0,
  `page_content_model` varbinary(32) DEFAULT NULL,
  `page_lang` varbinary(35) DEFAULT NULL,
  PRIMARY KEY (`page_id`),
  UNIQUE KEY `page_name_title` (`page_namespace`,`page_title`),
  KEY `page_redirect_namespace_len` (`page_is_redirect`,`page_namespace`,`page_len`)
) ENGINE=InnoDB AUTO_INCREMENT=99 DEFAULT CHARSET=binary;""",
    "linktarget": """CREATE TABLE `linktarget` (
  `lt_id` bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  `lt_namespace` int(11) NOT NULL,
  `lt_title` varbinary(255) NOT NULL,
  PRIMARY KEY (`lt_id`),
  UNIQUE KEY `lt_namespace_title` (`lt_namespace`,`lt_title`)
) ENGINE=InnoDB AUTO_INCREMENT=99 DEFAULT CHARSET=binary;""",
    "pagelinks": """CREATE TABLE `pagelinks` (
  `pl_from` int(8) unsigned NOT NULL DEFAULT 0,
  `pl_from_namespace` int(11) NOT NULL DEFAULT 0,
  `pl_target_id` bigint(20) unsigned NOT NULL,
  PRIMARY KEY (`pl_from`,`pl_target_id`),
  KEY `pl_target_id` (`pl_target_id`,`pl_from`)
) ENGINE=InnoDB DEFAULT CHARSET=binary;""",
}
SHAQ, PARTED, QUOTED, SLASH = 'O\'Neill, (the "Shaq")', "A),(B", "'),('", "\\'\\"
PAGES = [  # id, namespace, title, is redirect
    (1, 0, "April", 0),
    (2, 0, "August", 0),
    (3, 0, SHAQ, 0),
    (4, 0, PARTED, 0),
    (5, 0, "Zürich", 0),
    (6, 1, "April", 0),
    (7, 0, "Aug", 1),  # to August
    (8, 0, "Aug.", 1),  # to Aug
    (9, 0, "Chicken", 1),  # to Egg
    (10, 0, "Egg", 1),  # to Chicken
    (11, 0, "Me", 1),  # to itself
    (12, 0, "Several", 1),  # to April or August
    (13, 0, "Broken", 1),  # to nothing
    (14, 0, QUOTED, 0),
    (15, 0, SLASH, 0),
]
TARGETS = [(100 + id_, space, title) for id_, space, title, _ in PAGES] + [(200, 0, "Gone")]
LINKS = [  # page, its namespace, target
    (1, 0, 102),
    (1, 0, 107),  # August once more, by a redirect
    (1, 0, 103),
    (1, 0, 101),  # itself
    (2, 0, 101),
    (2, 0, 108),  # itself, by two redirects
    (2, 0, 109),  # a circle
    (3, 0, 104),
    (4, 0, 108),  # August by two redirects
    (4, 0, 111),  # a circle of one
    (5, 0, 106),  # no article
    (5, 0, 112),
    (5, 0, 113),
    (5, 0, 200),  # nothing
    (6, 1, 102),  # from no article
    (7, 0, 102),
    (8, 0, 107),
    (9, 0, 110),
    (10, 0, 109),
    (11, 0, 111),
    (12, 0, 101),
    (12, 0, 102),
    (13, 0, 200),
    (14, 0, 115),
    (15, 0, 114),
    (15, 0, 105),
]
EXPECTED = [
    ("April", "August"),
    ("April", SHAQ),
    ("August", "April"),
    (SHAQ, PARTED),
    (PARTED, "August"),
    (QUOTED, SLASH),
    (SLASH, "Zürich"),
    (SLASH, QUOTED),
]

Insert = Callable[[str, Sequence[str]], str]


def by_statement(table: str, rows: Sequence[str]) -> str:
    """Long lines, as older servers write them."""
    half = len(rows) // 2
    return "".join(
        f"INSERT INTO `{table}` VALUES {','.join(part)};\n" for part in (rows[:half], rows[half:])
    )


def by_row(table: str, rows: Sequence[str]) -> str:
    """One line per row, as newer servers write them."""
    return f"INSERT INTO `{table}` VALUES\n" + ",\n".join(rows) + ";\n"


def dump(table: str, insert: Insert = by_statement) -> str:
    return (
        "/*M!999999\\- enable the sandbox mode */ \n-- MariaDB dump 10.19\n--\n"
        f"-- Table structure for table `{table}`\n--\n\nDROP TABLE IF EXISTS `{table}`;\n"
        "/*!40101 SET character_set_client = utf8 */;\n"
        f"{CREATE[table]}\n\n/*!40000 ALTER TABLE `{table}` DISABLE KEYS */;\n"
        f"{insert(table, ROWS[table])}/*!40000 ALTER TABLE `{table}` ENABLE KEYS */;\n"
        "-- Dump completed on 2025-04-01\n"
    )


def quote(title: str) -> str:
    escaped = title.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"')
    return f"'{escaped.replace(' ', '_')}'"


REST = "0,0.123,'20250401000000','20250401000001',9,7,'wikitext',NULL"
ROWS = {
    "page": [f"({i},{space},{quote(title)},{is_r},{REST})" for i, space, title, is_r in PAGES],
    "linktarget": [f"({i},{space},{quote(title)})" for i, space, title in TARGETS],
    "pagelinks": [f"({page},{space},{target})" for page, space, target in LINKS],
}


@pytest.mark.parametrize("insert", [by_statement, by_row])
def test_links_of_articles_with_redirects_followed(
    insert: Insert, tmp_path: Path, reading: Reading
) -> None:
    for table in CREATE:
        (tmp_path / f"simplewiki-20250401-{table}.sql").write_text(dump(table, insert))
    (tmp_path / "simplewiki-20250401-category.sql").write_text("CREATE TABLE `category` (\n);\n")
    (tmp_path / "README").write_text(CREATE["page"])
    frame = read([tmp_path], reading).collect(engine="streaming")
    assert frame.columns == ["query", "candidate"]
    assert sorted(frame.rows()) == sorted(EXPECTED)


def test_title_in_the_dump_is_escaped_as_mysql_does() -> None:
    assert r"(3,0,'O\'Neill,_(the_\"Shaq\")',0,0,0.123," in dump("page")


def test_files_of_any_name_order_and_compression(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "c.sql.gz").write_bytes(gzip.compress(dump("page").encode()))
    (tmp_path / "b.zst").write_bytes(zstandard.compress(dump("linktarget").encode()))
    (tmp_path / "a").write_text(dump("pagelinks"))
    paths = [tmp_path / "a", tmp_path / "b.zst", tmp_path / "c.sql.gz"]
    assert sorted(read(paths, reading).collect().rows()) == sorted(EXPECTED)


def test_columns_are_found_by_name(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "  `pl_target_id` bigint,\n  `pl_new` blob,\n  `pl_from` int\n"
    monkeypatch.setitem(CREATE, "pagelinks", f"CREATE TABLE `pagelinks` (\n{columns});")
    monkeypatch.setitem(
        ROWS, "pagelinks", [f"({target},'x),(',{page})" for page, _, target in LINKS]
    )
    for table in CREATE:
        (tmp_path / f"{table}.sql").write_text(dump(table))
    assert sorted(read([tmp_path], reading).collect().rows()) == sorted(EXPECTED)


@pytest.mark.parametrize("insert", [by_statement, by_row])
def test_any_title_is_read_back(
    insert: Insert, tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(0)
    marks = ["'", '"', "\\", "(", ")", ",", "),(", ");", "NULL", "a", "é", "日", " "]
    texts = {"".join(rng.choices(marks, k=rng.randint(1, 8))) for _ in range(3000)}
    titles = sorted(text for text in texts if text.strip())
    rows = [f"({i},0,{quote(title)})" for i, title in enumerate(titles)]
    path = tmp_path / "linktarget.sql"
    path.write_text(f"{CREATE['linktarget']}\n{insert('linktarget', rows)}")
    monkeypatch.setattr(wikilinks, "BLOCK", 1000)
    result = wikilinks._describe(path)
    assert result is not None
    frame = wikilinks._spool(result, reading).with_columns(wikilinks._title("lt_title")).collect()
    assert frame["lt_title"].to_list() == titles
    assert frame["lt_id"].to_list() == list(range(len(titles)))


def test_long_chain_of_redirects_is_followed(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 37
    pages = [f"({i},0,'P{i}',{int(0 < i < n)},{REST})" for i in range(n + 1)]
    monkeypatch.setitem(ROWS, "page", pages)
    monkeypatch.setitem(ROWS, "linktarget", [f"({i},0,'P{i}')" for i in range(n + 1)])
    monkeypatch.setitem(ROWS, "pagelinks", [f"({i},0,{i + 1})" for i in range(n)])
    for table in CREATE:
        (tmp_path / f"{table}.sql").write_text(dump(table))
    assert read([tmp_path], reading).collect().rows() == [("P0", "P37")]


def test_missing_tables_are_named(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "page.sql").write_text(dump("page"))
    with pytest.raises(
        UserError, match="no SQL dump of the table linktarget nor of pagelinks"
    ) as e:
        read([tmp_path], reading)
    assert "simplewiki-DATE-page.sql.gz" in e.value.hint


def test_two_dumps_of_a_table_are_refused(tmp_path: Path, reading: Reading) -> None:
    for name in ("a.sql", "b.sql"):
        (tmp_path / name).write_text(dump("page"))
    with pytest.raises(UserError, match=r"a\.sql and .*b\.sql both hold the table page"):
        read([tmp_path], reading)


def test_old_layout_is_refused(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = "CREATE TABLE `pagelinks` (\n  `pl_from` int,\n  `pl_title` varbinary(255)\n);"
    monkeypatch.setitem(CREATE, "pagelinks", create)
    for table in CREATE:
        (tmp_path / f"{table}.sql").write_text(dump(table))
    with pytest.raises(UserError, match=r"pagelinks\.sql has no column 'pl_target_id'") as error:
        read([tmp_path], reading)
    assert "it has pl_from, pl_title" in error.value.hint


@pytest.mark.parametrize("end", ["(7,0,'April'", "('x',0,'April');", "(7,0,'April);"])
def test_damaged_dump_is_refused(end: str, tmp_path: Path, reading: Reading) -> None:
    for table in CREATE:
        (tmp_path / f"{table}.sql").write_text(dump(table))
    with (tmp_path / "linktarget.sql").open("a") as file:
        file.write(f"INSERT INTO `linktarget` VALUES {end}\n")
    with pytest.raises(UserError, match=r"linktarget\.sql has a row that does not fit") as error:
        read([tmp_path], reading)
    assert "truncated" in error.value.hint
