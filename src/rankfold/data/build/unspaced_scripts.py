"""Scripts whose texts have about one token each, because nothing separates their words."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

import polars as pl

from rankfold.data.build.words import script_of, words_of

_SAMPLE = 20_000  # texts
_MIN_TEXTS = 5  # of a script
_MAX_WORDS = 1.5  # per text, on average
_MIN_LETTERS = 12  # per word, on average: texts of one short word are no reason to warn


def unseparated(texts: Sequence[str | None] | pl.Series) -> list[dict[str, object]]:
    """Each such script with its number of texts and words per text; from the first texts."""
    words, letters, counts = (defaultdict[str, int](int) for _ in range(3))
    for text in islice((text for text in texts if text), _SAMPLE):
        by_script: dict[str, list[str]] = defaultdict(list)
        for word in words_of(text):
            by_script[script_of(word[0])].append(word)
        for script, own in by_script.items():
            counts[script] += 1
            words[script] += len(own)
            letters[script] += sum(map(len, own))
    return [
        {"script": script, "texts": n, "words": round(words[script] / n, 2)}
        for script, n in sorted(counts.items())
        if n >= _MIN_TEXTS
        and words[script] <= _MAX_WORDS * n
        and letters[script] >= _MIN_LETTERS * words[script]
    ]
