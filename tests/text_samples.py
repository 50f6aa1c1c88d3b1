"""Small data with texts, for tests of methods that read them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from rankfold.distributed.collectives import SingleProcess
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.types import (
    Dataset,
    Interactions,
    Judge,
    Model,
    Run,
    Texts,
    TopK,
    Vocabulary,
    from_pairs,
)

UNLABELLED, UNWRITTEN = 3, 4  # in random data: a query without pairs, a candidate without text


def texts_of(words: Sequence[Sequence[int]]) -> Texts:
    counts = torch.tensor([0, *map(len, words)])
    return Texts(counts.cumsum(0), torch.tensor(list(chain.from_iterable(words))).int())


def words_of(texts: Texts) -> list[list[int]]:
    return [part.tolist() for part in texts.tokens.split(texts.counts().tolist())]


def data_of(
    queries: Sequence[Sequence[int]],
    candidates: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, int]],
    n_tokens: int | None = None,
) -> Dataset:
    """Words of queries, words of candidates, and training pairs in ascending order."""
    rows = torch.tensor(pairs)
    train = from_pairs(rows[:, 0], rows[:, 1], None, (len(queries), len(candidates)))
    known = max(chain.from_iterable([*queries, *candidates]), default=0) + 1
    return Dataset(
        "texts",
        train,
        None,
        None,
        Vocabulary.numbered(len(queries)),
        Vocabulary.numbered(len(candidates)),
        query_texts=texts_of(queries),
        candidate_texts=texts_of(candidates),
        n_tokens=n_tokens or known,
    )


def search(model: Model, texts: Texts, k: int, exclude: Interactions | None) -> TopK:
    """The rankings of a model with a custom search over texts."""
    opened = METHODS[model.method].open(model)
    assert opened.search_texts is not None
    return opened.search_texts(texts, k, exclude)


def check_exclusions(data: Dataset, search: Callable[[Texts, int, Interactions], TopK]) -> None:
    """Assert that all candidates but the excluded ones are returned, and that padding follows."""
    assert data.query_texts is not None
    m, n = data.split("train").n_queries, len(data.candidates)
    hidden = torch.rand(m, n, generator=torch.Generator().manual_seed(0)) < 0.7
    result = search(data.query_texts, n + 9, from_pairs(*hidden.nonzero().T, None, (m, n)))
    assert result.ids.shape == (m, n)
    for row in range(m):
        allowed = set((~hidden[row]).nonzero().flatten().tolist())
        ids = result.ids[row].tolist()
        assert set(ids[: len(allowed)]) == allowed
        assert ids[len(allowed) :] == [-1] * (n - len(allowed))
        assert bool((result.scores[row, len(allowed) :] == -torch.inf).all())


def check_unknown_words(fit: Callable[[Dataset], Model]) -> None:
    """Assert that texts without a known word get the most popular candidates."""
    data = data_of([[0], [1], [2], []], [[]] * 3, [(0, 2), (1, 2), (2, 1)], n_tokens=9)
    queries = Texts(torch.tensor([0, 2, 2]), torch.tensor([7, 8]).int())  # unknown; no words
    result = search(fit(data), queries, 3, None)
    assert result.ids.tolist() == [[2, 1, 0]] * 2
    assert result.scores.tolist() == [[2.0, 1.0, 0.0]] * 2


def random_data(seed: int, m: int = 40, n: int = 12, n_tokens: int = 15) -> Dataset:
    """Texts of up to seven words, some empty; mostly up to three pairs per query."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 8, (m + n,), generator=rng).tolist()
    lengths[m + UNWRITTEN] = 0
    words = [torch.randint(n_tokens, (size,), generator=rng).tolist() for size in lengths]
    chosen = torch.rand(m, n, generator=rng) < 0.15
    chosen[UNLABELLED] = False
    pairs = [(int(q), int(c)) for q, c in chosen.nonzero().tolist()]
    return data_of(words[:m], words[m:], pairs, n_tokens)


def topics_data(seed: int, m: int = 300, topics: int = 6) -> tuple[Dataset, Texts, Tensor]:
    """Texts of three of their topic's eight words and five of forty others; a candidate per topic.

    Also m more such texts, and their topics. Candidates have no texts.
    """
    rng = torch.Generator().manual_seed(seed)
    topic = torch.randint(topics, (2 * m,), generator=rng)
    own = topic[:, None] * 8 + torch.randint(8, (2 * m, 3), generator=rng)
    others = topics * 8 + torch.randint(40, (2 * m, 5), generator=rng)
    words = torch.cat([own, others], dim=1)
    pairs = list(enumerate(topic[:m].tolist()))
    data = data_of(words[:m].tolist(), [[]] * topics, pairs, topics * 8 + 40)
    return data, texts_of(words[m:].tolist()), topic[m:]


@dataclass
class TruthJudge:
    """A judge for whom ``truth`` [B] is the one right candidate of each of ``queries`` [B]."""

    queries: Tensor
    truth: Tensor
    n_candidates: int
    depth: int = 1

    def hidden(self, queries: Tensor) -> Interactions:
        nothing = torch.empty(0, dtype=torch.int64)
        return from_pairs(nothing, nothing, None, (len(queries), self.n_candidates))

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        return (self.truth[torch.searchsorted(self.queries, queries)] == ids[:, 0]).float()


def run_of(
    seed: int = 0, judge: Judge | None = None, resume: dict[str, Tensor] | None = None
) -> Run:
    rng = torch.Generator().manual_seed(seed)
    return Run(
        rng, torch.device("cpu"), SingleProcess(), resume=resume, judge=judge, build_index=Exact
    )
