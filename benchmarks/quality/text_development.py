"""Text sets to develop on, which no table of the documentation shows.

    python -m benchmarks.quality.text_development [--data DIR] [NAME ...]

Each becomes scratch/texts/NAME.npz, as those of ``text_data``, and scratch/data/text-NAME. They are
samples of public sets with other labels: broad ones, many for each document, or bare codes.
Some need packages that ``package_sets`` names. Those of ``LAST`` are for one judgement after all
choices.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import polars as pl

import rankfold as rf
from benchmarks.paths import SCRATCH, SHARED
from benchmarks.quality import package_sets
from benchmarks.quality.text_data import TEST, TRAIN, VALIDATION, TextSet, no_pairs, rows, save
from rankfold.types import Dataset

FOLDERS = SCRATCH / "data"


def broad_headings(data: Path) -> TextSet:
    """10,000 titles with at least six subject headings, each reduced to its last word."""
    titles, labels = _broad(data)
    return assembled(drawn([one for one in titles if len(one[1]) >= 6], 10_000), labels)


def codes(data: Path) -> TextSet:
    """12,000 titles with three to five of these; the texts of labels are bare codes."""
    titles, labels = _broad(data)
    chosen = drawn([one for one in titles if 3 <= len(one[1]) <= 5], 12_000)
    return assembled(chosen, [f"x{number:05d}" for number in range(len(labels))])


def package_needs(data: Path) -> TextSet:
    """Package descriptions, with their section and the packages that hundreds depend on."""
    about, needed = _packages(data)
    counts = np.bincount([one for own in needed.values() for one in own])
    sections = sorted({section for _, section, _ in about.values()})
    names = [*sections, *(name for _, _, name in about.values())]
    place = {number: len(sections) + i for i, number in enumerate(about)}
    documents = [
        (text, [sections.index(section)] + [place[n] for n in needed[number] if counts[n] >= 100])
        for number, (text, section, _) in about.items()
    ]
    return assembled(drawn([one for one in documents if len(one[1]) > 1], 15_000), names)


def package_links(data: Path) -> TextSet:
    """Package descriptions and what they depend on, where few packages do: texts say which."""
    about, needed = _packages(data)
    counts = np.bincount([one for own in needed.values() for one in own])
    place = {number: i for i, number in enumerate(about)}
    documents = [
        (text, [place[n] for n in needed[number] if counts[n] < 50])
        for number, (text, _, _) in about.items()
    ]
    labels = [text for text, _, _ in about.values()]
    return assembled(drawn([one for one in documents if one[1]], 12_000), labels)


def hypernyms(data: Path) -> TextSet:
    """Glosses of synsets, and the words of all their hypernyms, near and far."""
    folder, above = data / "wordnet-3.0", defaultdict(set)
    synsets = {int(row[0]): row for row in rows(folder / "synsets.tsv.zst")}
    for row in rows(folder / "pointers.tsv.zst"):
        if row[2] in ("@", "@i"):
            above[int(row[0])].add(int(row[1]))

    def ancestors(number: int) -> set[int]:
        found, new = set[int](), set(above[number])
        while new:
            found |= new
            new = {up for one in new for up in above[one]} - found
        return found

    place = {number: i for i, number in enumerate(synsets)}
    documents = [
        (row[3], [place[one] for one in ancestors(number)]) for number, row in synsets.items()
    ]
    chosen = drawn([one for one in documents if one[1]], 12_000)
    return assembled(chosen, [row[2] for row in synsets.values()])


def phenotypes(_data: Path) -> TextSet:
    """Names of diseases and of their symptoms; the texts of both have few words in common."""
    names, key = dict[str, str](), ""
    for line in package_sets.hpo_terms().splitlines():
        kind, _, value = line.partition(": ")
        if kind == "id":
            key = value
        elif kind == "name":
            names.setdefault(key, value)
    place = {key: i for i, key in enumerate(names)}
    own, titles = defaultdict(list), dict[str, str]()
    for disease, title, term in package_sets.hpo_diseases():
        own[disease].append(place[term])
        titles[disease] = title
    documents = [(titles[one], terms) for one, terms in own.items() if len(set(terms)) >= 3]
    return assembled(drawn(documents, 10_000), list(names.values()))


def diagnoses(_data: Path) -> TextSet:
    """Names of diagnoses, and the bare codes of what each belongs to."""
    found = list(package_sets.diagnoses())
    codes = sorted({code for _, own in found for code in own})
    place = {code: i for i, code in enumerate(codes)}
    documents = [(text, [place[code] for code in own]) for text, own in found]
    return assembled(drawn(documents, 12_000), [f"x{i:05d}" for i in range(len(codes))])


def dictionary(_data: Path) -> TextSet:
    """The first 25 words of articles about computing, and the articles that they link to."""
    articles = dict(package_sets.dictionary())
    place = {word: i for i, word in enumerate(articles)}
    documents = [
        (" ".join([word, *re.sub("[{}]", "", text).split()[:25]]), _known(_links(text), place))
        for word, text in articles.items()
    ]
    return assembled(drawn([one for one in documents if one[1]], 12_000), list(place))


def _links(text: str) -> list[str]:
    """What is in braces."""
    return [" ".join(link.split()) for link in re.findall(r"\{([^{}(]*)\}", text)]


def _known(names: list[str], place: dict[str, int]) -> list[int]:
    return [place[name] for name in names if name in place]


def italian(data: Path) -> TextSet:
    """Long Italian descriptions of packages; their section, and what dozens depend on."""
    about, needed = _packages(data)
    texts = package_sets.italian_packages()
    counts = np.bincount([one for own in needed.values() for one in own])
    sections = sorted({section for _, section, _ in about.values()})
    place = {number: len(sections) + i for i, number in enumerate(about)}
    documents = [
        (texts[name], [sections.index(section)] + [place[n] for n in needed[key] if counts[n] > 29])
        for key, (_, section, name) in about.items()
        if name in texts
    ]
    labels = [*sections, *(name for _, _, name in about.values())]
    return assembled(drawn([one for one in documents if len(one[1]) > 1], 12_000), labels)


def icons(_data: Path) -> TextSet:
    """Names of icons, and their tags."""
    found = list(package_sets.icons())
    names = sorted({tag.lower() for _, own in found for tag in own})
    place = {name: i for i, name in enumerate(names)}
    documents = [(name, [place[tag.lower()] for tag in own]) for name, own in found if own]
    return assembled(drawn(documents, 12_000), names)


def definitions(_data: Path) -> TextSet:
    """Entries of a dictionary; their parts of speech, fields, and authors that they quote."""
    return listed(package_sets.definitions(), 12_000)


def manuals(_data: Path) -> TextSet:
    """Descriptions of manual pages, and the pages that they refer to."""
    found = list(package_sets.manuals())
    about = {key: f"{key} {' '.join(text.split()[:30])}" for key, text, _ in found}
    own = [(about[key], pages) for key, _, pages in found if about[key].strip()]
    result = listed(own, 12_000)
    return result._replace(labels=[about.get(one, one) for one in result.labels])


def headers(_data: Path) -> TextSet:
    """Paths and comments of C headers, and the headers that they include."""
    return listed(package_sets.headers(), 12_000)


def emoji(_data: Path) -> TextSet:
    """Names of emoji in five languages, and keywords."""
    return listed(package_sets.emoji_in_languages(), 12_000)


def tags(data: Path) -> TextSet:
    """Package descriptions and their debtags."""
    found = list(rows(data / "debian-trixie" / "packages.tsv.zst"))
    own = [[tag for tag in row[6].split(", ") if tag] for row in found]
    names = sorted({tag for some in own for tag in some})
    place = {name: i for i, name in enumerate(names)}
    pairs = [
        (f"{row[1]} {row[5]}", [place[tag] for tag in some])
        for row, some in zip(found, own, strict=True)
        if some
    ]
    return assembled(drawn(pairs, len(pairs)), names)


def first_paragraphs(data: Path) -> TextSet:
    """First paragraphs of articles, and the articles that they link to."""
    folder, links = data / "wikispeedia", defaultdict(list)
    about = {row[0]: (row[1], row[2]) for row in rows(folder / "abstracts.tsv.zst")}
    place = {name: i for i, name in enumerate(about)}
    for row in rows(folder / "links.tsv.zst"):
        if len(row) == 2 and row[1] in place:
            links[row[0]].append(place[row[1]])
    documents = [(text, links[name]) for name, (_, text) in about.items() if links[name]]
    return assembled(drawn(documents, len(documents)), [title for title, _ in about.values()])


DEVELOPMENT: dict[str, Callable[[Path], TextSet]] = {
    "broad-headings": broad_headings,
    "codes": codes,
    "package-needs": package_needs,
    "package-links": package_links,
    "hypernyms": hypernyms,
    "phenotypes": phenotypes,
    "diagnoses": diagnoses,
    "dictionary": dictionary,
    "definitions": definitions,
    "manuals": manuals,
}
LAST: dict[str, Callable[[Path], TextSet]] = {
    "tags": tags,
    "first-paragraphs": first_paragraphs,
    "italian": italian,
    "icons": icons,
    "headers": headers,
    "emoji": emoji,
}
SETS = {**DEVELOPMENT, **LAST}

Documents = list[tuple[str, list[int]]]  # text, labels


def drawn(documents: Documents, count: int) -> Documents:
    """Some of the documents, in random order."""
    order = np.random.default_rng(0).permutation(len(documents))[:count]
    return [documents[i] for i in order]


def listed(found: Iterable[tuple[str, list[str]]], count: int) -> TextSet:
    """Some of the texts that have labels; the texts of labels are their names."""
    documents = [(text, own) for text, own in found if text.strip() and own]
    names = sorted({name for _, own in documents for name in own})
    place = {name: i for i, name in enumerate(names)}
    chosen = [(text, [place[name] for name in own]) for text, own in documents]
    return assembled(drawn(chosen, count), names)


def assembled(documents: Documents, labels: list[str]) -> TextSet:
    """The last tenth is test, the last twentieth of the rest validation; only labels in use."""
    ends = int(len(documents) * 0.9 * 0.95), int(len(documents) * 0.9)
    pairs = np.array([(i, one) for i, (_, own) in enumerate(documents) for one in sorted(set(own))])
    used, columns = np.unique(pairs[:, 1], return_inverse=True)
    splits = np.array([TRAIN, VALIDATION, TEST])[np.searchsorted(ends, pairs[:, 0], side="right")]
    texts = [" ".join(text.split()) for text, _ in documents]
    kept = [labels[i] for i in used]
    return TextSet(texts, kept, np.column_stack([pairs[:, 0], columns, splits]), no_pairs())


def prepared(name: str, given: TextSet) -> Dataset:
    """The same as a prepared folder."""
    frames = [
        pl.DataFrame(given.pairs[given.pairs[:, 2] == split, :2], schema=["query", "candidate"])
        for split in (TRAIN, VALIDATION, TEST)
    ]
    texts = {
        side: pl.DataFrame({side: range(len(own)), "text": own})
        for side, own in (("query", given.documents), ("candidate", given.labels))
    }
    return rf.prepare(
        train=frames[0],
        validation=frames[1],
        test=frames[2],
        query_texts=texts["query"],
        candidate_texts=texts["candidate"],
        out=FOLDERS / f"text-{name}",
    )


def _broad(data: Path) -> tuple[Documents, list[str]]:
    """Titles with their subject headings, each reduced to its last word."""
    folder = data / "yso-finna-en"
    headings = [row[2] for row in rows(folder / "labels.tsv.zst")]
    heads = [heading.split()[-1].lower().rstrip("s") for heading in headings]
    place = {head: i for i, head in enumerate(sorted(set(heads)))}
    titles = [
        (row[0], [place[heads[int(i)]] for i in row[1].split()])
        for row in rows(folder / "docs.tsv.zst")
    ]
    return titles, list(place)


def _packages(data: Path) -> tuple[dict[int, tuple[str, str, str]], dict[int, list[int]]]:
    """Description, section and name of each package; the packages that it depends on."""
    folder, needed = data / "debian-trixie", defaultdict(list)
    about = {
        int(row[0]): (f"{row[1]} {row[5]}", row[3], row[1])
        for row in rows(folder / "packages.tsv.zst")
    }
    for row in rows(folder / "relations.tsv.zst"):
        if row[2] in "dp":
            needed[int(row[0])].append(int(row[1]))
    return about, needed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DEVELOPMENT))
    parser.add_argument("--data", type=Path, default=SHARED)
    args = parser.parse_args()
    FOLDERS.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        result = SETS[name](args.data)
        save(name, result)
        prepared(name, result)
        sizes = np.bincount(result.pairs[:, 2], minlength=3)
        documents = len(result.documents)
        print(name, documents, len(result.labels), sizes, round(len(result.pairs) / documents, 2))


if __name__ == "__main__":
    main()
