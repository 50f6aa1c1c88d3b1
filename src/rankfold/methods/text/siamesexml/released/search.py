"""Search of the released SiameseXML: shortlists, then a mix of two scores on them."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from rankfold.encoders.bag_encoder import BagEncoder, add_residual, unit
from rankfold.encoders.bags import weigh, with_pairs
from rankfold.kernels.topk import top_k_of
from rankfold.methods.text.neighbours import best, search_blocks
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.released.shortlists import NearSpace, near_scores
from rankfold.types import Exclude, Interactions, Model, Opened, Texts, TopK

_SHARPNESS = 5.0  # of a classifier's score


class Member(NamedTuple):
    """A member that is ready to answer."""

    encoder: BagEncoder
    mixing: Tensor  # radius SN(W)
    bias: Tensor
    space: NearSpace
    classifiers: Tensor  # [N, D], of length 1


def members_of(tensors: Mapping[str, Tensor], config: ReleasedConfig) -> list[Member]:
    """The members of a model, from its tensors."""
    members = []
    for number in range(config.members):
        names = ("tokens", "mixing", "bias", "near", "known", "classifiers")
        tokens, mixing, bias, near, known, classifiers = (tensors[f"{number}.{n}"] for n in names)
        encoder = BagEncoder(tokens, residual=False, rng=torch.Generator())
        members.append(Member(encoder, mixing, bias, NearSpace(near, known), classifiers))
    return members


class ScoredShortlist(NamedTuple):
    """Candidates of some documents, ascending, -1 where there are fewer; all [B, S]."""

    ids: Tensor
    near: Tensor  # module II's score
    classifier: Tensor  # e^{5 (v - 1)}, v the cosine with the classifier


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
            near_scores(unit(vectors), member.space, chosen, config.neighbours)
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
