"""Text encoders: modules that turn weighted bags of tokens into vectors of length 1."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from rankfold.encoders.bags import weigh, weigh_in_order
from rankfold.types import Texts

_MIN_NORM = 1e-6  # a shorter vector is divided by this, not by its norm


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1; zeros stay zeros."""
    result: Tensor = _Unit.apply(vectors)  # type: ignore[no-untyped-call]
    return result


class _Unit(torch.autograd.Function):
    """``normalize`` in a third of the time: the gradient takes three passes, not ten.

    With y = x / |x| and g the gradient of y, that of x is (g - (g . y) y) / |x|. A vector shorter
    than the smallest norm is divided by a constant: its gradient lacks the second term.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_(min=_MIN_NORM)
        result: Tensor = vectors / norms
        ctx.save_for_backward(result, norms)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        result, norms = ctx.saved_tensors
        along = (gradient * result).sum(dim=-1, keepdim=True)
        along.masked_fill_(norms <= _MIN_NORM, 0.0)
        across: Tensor = torch.addcmul(gradient, result, along, value=-1).div_(norms)
        return across


def add_residual(
    features: Tensor, mixing: Tensor, bias: Tensor, kept: Tensor | None = None
) -> Tensor:
    """normalise(f + kept relu(W f + b)); [n, D]."""
    more = (features @ mixing.T + bias).relu()
    return unit(features + (more if kept is None else kept * more))


class BagEncoder(nn.Module):
    """A vector of length 1 for each weighted bag; [siamesexml], section 3.

    With x the bag, E the table of token vectors, R a square matrix::

        plain     normalise(E x)
        residual  f = normalise(relu(E x)),  normalise(f + relu(R f))

    A text without tokens gets zeros.
    """

    def __init__(self, start: Tensor, *, residual: bool, rng: torch.Generator) -> None:
        """``start`` [V, D]: the initial token vectors."""
        super().__init__()
        self.tokens = nn.Embedding(len(start), start.shape[1], sparse=True, _weight=start)
        width = start.shape[1]
        self.mixing = (
            nn.Parameter(torch.randn(width, width, generator=rng) / width) if residual else None
        )

    def forward(self, bags: Texts) -> Tensor:
        """[n, D]."""
        return self.finish(self.sums(bags))

    def sums(self, bags: Texts) -> Tensor:
        """E x; [n, D]. Each token is looked up once, however many texts contain it."""
        distinct, places = bags.tokens.unique(return_inverse=True)
        return embedding_bag(
            places,
            self.tokens(distinct).float(),  # a saved model has float16 tables
            bags.offsets[:-1],
            mode="sum",
            per_sample_weights=bags.weights,
        )

    def finish(self, sums: Tensor) -> Tensor:
        """From E x to the vector."""
        if self.mixing is None:
            return unit(sums)
        first = unit(sums.relu())
        return unit(first + (first @ self.mixing.T).relu())


TextEncoder = Callable[[Tensor, torch.Generator], nn.Module]
"""``(initial token vectors [V, D], generator) -> module``: weighted texts in, [n, D] out."""

TEXT_ENCODERS: dict[str, TextEncoder] = {
    "plain": lambda start, rng: BagEncoder(start, residual=False, rng=rng),
    "residual": lambda start, rng: BagEncoder(start, residual=True, rng=rng),
}
BUILT_IN = tuple(TEXT_ENCODERS)  # these ignore the order of tokens
PRETRAINED = "hf:"  # before the folder of a pretrained encoder
VECTORS = "vectors:"  # before a file of vectors made elsewhere
_ON_DISK = (PRETRAINED, VECTORS)


class _EncoderNames(Collection[str]):
    """Registered encoders, and those on disk."""

    def __contains__(self, name: object) -> bool:
        on_disk = isinstance(name, str) and name.startswith(_ON_DISK) and name not in _ON_DISK
        return name in TEXT_ENCODERS or on_disk

    def __iter__(self) -> Iterator[str]:
        return iter([*TEXT_ENCODERS, f"{PRETRAINED}FOLDER", f"{VECTORS}FILE"])

    def __len__(self) -> int:
        return len(TEXT_ENCODERS) + len(_ON_DISK)


ENCODER_NAMES = _EncoderNames()


def weighted(encoder: str, texts: Texts, idf: Tensor) -> Texts:
    """Texts as an encoder takes them: bags if it is built in, else tokens in their order.

    One from disk gets tokens of weight 1.
    """
    if encoder.startswith(_ON_DISK):
        return Texts(texts.offsets, texts.tokens, torch.ones(len(texts.tokens)).to(idf))
    return (weigh if encoder in BUILT_IN else weigh_in_order)(texts, idf)
