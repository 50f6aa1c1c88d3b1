"""Fitting: what a method is, what it is given, what it yields and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rankfold.types.data import Dataset, Features, Graded, Interactions, Kind, Side, Texts
from rankfold.types.parts import Comm, Index, Judge, TopK
from rankfold.types.spaces import Space


@dataclass(frozen=True, slots=True)
class Model:
    """All that training leaves behind: plain data.

    A score is the inner product of a row of ``tensors["queries"]`` and a row of
    ``tensors["candidates"]``. A method with its own search over histories keeps instead the pairs
    that it was fitted on: ``tensors["offsets"]`` [M + 1], ``tensors["candidates_of_queries"]``.
    """

    method: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """What a fit is given besides data and settings."""

    rng: torch.Generator
    device: torch.device
    comm: Comm
    resume: Mapping[str, Tensor] | None = None  # ``state()`` of the last step, and its "number"
    validate: Callable[[Model], float] | None = None  # None: there are no validation pairs
    judge: Judge | None = None  # likewise
    build_index: Callable[[Tensor], Index] | None = None  # over half-trained candidate vectors
    memory_budget: int = 2**30  # bytes, for blocks
    candidate_memory: int = 2**34  # of a table of vectors of all candidates, held by each process


class Step(NamedTuple):
    """What a method yields after each sweep, pass or epoch."""

    number: int  # counts from 1
    loss: float
    seconds: float  # spent training since the step before
    model: Model | None
    state: Callable[[], dict[str, Tensor]]  # all that ``Run.resume`` needs to go on after this step
    final: bool
    share: float | None = None  # of the work that is done, about; None: by the steps
    whole: bool = True  # False: inside an epoch; only a place to stop at, ``number`` is the epoch's
    divided: Collection[str] = ()
    """The tables in ``state`` that are divided: each process has its ``share``."""
    stage: str | None = None  # its stage, where a method has several
    updates: int | None = None  # of the parameters, in this epoch; None: not by gradient steps


Input = Literal["histories", "texts", "features", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model ready to answer: its modules are built. A field is None if the model cannot.

    A model either encodes its inputs, and scores are inner products of vectors, or brings its own
    search: ``(inputs, k, exclude)``, where row b of ``exclude`` is not in list b.
    """

    histories: Callable[[Interactions], Tensor] | None = None  # vectors of new queries, [B, D]
    texts: Callable[[Texts, Side], Tensor] | None = None  # vectors of either side, [n, D]
    features: Callable[[Features], Tensor] | None = None  # vectors of new candidates, [n, D]
    rows: Callable[[Graded], Tensor] | None = None  # scores [n]: a higher grade scores higher
    search_histories: Callable[[Interactions, int, Interactions | None], TopK] | None = None
    search_texts: Callable[[Texts, int, Interactions | None], TopK] | None = None


def _no_choice(_model: Model) -> str | None:
    """The description of a method that selects no settings by itself."""
    return None


@dataclass(frozen=True, slots=True)
class Method:
    """A named recipe that a person picks."""

    summary: str
    config: type[Any]  # a frozen dataclass; its fields are the method's options
    data_kind: Kind
    fit: Callable[[Dataset, Any, Run], Iterator[Step]]
    open: Callable[[Model], Opened]
    """Builds the modules of a model, on the device of its tensors. Costly: call it once."""
    answers: tuple[Input, ...] = ()  # what its models can be queried by, besides known queries
    own_search: bool = False  # scores are not inner products: models bring their own search
    paper: str = ""  # a key in docs/reference/papers.md
    self_tuning: bool = False  # chooses its own settings on validation: never stopped early
    finalize: Callable[[Model, Interactions, Run], Model] | None = None
    """Done to the model that is kept, for the pairs that it was fitted on."""
    distributed: bool = False  # several processes can fit it, each with the rows of its own queries
    space: Space = field(default_factory=dict)  # the settings that ``rankfold tune`` tries
    paper_space: Space | None = None  # the grid that its paper states, if it states one
    per_query: tuple[str, ...] = ("queries",)  # tensors of its models with a row per query
    per_candidate: tuple[str, ...] = ("candidates",)  # tensors with a row per candidate
    describe: Callable[[Model], str | None] = _no_choice
    """The settings it selected on validation, in words. None: it selected none."""
