"""A fit that starts from a fitted model: its token vectors, and the vectors of its candidates."""

import torch
from torch import Tensor

from rankfold.encoders.bag_encoder import unit
from rankfold.methods.text.siamesexml.corpus import ENCODE_BLOCK, Corpus
from rankfold.methods.text.siamesexml.modules import Siamese
from rankfold.types import Start


@torch.no_grad()
def started(module: Siamese, corpus: Corpus, start: Start, member: int) -> Siamese:
    """The module with all that a member of the model knows about its tokens and candidates.

    The classifier of a known candidate starts as the direction of its final vector, the mix of
    classifier, text and documents; that of a new one as its text. A new token keeps its vector.
    """
    encoder, saved = module.encoder, start.model.tensors
    places = token_places(corpus.pairs, start).to(corpus.idf.device)
    known = (places >= 0).nonzero().flatten()
    for name, parameter in encoder.named_parameters():
        own = saved[f"{member}.{name}"].to(parameter)
        if name == "tokens.weight":
            parameter[known] = own[places[known]]
        else:
            parameter.copy_(own)
    width = module.refinements.embedding_dim
    columns = slice(member * width, (member + 1) * width)
    rows = (start.candidates >= 0).nonzero().flatten().to(corpus.idf.device)
    for some in rows.split(ENCODE_BLOCK):
        before = saved["candidates"][start.candidates[some.cpu()], columns].to(some.device)
        texts = encoder(corpus.labels.select(some))
        module.refinements.weight[some] = (unit(before.float()) - texts).half()
    return module


def token_places(pairs: Tensor, start: Start) -> Tensor:
    """The model's row of each token and each of the ``pairs`` of tokens; [V + P], -1: a new one."""
    tokens, known = start.tokens, start.model.tensors["pairs"].cpu()
    n, n_before = len(tokens), len(start.model.tensors["rarity"]) - len(known)
    first, second = tokens[pairs.cpu() // n], tokens[pairs.cpu() % n]
    codes = torch.where((first < 0) | (second < 0), -1, first * n_before + second)
    places = torch.searchsorted(known, codes)
    is_known = torch.cat([known, known.new_full((1,), -2)])[places] == codes
    return torch.cat([tokens, torch.where(is_known, places + n_before, -1)])
