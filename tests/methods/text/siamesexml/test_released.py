"""SiameseXML as released: each part against a slow loop, and the whole search."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from math import exp, log
from typing import Any

import pytest
import torch
from rankings import assert_same_ranking, sorted_by
from text_samples import TruthJudge, check_exclusions, random_data, run_of
from text_samples import search as search_texts
from torch import Tensor
from torch.nn.functional import gelu

from rankfold.encoders.bag_encoder import BagEncoder, add_residual, unit
from rankfold.encoders.bags import weigh
from rankfold.index.exact import Exact
from rankfold.methods.text import neighbours
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.corpus import Corpus, build_corpus
from rankfold.methods.text.siamesexml.modules import Stage
from rankfold.methods.text.siamesexml.released import fit as recipe
from rankfold.methods.text.siamesexml.released import modules, shortlists
from rankfold.training.batches import Rows
from rankfold.types import Dataset, Interactions, Judge, Model, Run, TopK, from_pairs

FEW: dict[str, Any] = {"encoder_epochs": 3, "classifier_epochs": 3, "width": 8}


def rng_of(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fitted(data: Dataset, judge: Judge | None = None, **settings: Any) -> Model:
    config = ReleasedConfig(**{**FEW, **settings})
    *_, last = recipe.fit(data, config, run_of(judge=judge))
    assert last.model is not None
    return last.model


def module_of(data: Dataset, seed: int = 0) -> tuple[modules.ReleasedModule, Corpus]:
    corpus = build_corpus(data, ReleasedConfig(), run_of())
    tokens = torch.randn(len(corpus.idf), 8, generator=rng_of(seed))
    encoder = BagEncoder(tokens, residual=False, rng=rng_of())
    return modules.ReleasedModule(encoder, corpus.rows.n_candidates, rng_of(seed)), corpus


def dense(pairs: Interactions) -> Tensor:
    values = torch.ones(pairs.n_pairs) if pairs.grades is None else pairs.grades
    result = torch.zeros(pairs.n_queries, pairs.n_candidates)
    result[pairs.query_of_pair().long(), pairs.candidates.long()] = values
    return result


# ---------------------------------------------------------------------------------- module I


def test_candidates_are_drawn_by_the_power_of_their_frequency() -> None:
    counts = torch.tensor([0, 1, 4, 20])
    documents = torch.cat([torch.arange(int(count)) for count in counts])
    rows = from_pairs(torch.repeat_interleave(counts), documents, None, (4, 20))
    batches, rng = modules.FrequencyBatches(rows, 2), rng_of()
    assert len(batches) == 2
    orders = torch.stack([batches.order(rng) for _ in range(8000)])
    assert orders.shape == (8000, 3)
    expected = counts.double() ** 0.45
    shares = torch.bincount(orders.flatten(), minlength=4) / orders.numel()
    torch.testing.assert_close(shares.double(), expected / expected.sum(), atol=0.015, rtol=0)
    last = batches.take(torch.tensor([3, 1, 2]), 1)
    assert last.queries.tolist() == [2]
    assert last.positives.candidates.tolist() == [0, 1, 2, 3]


@torch.no_grad()
def loss_by_loops(rows: Tensor, columns: Tensor, true: Tensor, valid: Tensor) -> Tensor:
    """The likelihood of true pairs and of the two nearest others, row by row."""
    result = []
    for row, a in enumerate(rows):
        cosines = [float(unit(a) @ unit(b)) for b in columns]
        own = [v for v, y, ok in zip(cosines, true[row], valid[row], strict=True) if y and ok]
        others = [
            v for v, y, ok in zip(cosines, true[row], valid[row], strict=True) if not y and ok
        ]
        up = sum(-log(0.9) + 1.5 * (1 - v) for v in own)
        down = [-log(1 - 0.9 * exp(1.5 * (v - 1))) for v in sorted(others)[-2:]]
        result.append((up + sum(down)) / len(own) if own else 0.0)
    return torch.tensor(result)


@pytest.mark.parametrize("with_excluded", [False, True])
def test_the_loss_of_module_one_matches_the_formula(*, with_excluded: bool) -> None:
    data = random_data(1)
    train = dense(data.split("train"))
    if with_excluded:
        hidden = ((torch.rand(train.shape, generator=rng_of(5)) < 0.3) & (train == 0)).nonzero()
        excluded = from_pairs(hidden[:, 0], hidden[:, 1], None, tuple(train.shape))  # type: ignore[arg-type]
        data = replace(data, excluded=excluded)
    module, corpus = module_of(data)
    task = modules.encoder_task(module, corpus, ReleasedConfig(width=8))
    of_labels = corpus.rows.transpose()
    labels = (of_labels.counts() > 0).nonzero().flatten()[:7]
    result = task.losses(Rows(labels, of_labels.select(labels)), rng_of(9))

    rng = rng_of(9)
    own, other = (modules.draw_one(of_labels, labels, rng) for _ in range(2))
    texts = module.features(corpus.labels.select(labels))
    documents, others = (module.features(corpus.documents.select(d)) for d in (own, other))
    true = train[own][:, labels].T > 0
    valid = torch.ones_like(true)
    if data.excluded is not None:
        valid = dense(data.excluded)[own][:, labels].T == 0
    first = loss_by_loops(texts, documents, true, valid)
    second = loss_by_loops(documents, texts + others, true.T, valid.T)
    torch.testing.assert_close(result, 0.7 * first + 0.3 * second, atol=1e-4, rtol=1e-4)


# ---------------------------------------------------------------------------------- module II


def test_visits_of_a_walk_follow_its_powers() -> None:
    """The place after a step is spread as (.8 first + .2 place before) T, T a hop over a document.

    20,000 steps: frequencies are off by less than .02.
    """
    data = random_data(2, m=12, n=5)
    rows, steps = data.split("train"), 20_000
    assert int((rows.candidate_counts() == 0).sum()) <= 1
    result = dense(shortlists.random_walks(rows, steps, 5, rng_of()))
    chosen = dense(rows).double()
    hop = (chosen / chosen.sum(dim=0).clamp(min=1)).T @ (
        chosen / chosen.sum(dim=1, keepdim=True).clamp(min=1)
    )
    first = torch.eye(5, dtype=torch.float64)
    place = first @ hop
    for _ in range(100):  # by then it no longer moves
        place = (0.8 * first + 0.2 * place) @ hop
    lonely = rows.candidate_counts() == 0
    place[lonely] = first[lonely]
    torch.testing.assert_close(result.double(), place, atol=0.02, rtol=0)


def test_a_walk_starts_again_where_it_began() -> None:
    """Candidate 0 shares a document with 1, 1 with 2: from 0 to 2 it takes two hops in a row."""
    rows = from_pairs(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2]), None, (2, 4))
    result = dense(shortlists.random_walks(rows, 20_000, 4, rng_of()))
    assert result[3].tolist() == [0, 0, 0, 1]  # in no document
    direct = 0.2 * 0.5 * 0.25 / (1 - 0.2 * 0.5)  # nearly: to 1, no restart, on to 2
    assert 0 < float(result[0, 2]) < 3 * direct
    torch.testing.assert_close(result.sum(dim=1), torch.ones(4))


def test_only_the_most_frequent_are_kept() -> None:
    met = torch.randint(9, (6, 30), generator=rng_of())
    first = torch.tensor([1, 2, 4, 5, 7, 8])
    keys, counts = shortlists.most_met(met, first, 9, 3)
    expected = []
    for row, start in zip(met.tolist(), first.tolist(), strict=True):
        often = sorted(Counter(row).items(), key=lambda item: (-item[1], item[0]))[:3]
        expected += [(start * 9 + place, count) for place, count in often]
    assert list(zip(keys.tolist(), counts.tolist(), strict=True)) == expected


def test_rows_of_a_pruned_walk_sum_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlists, "WALK_BLOCK", 5)  # several blocks
    rows = random_data(3).split("train")
    result = shortlists.random_walks(rows, 400, 2, rng_of())
    assert int(result.counts().max()) == 2
    torch.testing.assert_close(dense(result).sum(dim=1), torch.ones(rows.n_candidates))


@pytest.mark.parametrize("count", [0, 1, 6, 99])
def test_neighbours_are_the_nearest(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlists, "DOCUMENT_BLOCK", 7)  # several blocks
    vectors, known = (torch.randn(n, 4, generator=rng_of(n)) for n in (5, 30))
    result = shortlists.nearest_rows(vectors, known, count)
    scores = vectors @ known.T
    assert result.ids.shape == (5, min(count, 30))
    assert_same_ranking(result, sorted_by(scores))


def near_by_loops(
    vector: Tensor, space: shortlists.NearSpace, chosen: Tensor, count: int
) -> list[float]:
    cosines = [float(vector @ other) for other in space.documents]
    nearest = sorted(range(len(cosines)), key=lambda d: -cosines[d])[:count]
    return [
        0.975 * float(vector @ space.candidates[y])
        + 0.025 * sum(cosines[d] for d in nearest if chosen[d, y])
        for y in range(chosen.shape[1])
    ]


@pytest.mark.parametrize("count", [0, 4, 300])
def test_near_scores_match_the_formula(count: int) -> None:
    module, corpus = module_of(random_data(4))
    walk = shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    space = shortlists.space_of(module.features, corpus, walk)
    chosen = corpus.rows.select(corpus.labelled)
    vectors = unit(torch.randn(6, 8, generator=rng_of(8)))
    result = shortlists.near_scores(vectors, space, chosen, count)
    expected = [near_by_loops(vector, space, dense(chosen), count) for vector in vectors]
    torch.testing.assert_close(result, torch.tensor(expected), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_near_space_is_centroids_plus_smoothed_texts() -> None:
    module, corpus = module_of(random_data(5))
    walk = shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    space = shortlists.space_of(module.features, corpus, walk)
    documents, texts = (
        gelu(module.encoder.sums(bags)) for bags in (corpus.documents, corpus.labels)
    )
    chosen, weights = dense(corpus.rows), dense(walk)
    asking = chosen.any(dim=1)
    torch.testing.assert_close(space.documents, unit(documents[asking]))
    for y in range(len(texts)):
        text = unit(sum(weights[y, z] * texts[z] for z in range(len(texts))))  # type: ignore[arg-type]
        own = documents[chosen[:, y] > 0]
        centroid = unit(own.sum(dim=0)) if len(own) else text
        torch.testing.assert_close(space.candidates[y], text + centroid)


@pytest.mark.parametrize(("size", "count"), [(4, 5), (1, 40), (4, 0), (50, 3)])
def test_shortlists_are_the_best_without_own_labels(
    size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of all candidates, although only some are compared."""
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 7)
    monkeypatch.setattr(shortlists, "PAIR_BLOCK", 5)
    module, corpus = module_of(random_data(6))
    space = shortlists.space_of(
        module.features, corpus, shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    )
    config = ReleasedConfig(shortlist=size, neighbours=count)
    result = shortlists.mine_shortlists(space, corpus, config, Exact)
    chosen = dense(corpus.rows.select(corpus.labelled))
    assert result.shape == (len(chosen), min(size, chosen.shape[1]))
    for row, vector in enumerate(space.documents):
        scores = torch.tensor(near_by_loops(vector, space, chosen, count))
        scores[chosen[row] > 0] = -torch.inf
        left = min(size, int((chosen[row] == 0).sum()))
        ids = result[row].long()
        assert len(set(ids[:left].tolist())) == left
        assert set(ids[left:].tolist()) <= {-1}
        torch.testing.assert_close(scores[ids[:left]], scores.topk(left).values)  # ties


# ---------------------------------------------------------------------------------- module III


def test_the_loss_of_module_three_matches_the_formula() -> None:
    scores = torch.rand(20, 9, generator=rng_of()) * 2 - 1
    positive = torch.rand(20, 9, generator=rng_of(1)) < 0.3
    valid = torch.rand(20, 9, generator=rng_of(2)) < 0.8
    result = modules.classifier_loss(scores, positive, valid)
    for row in range(20):
        up, down = [], []
        for v, y, ok in zip(*(t[row].tolist() for t in (scores, positive, valid)), strict=True):
            if ok and y:
                up.append((-log(0.75) + 3 * (1 - v)) / 3)
            elif ok:
                loss = -log(1 - 0.75 * exp(3 * (v - 1))) / 3
                down.append(loss if loss >= 0.05 else 0.0)
        expected = (sum(up) + sum(down)) / len(up) if up else 0.0
        assert float(result[row]) == pytest.approx(expected, abs=1e-5)


def test_the_residual_starts_as_the_identity() -> None:
    module, _ = module_of(random_data(0))
    features = torch.randn(2000, 8, generator=rng_of())
    plain = add_residual(features, module.scaled_mixing(), module.bias)
    torch.testing.assert_close(plain, unit(features + features.relu()))
    with torch.no_grad():
        thinned = module.documents(features, rng_of(1))
    # each coordinate of the residual is either doubled or dropped: values below 0 do not change
    direction = thinned / thinned.norm(dim=1, keepdim=True)
    ratio = direction * (features[:, :1] / direction[:, :1])
    negative = (features[:, 0] < 0).nonzero().flatten()
    factors = (ratio / features)[negative][features[negative] > 0]
    assert set(factors.round().int().tolist()) == {1, 3}
    assert float((factors > 2).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_the_spectral_norm_of_the_residual_is_its_radius() -> None:
    module, _ = module_of(random_data(0))
    with torch.no_grad():
        module.mixing.copy_(torch.randn(8, 8, generator=rng_of()))
        module.radius.fill_(0.7)
        for _ in range(200):
            module.documents(torch.ones(1, 8), rng_of())
        norm = torch.linalg.matrix_norm(module.scaled_mixing(), 2)
    assert float(norm) == pytest.approx(0.7, rel=1e-3)


def test_classifiers_start_at_smoothed_texts_and_only_once() -> None:
    module, corpus = module_of(random_data(7))
    walk = shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    config = ReleasedConfig(width=8, classifier_epochs=1, joint_epochs=1)
    modules.task_of(module, Stage("classifiers", 1), corpus, walk, config, Exact)
    expected = dense(walk) @ gelu(module.encoder.sums(corpus.labels))
    torch.testing.assert_close(module.classifiers.weight, expected)
    with torch.no_grad():
        module.classifiers.weight.add_(1)
    modules.task_of(module, Stage("joint", 1), corpus, walk, config, Exact)
    torch.testing.assert_close(module.classifiers.weight, expected + 1)
    modules.task_of(
        module, Stage("joint", 1), corpus, walk, replace(config, classifier_epochs=0), Exact
    )
    torch.testing.assert_close(module.classifiers.weight, expected)


def test_module_three_keeps_the_encoder_fixed() -> None:
    data = random_data(8)
    without, some = (fitted(data, classifier_epochs=n) for n in (0, 4))
    assert torch.equal(without.tensors["0.tokens"], some.tensors["0.tokens"])
    assert not torch.equal(some.tensors["0.mixing"], torch.eye(8))
    joint = fitted(data, classifier_epochs=0, joint_epochs=4)
    assert not torch.equal(without.tensors["0.tokens"], joint.tensors["0.tokens"])


# ---------------------------------------------------------------------------------- search


def scores_by_loops(model: Model, data: Dataset, row: int) -> list[float]:
    """Of all candidates."""
    tensors, members = model.tensors, range(model.config["members"])
    n = tensors["0.near"].shape[0]
    pairs = Interactions(tensors["known_offsets"], tensors["known_candidates"], None, n)
    chosen, beta = dense(pairs), model.config["beta"]
    assert data.query_texts is not None
    bag = weigh(data.query_texts.select(torch.tensor([row])), tensors["rarity"])
    near, learnt = torch.zeros(n), torch.zeros(n)
    for m in members:
        tokens = tensors[f"{m}.tokens"].float()
        assert bag.weights is not None
        f = gelu((tokens[bag.tokens.long()] * bag.weights[:, None]).sum(dim=0))
        space = shortlists.NearSpace(tensors[f"{m}.near"], tensors[f"{m}.known"].float())
        near += torch.tensor(near_by_loops(unit(f), space, chosen, model.config["neighbours"]))
        more = (tensors[f"{m}.mixing"] @ f + tensors[f"{m}.bias"]).relu()
        cosines = tensors[f"{m}.classifiers"] @ unit(f + more)
        learnt += torch.tensor([exp(5 * (float(v) - 1)) for v in cosines])
    near, learnt = near / len(members), learnt / len(members)
    return [
        beta * float(a) + (1 - beta) / (1 + exp(-float(s)))
        for a, s in zip(learnt, near, strict=True)
    ]


@pytest.mark.parametrize("settings", [{}, {"members": 2, "neighbours": 3, "beta": 0.3}])
def test_scores_match_the_formula(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 7)  # several blocks
    data = random_data(9)
    model = fitted(data, **settings)
    assert data.query_texts is not None
    result = search_texts(model, data.query_texts, 50, None)
    n = len(data.candidates)
    assert torch.equal(result.ids.sort(dim=1).values, torch.arange(n).expand(len(result.ids), -1))
    assert bool((result.scores.diff(dim=1) <= 0).all())
    for row in range(len(result.ids)):
        expected = torch.tensor(scores_by_loops(model, data, row))[result.ids[row]]
        torch.testing.assert_close(result.scores[row], expected, atol=1e-4, rtol=1e-3)


def test_only_the_shortlist_is_ranked() -> None:
    data = random_data(10)
    model, short = (fitted(data, shortlist=size) for size in (50, 4))
    model = replace(model, tensors=short.tensors)
    assert data.query_texts is not None
    few = search_texts(short, data.query_texts, 4, None)
    every = search_texts(model, data.query_texts, 50, None)
    assert few.ids.shape == (len(data.queries), 4)
    # in the order of all, without those that are off the list
    listed = (every.ids.unsqueeze(2) == few.ids.unsqueeze(1)).any(dim=2)
    assert_same_ranking(few, sorted_by(every.scores.where(listed, -torch.inf), every.ids))
    assert not torch.equal(few.ids, every.ids[:, :4])
    longer = search_texts(short, data.query_texts, 7, None)  # than the shortlist
    assert bool((longer.ids >= 0).all())


def test_shortlists_ascend_so_that_ties_go_by_id() -> None:
    data = random_data(10)
    model, corpus = fitted(data, shortlist=5), build_corpus(data, ReleasedConfig(), run_of())
    config = ReleasedConfig(**model.config)
    members = recipe.members_of(model.tensors, config)
    chosen = corpus.rows.select(corpus.labelled)
    result = recipe.shortlist(members, corpus.documents, chosen, config, 3, None)
    assert result.ids.shape == (40, 5)
    assert bool((result.ids.diff(dim=1) > 0).all())


def test_excluded_candidates_are_not_returned_and_pads_follow() -> None:
    data = random_data(11)
    check_exclusions(data, partial(search_texts, fitted(data)))


def test_the_mix_matches_the_formula_and_ties_go_by_id() -> None:
    near = torch.tensor([[0.0, 1.0, 1.0, 9.0]])
    learnt = torch.tensor([[0.9, 0.2, 0.2, 1.0]])
    ids = torch.tensor([[2, 5, 7, -1]])
    result: TopK = recipe.mixed(recipe.ScoredShortlist(ids, near, learnt), 0.75, 9)
    assert result.ids.tolist() == [[2, 5, 7, -1]]
    second = 0.75 * 0.2 + 0.25 / (1 + exp(-1))
    expected = [0.75 * 0.9 + 0.125, second, second, -float("inf")]
    assert result.scores[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("place", [0, 2])
def test_beta_is_chosen_on_validation(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right candidate is first for only one of the betas."""
    data = random_data(12)
    monkeypatch.setattr(recipe, "BETAS", (0.0, 0.5, 1.0))
    firsts = []
    for beta in recipe.BETAS:
        model = fitted(data, beta=beta)
        assert data.query_texts is not None
        firsts.append(search_texts(model, data.query_texts, 1, None).ids[:, 0])
    differ = (firsts[0] != firsts[2]).nonzero().flatten()
    assert len(differ) > 0
    judge = TruthJudge(differ, firsts[place][differ], 12)
    model = fitted(data, judge)
    assert model.config["beta"] == recipe.BETAS[place]
    assert [entry["beta"] for entry in model.notes["mixes"]] == [0.0, 0.5, 1.0]
    assert max(entry["score"] for entry in model.notes["mixes"]) == 1.0


def test_without_validation_beta_is_the_default() -> None:
    run: Run = run_of()
    assert run.judge is None
    assert fitted(random_data(0)).config["beta"] == recipe.DEFAULT_BETA
