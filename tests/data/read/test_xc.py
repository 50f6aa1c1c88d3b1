"""Folders of the XC repository, in each of their forms."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rankfold.data.folder import check_content
from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.types import Dataset, Interactions

FEATURES = ["0:0.5 2:1.5", "1:1", "", "2:2.25 0:0.125"]  # the last one is test
LABELS = ["1:1 0:1", "2:1", "0:1", "1:1 3:1"]
ABOUT = ["0:1", "1:2", "2:3", "0:0.5 1:0.5"]


def write(folder: Path, files: dict[str, list[str]]) -> Path:
    for name, lines in files.items():
        (folder / name).write_text("".join(line + "\n" for line in lines))
    return folder


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "trn_X_Xf.txt": ["3 3", *FEATURES[:3]],
            "tst_X_Xf.txt": ["1 3", *FEATURES[3:]],
            "trn_X_Y.txt": ["3 4", *LABELS[:3]],
            "tst_X_Y.txt": ["1 4", *LABELS[3:]],
            "lbl_X_Xf.txt": ["4 3", *ABOUT],
        },
    )


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "train.txt": ["3 3 4", "1,0 0:0.5 2:1.5", "2 1:1", "0"],
            "test.txt": ["1 3 4", "1,3 2:2.25 0:0.125"],
        },
    )


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    def put(name: str, objects: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(item) + "\n" for item in objects)
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(lines.encode()))

    targets = [[1, 0], [2], [0], [1, 3]]
    documents = [
        {"uid": f"u{i}", "title": f"title {i}", "content": "more", "target_ind": target}
        for i, target in enumerate(targets)
    ]
    put("trn", documents[:3])
    put("tst", documents[3:])
    put("lbl", [{"uid": f"l{i}", "title": f"Label {i}", "content": ""} for i in range(4)])
    return tmp_path


def rows(part: Any) -> list[list[int]]:
    assert isinstance(part, Interactions)
    return [part.candidates[a:b].tolist() for a, b in part.offsets.unfold(0, 2, 1).tolist()]


def prepared(folder: Path, **options: Any) -> Dataset:
    data = prepare(folder, format="xc", **{"validation_share": 0.0} | options)
    assert data.kind == "texts"
    check_content(data)
    return data


def bags(data: Dataset, side: str) -> list[dict[int, float]]:
    texts = getattr(data, f"{side}_texts")
    places = texts.offsets.unfold(0, 2, 1).tolist()
    pairs = zip(texts.tokens.tolist(), texts.weights.tolist(), strict=True)
    entries = list(pairs)
    return [dict(entries[a:b]) for a, b in places]


@pytest.mark.parametrize("form", ["sparse", "old", "raw"])
def test_documents_are_numbered_and_keep_their_labels(
    form: str, request: pytest.FixtureRequest
) -> None:
    data = prepared(request.getfixturevalue(form))
    assert rows(data.train) == [[0, 1], [2], [0], []]
    assert rows(data.test) == [[], [], [], [1, 3]]
    assert data.validation is None
    assert data.queries.keys.to_list() == [0, 1, 2, 3]
    assert data.candidates.keys.to_list() == [0, 1, 2, 3]


@pytest.mark.parametrize("form", ["sparse", "old"])
def test_features_are_bags_with_weights(form: str, request: pytest.FixtureRequest) -> None:
    data = prepared(request.getfixturevalue(form))
    expected = [{0: 0.5, 2: 1.5}, {1: 1.0}, {}, {2: 2.25, 0: 0.125}]
    assert bags(data, "query") == expected
    assert (data.tokenizer, data.n_tokens) == (None, 3)


def test_features_of_labels(sparse: Path) -> None:
    assert bags(prepared(sparse), "candidate") == [{0: 1}, {1: 2}, {2: 3}, {0: 0.5, 1: 0.5}]
    (sparse / "lbl_X_Xf.txt").rename(sparse / "Yf.txt")
    assert bags(prepared(sparse), "candidate")[1] == {1: 2}
    (sparse / "Yf.txt").unlink()
    assert prepared(sparse).candidate_texts is None


def test_bags_round_trip(sparse: Path, tmp_path: Path) -> None:
    data = prepared(sparse, out=tmp_path / "data")
    assert bags(data, "query") == bags(prepared(sparse), "query")
    assert data.candidates.texts is None


def test_raw_titles_and_content(raw: Path) -> None:
    data = prepared(raw)
    assert data.query_texts is not None
    assert data.query_texts.counts().tolist() == [2, 2, 2, 2]
    longer = prepared(raw, content=True).query_texts
    assert longer is not None
    assert longer.counts().tolist() == [3, 3, 3, 3]
    texts = data.candidates.texts
    assert texts is not None
    assert texts.to_list() == [f"Label {i}" for i in range(4)]


def test_texts_of_labels_that_have_none(raw: Path, tmp_path: Path) -> None:
    (raw / "lbl.json.gz").unlink()
    (tmp_path / "names.csv").write_text("label,name\n1,the second\n0,the first\n9,a new one\n")
    data = prepare(raw, format="xc", candidate_texts=tmp_path / "names.csv")
    assert data.candidates.keys.to_list() == [0, 1, 2, 3, 9]
    assert data.candidates.texts is not None
    expected = ["the first", "the second", None, None, "a new one"]
    assert data.candidates.texts.to_list() == expected
    assert data.candidate_texts is not None
    assert (data.candidate_texts.counts() > 0).tolist() == [text is not None for text in expected]


@pytest.mark.parametrize(
    ("names", "message"),
    [("label,name\n77,far\n", "no key in common"), ("label,name\n1,one\nx,two\n", "the key 'x'")],
)
def test_texts_of_unknown_labels_are_refused(
    names: str, message: str, raw: Path, tmp_path: Path
) -> None:
    (raw / "lbl.json.gz").unlink()
    (tmp_path / "names.csv").write_text(names)
    with pytest.raises(UserError, match=message):
        prepare(raw, format="xc", candidate_texts=tmp_path / "names.csv")


def test_words_of_labels_beside_features_of_documents_are_refused(
    sparse: Path, tmp_path: Path
) -> None:
    (sparse / "lbl_X_Xf.txt").unlink()
    (tmp_path / "names.csv").write_text("label,name\n1,the second\n")
    with pytest.raises(UserError, match="are bags of features") as caught:
        prepare(sparse, format="xc", candidate_texts=tmp_path / "names.csv")
    assert "lbl_X_Xf.txt" in caught.value.hint


def test_texts_of_labels_that_have_some_are_refused(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("label,name\n1,the second\n")
    with pytest.raises(UserError, match="take no table of candidate texts"):
        prepare(raw, format="xc", candidate_texts=tmp_path / "names.csv")


def test_filters_are_excluded_pairs_of_their_split(sparse: Path) -> None:
    (sparse / "filter_labels_train.txt").write_text("0 3\n2 1\n0 3\n")
    (sparse / "filter_labels_test.txt").write_text("0 2\n")
    assert rows(prepared(sparse).excluded) == [[3], [], [1], [2]]


def dropped(data: Dataset) -> dict[str, int]:
    return {entry["why"]: entry["rows"] for entry in data.summary["dropped"]}


def test_filtered_pairs_are_in_no_split(sparse: Path) -> None:
    """The summary counts them by split; documents without pairs keep their rows."""
    (sparse / "filter_labels_train.txt").write_text("0 1\n0 3\n1 2\n")
    (sparse / "filter_labels_test.txt").write_text("0 1\n0 2\n")
    data = prepared(sparse)
    assert rows(data.train) == [[0], [], [0], []]
    assert rows(data.test) == [[], [], [], [3]]
    assert rows(data.excluded) == [[1, 3], [2], [], [1, 2]]
    assert dropped(data) == {"excluded pair of train": 2, "excluded pair of test": 1}
    assert data.summary["rows"] == 6


def test_filtered_pairs_are_removed_from_new_splits(sparse: Path) -> None:
    (sparse / "filter_labels_test.txt").write_text("0 1\n")
    data = prepared(sparse, split="0.8,0.1,0.1")
    assert rows(data.train) == [[0, 1], [2], [0], [3]]
    assert dropped(data) == {"excluded pair": 1}


def test_completely_filtered_test_split_is_none(sparse: Path) -> None:
    (sparse / "filter_labels_test.txt").write_text("0 1\n0 3\n")
    assert prepared(sparse).test is None
    (sparse / "filter_labels_train.txt").write_text("0 0\n0 1\n1 2\n2 0\n")
    refused(sparse, "the filter 'excluded pair of test' removed all 2 pairs")
    (sparse / "filter_labels_test.txt").unlink()
    refused(sparse, "none of the 2 pairs is in train")


def test_validation_is_whole_documents(tmp_path: Path) -> None:
    n = 40
    labels = [f"{i % 5}:1 {5 + i % 3}:1" for i in range(n)]
    files = {
        "trn_X_Xf.txt": [f"{n} 2", *(["0:1"] * n)],
        "trn_X_Y.txt": [f"{n} 8", *labels],
        "tst_X_Xf.txt": ["1 2", "1:1"],
        "tst_X_Y.txt": ["1 8", "0:1"],
    }
    data = prepared(write(tmp_path, files), validation_share=0.1)
    assert data.split("validation").counts().unique().tolist() == [0, 2]
    assert data.split("validation").n_pairs == 8
    assert torch.equal(data.split("train").counts()[:n] + data.split("validation").counts()[:n],
                       torch.full((n,), 2))  # fmt: skip


# ---------------------------------------------------------------------------------- refusals


def edit(name: str, line: int, text: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines()
        lines[line] = text
        (folder / name).write_text("\n".join(lines) + "\n")

    return change


def append(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text() + text)


BAD_SPARSE = {
    "first line of trn_X_Y.txt is '3'": edit("trn_X_Y.txt", 0, "3"),
    "first line of trn_X_Xf.txt is 'a b'": edit("trn_X_Xf.txt", 0, "a b"),
    "first line of trn_X_Xf.txt is ''": lambda folder: (folder / "trn_X_Xf.txt").write_text(""),
    "has 3 rows, but its first line says 4": edit("trn_X_Y.txt", 0, "4 4"),
    "has 4 rows, but its first line says 3": append("trn_X_Y.txt", "1:1\n"),
    "trn_X_Xf.txt has 2 rows, trn_X_Y.txt 3": lambda folder: write(
        folder, {"trn_X_Xf.txt": ["2 3", "0:1", "0:1"]}
    ),
    "trn_X_Y.txt:3 holds a column that does not exist": edit("trn_X_Y.txt", 2, "4:1"),
    "trn_X_Xf.txt:2 holds a value that is not finite": edit("trn_X_Xf.txt", 1, "0:nan"),
    "trn_X_Xf.txt:4 holds an entry that is not column:value": edit("trn_X_Xf.txt", 3, "0:1:2 1"),
    "trn_X_Xf.txt:3 holds an entry that is not a number": edit("trn_X_Xf.txt", 2, "x:1"),
    "train has 5 labels, test 4": edit("trn_X_Y.txt", 0, "3 5"),
    "train has 3 features, test 4": edit("tst_X_Xf.txt", 0, "1 4"),
    "lbl_X_Xf.txt has 4 features, the documents 3": edit("lbl_X_Xf.txt", 0, "4 4"),
    "lbl_X_Xf.txt has 1 rows, but there are 4 labels": lambda folder: write(
        folder, {"lbl_X_Xf.txt": ["1 3", "0:1"]}
    ),
    "has no tst_X_Y.txt": lambda folder: (folder / "tst_X_Y.txt").unlink(),
    "trn_X_Xf.txt:2 holds": lambda folder: (folder / "trn_X_Xf.txt").write_bytes(
        b"3 3\n0:1 \xff:1\n\n\n"
    ),
    "filter_labels_test.txt:1 names row 1": lambda folder: (
        folder / "filter_labels_test.txt"
    ).write_text("1 0\n"),
    "filter_labels_train.txt:1 is 'x y'": lambda folder: (
        folder / "filter_labels_train.txt"
    ).write_text("x y\n"),
}


def refused(folder: Path, message: str) -> None:
    out = folder.parent / "out"
    with pytest.raises(UserError) as caught:
        prepare(folder, format="xc", out=out)
    assert message in str(caught.value)
    assert caught.value.hint
    assert not out.exists()


@pytest.mark.parametrize("message", BAD_SPARSE)
def test_bad_sparse_files_are_refused(message: str, sparse: Path) -> None:
    BAD_SPARSE[message](sparse)
    refused(sparse, message)


def test_bad_old_files_are_refused(old: Path) -> None:
    edit("train.txt", 1, "1,4 0:1")(old)
    refused(old, "train.txt:2 holds a column that does not exist")
    edit("train.txt", 0, "3 3")(old)
    refused(old, "first line of train.txt is '3 3'")


@pytest.mark.parametrize("target", [[4], [-1], ["1"], [True], 1, None])
def test_bad_targets_are_refused(target: object, raw: Path) -> None:
    line = json.dumps({"title": "x", "target_ind": target}) + "\n"
    (raw / "trn.json.gz").write_bytes(gzip.compress(line.encode()))
    refused(raw, "row 0 of trn.json has target_ind")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"[]\n", "holds no JSON object"),
        (b'{"title": "\xff"}\n', "not UTF-8"),
        (b'{"target_ind": []}\n \n\n{"target_ind": []}\n', "trn.json.gz:2 is blank"),
        (b'{"title": "x"}\n', "row 0 of trn.json has target_ind None"),
    ],
)
def test_bad_objects_are_refused(content: bytes, message: str, raw: Path) -> None:
    (raw / "trn.json.gz").write_bytes(gzip.compress(content))
    refused(raw, message)


def test_blank_lines_at_the_end_are_not_rows(raw: Path) -> None:
    content = gzip.decompress((raw / "tst.json.gz").read_bytes())
    (raw / "tst.json.gz").write_bytes(gzip.compress(content + b"\n \n"))
    assert rows(prepared(raw).test) == [[], [], [], [1, 3]]


def test_folder_of_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    refused(tmp_path / "x", "has no training documents")
    (tmp_path / "y").touch()
    refused(tmp_path / "y", "is not a folder")
    with pytest.raises(UserError, match="one folder"):
        prepare(format="xc")


def test_folder_as_texts_hints_at_the_command(sparse: Path) -> None:
    with pytest.raises(UserError, match="is a folder") as caught:
        prepare(sparse, format="texts")
    assert f"rankfold prepare --format xc {sparse} --out DATA" in caught.value.hint


@pytest.mark.parametrize("size", ["2147483648", "3000000000000", "9" * 24])
def test_too_large_sizes_are_refused(size: str, sparse: Path) -> None:
    edit("trn_X_Y.txt", 0, f"2 {size}")(sparse)
    refused(sparse, f"first line of trn_X_Y.txt is '2 {size}'")


def test_too_large_labels_are_refused(raw: Path) -> None:
    line = json.dumps({"title": "x", "target_ind": [10**26]}) + "\n"
    (raw / "trn.json.gz").write_bytes(gzip.compress(line.encode()))
    (raw / "lbl.json.gz").unlink()
    refused(raw, "row 0 of trn.json has target_ind")


def test_bags_of_ones_are_bags(sparse: Path) -> None:
    """Their tokens have no order, whatever their weights."""
    for name in ("trn", "tst"):
        path = sparse / f"{name}_X_Xf.txt"
        path.write_text(re.sub(r":\S+", ":1", path.read_text()))
    texts = prepare(sparse, format="xc").query_texts
    assert texts is not None
    assert texts.weights is not None
    assert set(texts.weights.tolist()) == {1.0}
