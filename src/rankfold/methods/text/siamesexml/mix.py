"""What a candidate is in the end: one vector, a mix of three, and its popularity.

The three are what its classifier says, its text, and the mean of its documents. Validation chooses
how much of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankfold.encoders.bags import OF_BAGS, find_text_encoder, weighed, with_pairs
from rankfold.errors import UserError
from rankfold.methods.text.neighbours import best
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.distributed import best_of_all, first_of_all, of_all_queries
from rankfold.methods.text.siamesexml.training_data import Parts, encoded
from rankfold.training.loop import seeded
from rankfold.types import Interactions, Model, Run, Side, Texts, TopK

CHOOSING = 3000  # validation queries that the mix is chosen on, at most
CLASSIFIER_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
CENTROID_WEIGHTS = (0.0, 0.1, 0.3, 0.6)
POPULARITY_WEIGHTS = (0.0, 0.03, 0.06, 0.09, 0.12)
OF_QUERIES = 0.5  # in the column of popularity; candidates have theirs divided by it
PRODUCT_BYTES = 2**26  # of the scores by one of the vectors
BLOCK_BYTES = 2**23  # of the scores of a mix, which should stay near
MIXED = ("refined", "texts", "centroids")  # the vectors of a candidate


class Mix(NamedTuple):
    """How much of what a candidate's vector is; its text has the rest of the classifier's share."""

    classifier_share: float
    centroid_weight: float
    popularity_weight: float


UNCHOSEN = Mix(0.75, 0.0, 0.06)  # where there is no validation


def mixture(done: Mapping[str, Tensor], mix: Mix, members: int, counts: Tensor) -> Tensor:
    """Share classifier + (1 - share) text + weight centroid, member beside member; [N, D].

    Vectors of length 1 cannot say how often a candidate is chosen: with n its ``counts`` [N], one
    more column adds popularity_weight log(1 + n) to its scores. With a weight of 0 there is none.
    Candidates have twice that and queries a half: an index whose recall is measured with candidates
    as queries would otherwise see nothing of the column, and find too little.
    """
    share, weight, popularity = mix
    vectors = torch.cat(
        [
            share * done[f"{number}.refined"]
            + (1 - share) * done[f"{number}.texts"]
            + weight * done[f"{number}.centroids"]
            for number in range(members)
        ],
        dim=1,
    ).div_(members)
    return with_column(vectors, popularity, popularity / OF_QUERIES * counts.to(vectors).log1p())


def with_column(vectors: Tensor, popularity_weight: float, values: Tensor) -> Tensor:
    """The vectors, and ``values`` [n] or [1] as one more column if popularity counts."""
    if popularity_weight == 0:
        return vectors
    return torch.cat([vectors, values[:, None].expand(len(vectors), 1)], dim=1)


def chosen_mix(
    done: Mapping[str, Tensor], config: SiameseConfig, parts: Parts, run: Run
) -> tuple[Mix, list[dict[str, float]]]:
    """The mix that validation prefers, and what was tried.

    Shares and weights are tried together, at a middling weight of popularity, then this weight
    alone: a fifth more of them than without it, where all together would be five times as many.
    What is given stays.
    """
    given = {name: getattr(config, name) for name in Mix._fields}
    mix = UNCHOSEN._replace(**{name: v for name, v in given.items() if v is not None})
    scores: dict[Mix, float] = {}
    if run.judge is not None and None in given.values():
        shares = CLASSIFIER_SHARES if config.classifier_share is None else mix[:1]
        weights = CENTROID_WEIGHTS if config.centroid_weight is None else mix[1:2]
        popularities = POPULARITY_WEIGHTS if config.popularity_weight is None else mix[2:]
        first = [Mix(*pair, mix.popularity_weight) for pair in product(shares, weights)]
        scores = score_mixes(first, done, config, parts, run)
        mix = max(scores, key=scores.__getitem__)
        then = [mix._replace(popularity_weight=weight) for weight in popularities]
        if more := [other for other in then if other not in scores]:
            scores |= score_mixes(more, done, config, parts, run)
        mix = max(scores, key=scores.__getitem__)
    return mix, [{**tried._asdict(), "score": score} for tried, score in scores.items()]


def score_mixes(
    choices: list[Mix], done: Mapping[str, Tensor], config: SiameseConfig, parts: Parts, run: Run
) -> dict[Mix, float]:
    """The mean of the metric over (the first of) the validation queries, for each mix.

    As a search of ``mixture`` would have it, but exact, and all mixes share three products: an
    index for each would take longer to build, and differ in what it misses.
    """
    assert run.judge is not None
    judge, comm, n = run.judge, parts.comm, parts.label_shard.size
    queries = first_of_all(judge.queries, CHOOSING, comm)
    bags = parts.documents.select(queries.to(parts.idf.device))
    vectors = encode(encoders_of(done, config, len(parts.idf)), bags)
    tables = tables_of(choices, done, config.members, parts)
    popularity = torch.log1p(parts.own_counts.to(vectors))
    room = min(run.memory_budget // 4, PRODUCT_BYTES)  # three at a time, and mixes of them
    block = min(max(1, room // (4 * -(-n // comm.size))), CHOOSING)
    products = vectors.new_empty(len(tables), block, len(popularity))
    values: list[list[Tensor]] = [[] for _ in choices]
    for asked in of_all_queries(vectors, judge.hidden(queries), block, parts):
        scores = [
            inner(asked.vectors, each, out=place[: len(asked.vectors)])
            for each, place in zip(tables, products, strict=True)
        ]
        found = best_of_mixes(choices, scores, popularity, judge.depth, asked.hidden)
        results = best_of_all(found, judge.depth, parts)
        for some, ids in zip(values, results, strict=True):
            some.append(judge.values(queries[asked.own], ids[asked.here].cpu()))
    every = [comm.gather(torch.cat(some)) for some in values]
    return dict(zip(choices, (float(one.double().mean()) for one in every), strict=True))


def tables_of(
    choices: list[Mix], done: Mapping[str, Tensor], members: int, parts: Parts
) -> list[list[Tensor]]:
    """Candidates' vectors: each of ``MIXED``, by member; mixed, if popularity alone is chosen."""
    first = choices[0]
    if all(mix[:2] == first[:2] for mix in choices):
        return [[mixture(done, first._replace(popularity_weight=0.0), members, parts.own_counts)]]
    return [[done[f"{number}.{name}"] for number in range(members)] for name in MIXED]


def inner(vectors: Tensor, tables: list[Tensor], *, out: Tensor) -> Tensor:
    """Inner products with the vectors of candidates, averaged over members; [B, N]."""
    each = (vectors / len(tables)).split(tables[0].shape[1], dim=1)
    torch.mm(each[0], tables[0].T, out=out)
    for part, table in zip(each[1:], tables[1:], strict=True):
        out.addmm_(part, table.T)
    return out


def best_of_mixes(
    choices: list[Mix], scores: list[Tensor], popularity: Tensor, k: int, hidden: Interactions
) -> list[TopK]:
    """The k best candidates by each mix of the scores [B, N] of ``tables_of``; [B, k] each."""
    n_queries, n = scores[0].shape
    rows = max(1, BLOCK_BYTES // (4 * max(1, n)))
    found: list[list[TopK]] = [[] for _ in choices]
    for start in range(0, n_queries, rows):
        some = [part[start : start + rows] for part in scores]
        unwanted = hidden.part(start, min(start + rows, n_queries))
        for mix, lists in zip(choices, found, strict=True):
            mixed = torch.add(mixed_scores(mix, some), popularity, alpha=mix.popularity_weight)
            lists.append(best(mixed, k, unwanted))
    return [TopK(*map(torch.cat, zip(*lists, strict=True))) for lists in found]


def mixed_scores(mix: Mix, scores: list[Tensor]) -> Tensor:
    """Of one block, without popularity."""
    if len(scores) == 1:
        return scores[0]
    refined, texts, centroids = scores
    mixed = torch.lerp(texts, refined, mix.classifier_share)
    return mixed.add_(centroids, alpha=mix.centroid_weight)


def encode_texts(model: Model, texts: Texts, side: Side) -> Tensor:
    """Vectors of texts, as a model has them; a new candidate is what its text says.

    Nobody has chosen it yet: its popularity is log(1 + 0).
    """
    config = config_of(model)
    idf, pairs = model.tensors["rarity"], model.tensors["pairs"]
    given = with_pairs(texts.to(idf.device), pairs, len(idf) - len(pairs))
    given = weighed(config.encoder, given, idf)
    vectors = encode(encoders_of(model.tensors, config, len(idf)), given)
    popularity = config.popularity_weight or 0.0  # a model may be older than this setting
    if side == "query":
        return with_column(vectors, popularity, vectors.new_full((1,), OF_QUERIES))
    assert config.centroid_weight is not None
    vectors = vectors * ((1 + config.centroid_weight) / config.members)
    return with_column(vectors, popularity, vectors.new_zeros(1))


def config_of(model: Model) -> SiameseConfig:
    """The settings of a model, which may be older than some of them."""
    given = dict(model.config)
    if given.pop("residual", False):
        given["encoder"] = "residual"
    return SiameseConfig(**given)


@torch.no_grad()
def encode(encoders: list[nn.Module], bags: Texts) -> Tensor:
    """Member beside member; [n, D]."""
    return torch.cat([encoded(encoder, bags) for encoder in encoders], dim=1)


def encoders_of(
    tensors: Mapping[str, Tensor], config: SiameseConfig, n_tokens: int
) -> list[nn.Module]:
    """The members' encoders again, of what is kept of them; nothing is copied."""
    found = []
    for number in range(config.members):
        encoder = made(config.encoder, torch.zeros(n_tokens, config.width), 0)
        state = {name: tensors[f"{number}.{name}"] for name in encoder.state_dict()}
        if "mixing" in state and config.encoder in OF_BAGS:
            state["mixing"] = state["mixing"].float()
        encoder.load_state_dict(state, assign=True)
        found.append(encoder.eval())
    return found


def made(name: str, start: Tensor, seed: int) -> nn.Module:
    """An encoder by name; what it draws, it draws by the seed."""
    with seeded(seed, torch.device("cpu")):
        encoder = find_text_encoder(name)(start, torch.Generator().manual_seed(seed))
    state, buffers = encoder.state_dict(), dict(encoder.named_buffers())
    if away := [one for one in buffers if one not in state]:
        raise UserError(
            f"encoder={name} has a buffer {away[0]!r} that is not kept with a model",
            hint="register it as persistent",
        )
    if taken := [one for one in MIXED if one in state]:
        raise UserError(
            f"encoder={name} has a tensor named {taken[0]!r}", hint="give it another name"
        )
    return encoder


def kept_encoders(done: Mapping[str, Tensor], config: SiameseConfig) -> dict[str, Tensor]:
    """What a model keeps of encoders: ours as halves, of others what they have."""
    found = {key: tensor for key, tensor in done.items() if key.split(".", 1)[1] not in MIXED}
    if config.encoder not in OF_BAGS:
        return found
    return {key: tensor.half() for key, tensor in found.items()}
