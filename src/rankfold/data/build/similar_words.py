"""The known word that looks most like an unknown one: typos, inflections, compounds.

Words are compared by their pairs and triples of characters, the ends of a word included, in hashed
buckets. A rare bucket weighs more. With G the buckets of a word and w(g) = ln(words / words with
g)::

    similarity(u, v) = 2 w(G_u & G_v) / (w(G_u) + w(G_v))
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankfold.data.build.words import is_spaced

MIN_LETTERS = 4  # shorter words are too similar to each other
MIN_SIMILARITY = 0.45
_BUCKETS = 2**20
_MAX_COMPARED = 20_000  # words that share a bucket with the unknown one, counted by bucket
_NOT_LETTERS = re.compile(r"[\d_+#.]")
_FIRST, _LAST = "\x01", "\x02"  # the ends of a word
Ints = NDArray[np.int64]


class SimilarWords:
    """Known words by their buckets; built when the first unknown word is met."""

    def __init__(self, words: Sequence[str]) -> None:
        """A word's number is its place; of equally similar words the first is taken."""
        numbers = [number for number, word in enumerate(words) if _comparable(word)]
        buckets, places = _buckets([words[number] for number in numbers])
        self.numbers = np.array(numbers, np.int64)
        self.words = places.astype(np.int32)
        counts = np.bincount(buckets, minlength=_BUCKETS)
        self.offsets = np.concatenate([[0], counts.cumsum()])
        self.weights = np.log((1 + len(numbers)) / (1 + counts)) + 1e-9
        self.sizes = np.bincount(places, self.weights[buckets], len(numbers))

    def find(self, word: str) -> int | None:
        """The number of the most similar word, if it is similar enough."""
        if not len(self.numbers) or not _comparable(word):
            return None
        buckets = _buckets([word])[0]
        lengths = self.offsets[buckets + 1] - self.offsets[buckets]
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order].cumsum() <= max(_MAX_COMPARED, int(lengths[order[0]]))]
        lists = [self.words[self.offsets[b] : self.offsets[b + 1]] for b in buckets[order]]
        near, places = np.unique(np.concatenate(lists), return_inverse=True)
        if not len(near):
            return None
        shared = np.bincount(places, np.repeat(self.weights[buckets[order]], lengths[order]))
        similarity = 2 * shared / (self.weights[buckets].sum() + self.sizes[near])
        best = int(similarity.argmax())
        return int(self.numbers[near[best]]) if similarity[best] >= MIN_SIMILARITY else None


def _comparable(word: str) -> bool:
    """Whether a word is long enough and has only letters, of a script with spaces."""
    return len(word) >= MIN_LETTERS and not _NOT_LETTERS.search(word) and is_spaced(word)


def _buckets(words: Sequence[str]) -> tuple[Ints, Ints]:
    """The distinct buckets of each word, and its place; by bucket, then by place."""
    text = "".join(f"{_FIRST}{word}{_LAST}" for word in words).encode("utf-32-le", "replace")
    letters = np.frombuffer(text, np.uint32).astype(np.uint64)
    owners = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])
    pairs = letters[:-1] * np.uint64(0x9E3779B97F4A7C15) + letters[1:]
    triples = pairs[:-1] * np.uint64(0xC2B2AE3D27D4EB4F) + letters[2:]
    both = [(pairs, owners[:-1] == owners[1:]), (triples, owners[:-2] == owners[2:])]
    hashed = np.concatenate([_hash(codes[inside]) for codes, inside in both])
    of = np.concatenate([owners[: len(inside)][inside] for _, inside in both])
    distinct = np.unique(hashed * max(1, len(words)) + of)
    return distinct // max(1, len(words)), distinct % max(1, len(words))


def _hash(codes: NDArray[np.uint64]) -> Ints:
    mixed = (codes ^ (codes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed ^ (mixed >> np.uint64(32))) % np.uint64(_BUCKETS)).astype(np.int64)
