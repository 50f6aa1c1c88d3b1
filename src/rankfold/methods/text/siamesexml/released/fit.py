"""SiameseXML as its authors released it, which differs from the paper [siamesexml].

Texts have vectors f = gelu(E x), normalised only in cosines. The modules are

    I    the encoder: candidates, and candidates plus one of their documents, against documents
    II   shortlists: by centroids, by candidates' texts smoothed by a random walk, by the
         candidates of near training documents
    III  a vector w for each candidate, and a residual of the documents
    IV   all of it

A score is not an inner product, so the method has its own search: shortlists, then a mix on them.

Departs from the release: search compares with everything; rows of the walk's matrix are divided by
their sums (there also columns, both by roots); one schedule for all modules; a document's loss is
the mean over its positives, as in ``likelihood_loss``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from rankfold.encoders.bag_encoder import BagEncoder, add_residual, unit
from rankfold.encoders.bags import weigh, with_pairs
from rankfold.kernels.topk import top_k_of
from rankfold.methods.text.neighbours import best, query_blocks, search_blocks
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.corpus import Corpus, build_corpus
from rankfold.methods.text.siamesexml.fit import (
    SIAMESEXML_PAPER,
    last_step,
    notes_of,
    start_tokens,
    train_stages,
)
from rankfold.methods.text.siamesexml.released import shortlists
from rankfold.methods.text.siamesexml.released.modules import (
    ReleasedModule,
    released_training,
    task_of,
)
from rankfold.training.loop import seed_of
from rankfold.types import Dataset, Exclude, Interactions, Model, Opened, Run, Step, Texts, TopK

BETAS = (0.75, 0.9, 0.95)
DEFAULT_BETA = 0.9  # without validation
_SHARPNESS = 5.0  # of a classifier's score


class Member(NamedTuple):
    """A member that is ready to answer."""

    encoder: BagEncoder
    mixing: Tensor  # radius SN(W)
    bias: Tensor
    space: shortlists.NearSpace
    classifiers: Tensor  # [N, D], of length 1


class ScoredShortlist(NamedTuple):
    """Candidates of some documents, ascending, -1 where there are fewer; all [B, S]."""

    ids: Tensor
    near: Tensor  # module II's score
    classifier: Tensor  # e^{5 (v - 1)}, v the cosine with the classifier


def fit(data: Dataset, config: ReleasedConfig, run: Run) -> Iterator[Step]:
    """All stages, then the choice of beta."""
    assert run.build_index is not None
    corpus, build_index = build_corpus(data, config, run), run.build_index
    rng = torch.Generator(run.device).manual_seed(seed_of(run, "walk"))
    walk = shortlists.random_walks(
        corpus.rows, shortlists.WALK_STEPS, shortlists.WALK_CANDIDATES, rng
    )
    done = yield from train_stages(
        config,
        run,
        start=lambda member: start_module(corpus, config, run, member),
        task=lambda module, stage: task_of(module, stage, corpus, walk, config, build_index),
        training=released_training,
        export=lambda module: _export_member(module, corpus, walk),
    )
    model = _build_model(config, done, corpus, run)
    yield last_step(config, model)


def start_module(corpus: Corpus, config: ReleasedConfig, run: Run, member: int) -> ReleasedModule:
    rng = torch.Generator().manual_seed(seed_of(run, f"vectors of member {member}"))
    encoder = BagEncoder(start_tokens(corpus, config, rng), residual=False, rng=rng)
    return ReleasedModule(encoder, corpus.rows.n_candidates, rng).to(run.device)


@torch.no_grad()
def _export_member(module: ReleasedModule, corpus: Corpus, walk: Interactions) -> dict[str, Tensor]:
    """The tensors of a trained member."""
    near, known = shortlists.space_of(module.features, corpus, walk)
    return {
        "tokens": module.encoder.tokens.weight.half(),
        "mixing": module.scaled_mixing(),
        "bias": module.bias.clone(),
        "near": near,
        "known": known.half(),
        "classifiers": unit(module.classifiers.weight),
    }


def _build_model(
    config: ReleasedConfig, done: Mapping[str, Tensor], corpus: Corpus, run: Run
) -> Model:
    """The model, with the beta that is best on validation."""
    chosen = corpus.rows.select(corpus.labelled)
    scores: list[float] = []
    beta = DEFAULT_BETA if config.beta is None else config.beta
    if config.beta is None and run.judge is not None:
        scores = _score_betas(members_of(done, config), chosen, config, corpus, run)
        beta = BETAS[max(range(len(BETAS)), key=scores.__getitem__)]
    tensors = {
        **done,
        "pairs": corpus.pairs,
        "rarity": corpus.idf,
        "known_offsets": chosen.offsets,
        "known_candidates": chosen.candidates,
    }
    mixes = [{"beta": b, "score": score} for b, score in zip(BETAS, scores, strict=False)]
    notes = notes_of(corpus, mixes, {"beta": beta})
    return Model("siamesexml-released", asdict(replace(config, beta=beta)), tensors, notes)


def _score_betas(
    members: list[Member], chosen: Interactions, config: ReleasedConfig, corpus: Corpus, run: Run
) -> list[float]:
    """The mean metric over the validation queries, for each beta."""
    judge = run.judge
    assert judge is not None
    totals = torch.zeros(len(BETAS), dtype=torch.float64)
    numbers = chosen.n_candidates + max(judge.depth, config.shortlist) * config.width
    for start, stop in query_blocks(len(judge.queries), numbers):
        queries = judge.queries[start:stop]
        bags = corpus.documents.select(queries.to(corpus.idf.device))
        listed = shortlist(members, bags, chosen, config, judge.depth, judge.hidden(queries))
        for place, beta in enumerate(BETAS):
            ids = mixed(listed, beta, judge.depth).ids.cpu()
            totals[place] += judge.values(queries, ids).double().sum()
    return (totals / max(1, len(judge.queries))).tolist()


def members_of(tensors: Mapping[str, Tensor], config: ReleasedConfig) -> list[Member]:
    """The members of a model, from its tensors."""
    members = []
    for number in range(config.members):
        names = ("tokens", "mixing", "bias", "near", "known", "classifiers")
        tokens, mixing, bias, near, known, classifiers = (tensors[f"{number}.{n}"] for n in names)
        encoder = BagEncoder(tokens, residual=False, rng=torch.Generator())
        members.append(
            Member(encoder, mixing, bias, shortlists.NearSpace(near, known), classifiers)
        )
    return members


@torch.no_grad()
def shortlist(
    members: list[Member],
    bags: Texts,
    chosen: Interactions,
    config: ReleasedConfig,
    k: int,
    exclude: Interactions | None,
) -> ScoredShortlist:
    """The shortlists of weighted bags, at least k long; scores are means over the members."""
    features = [gelu(member.encoder.sums(bags)) for member in members]
    near = torch.stack(
        [
            shortlists.near_scores(unit(vectors), member.space, chosen, config.neighbours)
            for member, vectors in zip(members, features, strict=True)
        ]
    ).mean(dim=0)
    nearest = best(near, max(k, config.shortlist), exclude)
    ids, order = nearest.ids.sort(dim=1)
    scores = torch.zeros_like(nearest.scores)
    for member, vectors in zip(members, features, strict=True):
        documents = add_residual(vectors, member.mixing, member.bias)
        cosines = torch.einsum("bd,bsd->bs", documents, member.classifiers[ids.clamp(min=0)])
        scores += (_SHARPNESS * (cosines - 1)).exp() / len(members)
    return ScoredShortlist(ids, nearest.scores.gather(1, order), scores)


def mixed(listed: ScoredShortlist, beta: float, k: int) -> TopK:
    """The k best by beta e^{5 (v - 1)} + (1 - beta) sigmoid(near)."""
    scores = beta * listed.classifier + (1 - beta) * listed.near.sigmoid()
    return top_k_of(listed.ids, scores.masked_fill(listed.ids < 0, -torch.inf), k)


def open_model(model: Model) -> Opened:
    """Builds the members."""
    config, tensors = ReleasedConfig(**model.config), model.tensors
    members, n = members_of(tensors, config), tensors["0.near"].shape[0]
    chosen = Interactions(tensors["known_offsets"], tensors["known_candidates"], None, n)
    idf, pairs, beta = tensors["rarity"], tensors["pairs"], config.beta
    assert beta is not None

    def search_texts(texts: Texts, k: int, exclude: Interactions | None) -> TopK:
        """The k candidates with the largest scores."""
        bags = weigh(with_pairs(texts.to(idf.device), pairs, len(idf) - len(pairs)), idf)
        numbers = n + max(k, config.shortlist) * config.width

        def best_of(bags: Texts, hidden: Exclude) -> TopK:
            return mixed(shortlist(members, bags, chosen, config, k, hidden), beta, k)

        return search_blocks(bags, exclude, numbers, min(k, n), best_of)

    return Opened(search_texts=search_texts)


METHOD = replace(
    SIAMESEXML_PAPER,
    summary="SiameseXML as its authors released it: shortlists, then a mix on them",
    config=ReleasedConfig,
    fit=fit,
    open=open_model,
    own_search=True,
    distributed=False,
)
