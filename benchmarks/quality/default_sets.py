"""The sets of ``defaults.py``: pairs into splits, and those that are generated.

    python -m benchmarks.quality.default_sets

The real ones come from packages: ``package_sets.py`` says how to get them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.defaults import SETS
from benchmarks.quality.later_package_sets import IN_TIME as LATER_IN_TIME
from benchmarks.quality.later_package_sets import SOURCES as LATER_SOURCES
from benchmarks.quality.package_sets import IN_TIME, SOURCES, Pairs

Ids = NDArray[np.int64]
Sizes = Callable[[int, float, np.random.Generator], Ids]
MIN_PAIRS = 5  # of a query
MAX_QUERIES = 8000  # of a real set
SHARE = 0.1  # of a query's pairs for validation, and as many for test


def main() -> None:
    in_order = (*IN_TIME, *LATER_IN_TIME)
    for name, pairs in {**SOURCES, **LATER_SOURCES}.items():
        write(name, *core(pairs(), in_time=name in in_order), seed=None if name in in_order else 0)
    write("gen-5000", *of_factors(1500, 1000, 50, rank=24, strength=2.0, seed=1), seed=1)
    write("gen-1000", *of_factors(3000, 2000, 20, rank=12, strength=3.0, seed=3), seed=3)
    write("gen-0100", *of_topics(5000, 9000, 7, topics=40, share=0.6, power=0.9, seed=2), seed=2)
    write("gen-0050", *of_topics(7000, 25000, 7, topics=30, share=0.8, power=0.9, seed=4), seed=4)
    write("gen-0010", *of_topics(8000, 80000, 6, topics=60, share=0.95, power=1.0, seed=5), seed=5)
    write("gen-0012", *of_topics(8000, 90000, 6, topics=20, share=0.75, power=1.0, seed=6), seed=6)
    write("gen-tiny", *of_factors(250, 600, 20, rank=6, strength=2.5, seed=7), seed=7)
    write("gen-small", *of_topics(1200, 3000, 12, topics=25, share=0.7, power=0.8, seed=8), seed=8)
    write("gen-dense", *of_factors(1000, 600, 60, rank=16, strength=2.5, seed=9), seed=9)
    write("gen-2000", *of_factors(2000, 1500, 40, rank=40, strength=1.5, seed=10), seed=10)
    write(
        "gen-0006", *of_topics(9000, 90000, 5, topics=400, share=0.9, power=0.7, seed=11), seed=11
    )
    write("gen-drift-b", *drifting(1500, 3000, 35, rank=16, strength=2.0, seed=13), seed=None)
    write("gen-dense-b", *of_factors(700, 900, 80, rank=8, strength=2.0, seed=14), seed=14)
    write("gen-tiny-b", *of_factors(500, 400, 12, rank=10, strength=3.0, seed=15), seed=15)
    write(
        "gen-sparse-b",
        *of_topics(4000, 12000, 5, topics=60, share=0.9, power=0.7, seed=16),
        seed=16,
    )
    write("gen-drift", *drifting(3000, 2000, 25, rank=10, strength=2.5, seed=12), seed=None)
    write("gen-micro", *of_factors(60, 80, 8, rank=4, strength=3.0, seed=31), seed=31)
    write("gen-few", *of_factors(40, 3000, 100, rank=8, strength=3.0, seed=32), seed=32)
    write("gen-dense-c", *of_factors(600, 300, 75, rank=8, strength=2.0, seed=33), seed=33)
    write(
        "gen-short",
        *of_factors(20_000, 3000, rank=20, strength=3.0, seed=35, sizes=_short),
        seed=35,
    )
    write(
        "gen-cold",
        *with_late_half(of_factors(3000, 4000, 14, rank=12, strength=2.5, seed=36), 36),
        seed=None,
    )
    _write_later()


def _write_later() -> None:
    """Generated sets that came after the rules; those that end in -j only judge."""
    for name, m, n, mean, rank, strength, seed in (
        ("gen-flat", 150, 400, 15, 4, 0.6, 41),
        ("gen-flat-b", 2000, 1500, 20, 4, 0.6, 42),
        ("gen-films", 2000, 1500, 90, 30, 1.5, 45),
        ("gen-flat-j", 90, 600, 20, 5, 0.8, 51),
        ("gen-films-j", 1500, 2500, 120, 20, 2.0, 54),
    ):
        write(name, *of_factors(m, n, mean, rank=rank, strength=strength, seed=seed), seed=seed)
    for name, m, n, mean, rank, strength, seed in (
        ("gen-late", 2500, 3000, 20, 16, 2.0, 43),
        ("gen-late-j", 4000, 5000, 18, 10, 3.0, 52),
    ):
        pairs = of_factors(m, n, mean, rank=rank, strength=strength, seed=seed)
        write(name, *with_late_half(pairs, seed), seed=None)
    for name, m, n, mean, rank, strength, seed in (
        ("gen-drift-c", 2000, 1500, 30, 8, 1.5, 44),
        ("gen-drift-j", 2500, 4000, 28, 20, 2.0, 53),
    ):
        pairs = drifting(m, n, mean, rank=rank, strength=strength, seed=seed)
        write(name, *pairs, seed=None)
    groups = of_topics(3000, 6000, 8, topics=300, share=0.95, power=0.6, seed=46)
    write("gen-groups", *groups, seed=46)


def write(name: str, queries: Ids, candidates: Ids, seed: int | None) -> None:
    """Divide each query's pairs at random, or by their order, and store the splits, sorted."""
    queries, candidates = (np.unique(ids, return_inverse=True)[1] for ids in (queries, candidates))
    if seed is None:  # the last are tested
        place = -np.arange(len(queries), dtype=float)
    else:
        place = np.random.default_rng(seed).random(len(queries))
    order = np.lexsort((place, queries))
    queries, candidates = queries[order], candidates[order]
    sizes = np.bincount(queries)
    place = np.arange(len(queries)) - (np.cumsum(sizes) - sizes)[queries]
    part = np.maximum(1, np.round(SHARE * sizes)).astype(int)[queries]
    arrays = {"shape": np.array([queries.max() + 1, candidates.max() + 1])}
    for number, split in enumerate(("test", "val", "train")):
        chosen = np.minimum(place // part, 2) == number
        pairs = np.unique(np.stack([queries[chosen], candidates[chosen]]), axis=1)
        arrays |= {f"{split}_q": pairs[0].astype(np.int32), f"{split}_c": pairs[1].astype(np.int32)}
    SETS.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(SETS / f"{name}.npz", **arrays)  # type: ignore[arg-type]


def core(pairs: Pairs, *, in_time: bool = False) -> tuple[Ids, Ids]:
    """Numbered pairs of at most ``MAX_QUERIES`` queries, each with at least ``MIN_PAIRS``."""
    names = np.array(list(dict.fromkeys(pairs)) if in_time else sorted(set(pairs)))
    queries, candidates = (np.unique(side, return_inverse=True)[1] for side in names.T)
    queries, candidates = _dense(queries, candidates)
    chosen = np.random.default_rng(0).permutation(queries.max() + 1)[:MAX_QUERIES]
    keep = np.isin(queries, chosen)
    return _dense(queries[keep], candidates[keep])


def _dense(queries: Ids, candidates: Ids) -> tuple[Ids, Ids]:
    while True:
        keep = np.bincount(queries)[queries] >= MIN_PAIRS
        keep &= np.bincount(candidates)[candidates] > 1
        if keep.all():
            return queries, candidates
        queries, candidates = queries[keep], candidates[keep]


def of_factors(
    m: int,
    n: int,
    mean: float = 0.0,
    *,
    rank: int,
    strength: float,
    seed: int,
    sizes: Sizes | None = None,
) -> tuple[Ids, Ids]:
    """Pairs drawn by the softmax of random factors and popularity."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(m, rank)), rng.normal(size=(n, rank)) * strength / rank**0.5
    popularity = -np.log(1 + rng.permutation(n))
    chosen = []
    for vector, size in zip(left, (sizes or _sizes)(m, mean, rng), strict=True):
        scores = right @ vector + popularity + rng.gumbel(size=n)
        chosen.append(np.argpartition(-scores, min(size, n // 3))[: min(size, n // 3)])
    return _pairs(chosen) if sizes is None else _all_pairs(chosen)


def with_late_half(pairs: tuple[Ids, Ids], seed: int) -> tuple[Ids, Ids]:
    """The pairs in an order in which half of the candidates come late."""
    queries, candidates = pairs
    rng = np.random.default_rng(seed)
    late = (rng.random(candidates.max() + 1) < 0.5)[candidates]
    last, early = (rng.random(len(queries)) for _ in range(2))
    order = np.lexsort((np.where(late, 0.3 + last, early), queries))
    return queries[order], candidates[order]


def drifting(
    m: int, n: int, mean: float, *, rank: int, strength: float, seed: int
) -> tuple[Ids, Ids]:
    """As ``of_factors``, in the order of time: each candidate is popular for a while."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(m, rank)), rng.normal(size=(n, rank)) * strength / rank**0.5
    popularity, peak = -0.8 * np.log(1 + rng.permutation(n)), rng.random(n) * 1.3
    chosen = []
    for vector, size in zip(left, _sizes(m, mean, rng), strict=True):
        begin, liking = rng.random() * 0.7, right @ vector + popularity
        some = np.zeros(min(size, n // 3), dtype=np.int64)
        for place, time in enumerate(np.sort(begin + 0.3 * rng.random(len(some)))):
            some[place] = np.argmax(liking - 8 * np.abs(time - peak) + rng.gumbel(size=n))
            liking[some[place]] = -np.inf
        chosen.append(some)
    return _pairs(chosen)


def of_topics(
    m: int, n: int, mean: float, *, topics: int, share: float, power: float, seed: int
) -> tuple[Ids, Ids]:
    """Pairs of which a share is in a query's few topics, all by a power law of popularity."""
    rng = np.random.default_rng(seed)
    weights = np.arange(1, n + 1)[rng.permutation(n)] ** -power
    topic = rng.integers(topics, size=n)
    members = [np.nonzero(topic == t)[0] for t in range(topics)]
    chances = [weights[ids] / weights[ids].sum() for ids in members]
    interests = rng.dirichlet(np.full(topics, 1.5 / topics), size=m)
    everything = weights / weights.sum()
    chosen = []
    for interest, size in zip(interests, _sizes(m, mean, rng), strict=True):
        drawn = [
            rng.choice(members[t], size=count, p=chances[t])
            for t, count in enumerate(rng.multinomial(rng.binomial(2 * size, share), interest))
            if count
        ]
        rest = rng.choice(n, size=2 * size - sum(map(len, drawn)), p=everything)
        chosen.append(rng.permutation(np.unique(np.concatenate([*drawn, rest])))[:size])
    return _pairs(chosen)


def _sizes(m: int, mean: float, rng: np.random.Generator) -> Ids:
    sizes = np.round(mean * rng.lognormal(-0.3, 0.75, size=m))
    return np.maximum(MIN_PAIRS, sizes).astype(np.int64)


def _short(m: int, _mean: float, rng: np.random.Generator) -> Ids:
    return rng.integers(3, 6, size=m)


def _pairs(chosen: list[Ids]) -> tuple[Ids, Ids]:
    return _all_pairs([ids if len(ids) >= MIN_PAIRS else ids[:0] for ids in chosen])


def _all_pairs(chosen: list[Ids]) -> tuple[Ids, Ids]:
    return np.repeat(np.arange(len(chosen)), [len(ids) for ids in chosen]), np.concatenate(chosen)


if __name__ == "__main__":
    main()
