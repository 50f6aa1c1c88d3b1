"""What queries chose, in order of time: ordered, shuffled, and as a padded table."""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.types import Interactions, Sequences


class Padded(NamedTuple):
    """A row for each sequence, filled up at the end."""

    ids: Tensor  # [Q, T] int64; 0 where nothing is
    holds: Tensor  # [Q, T] bool


def in_order(chosen: Interactions, longest: int | None = None) -> Sequences:
    """The choices of each query by time, equal times by row; of many the ``longest`` latest.

    Without times they are by row.
    """
    ids = chosen.candidates.long()
    if chosen.times is not None:
        ids = ids[_by(chosen.times, chosen.query_of_pair())]
    return latest(Sequences(chosen.offsets, ids), longest)


def latest(sequences: Sequences, longest: int | None) -> Sequences:
    """The last ``longest`` entries of each sequence; None: all."""
    counts = sequences.counts()
    if longest is None or not bool((counts > longest).any()):
        return sequences
    starts = sequences.offsets[1:] - counts.clamp(max=longest)
    places = torch.arange(len(sequences.candidates), device=starts.device)
    kept = places >= torch.repeat_interleave(starts, counts)
    ends = counts.clamp(max=longest).cumsum(0)
    offsets = torch.cat([ends.new_zeros(1), ends])
    return Sequences(offsets, sequences.candidates[kept])


def shuffled(sequences: Sequences, rng: torch.Generator) -> Sequences:
    """Each sequence in a random order."""
    ids = sequences.candidates
    marks = torch.rand(len(ids), generator=rng, device=ids.device)
    return Sequences(sequences.offsets, ids[_by(marks, sequences.row_of_entry())])


def padded(sequences: Sequences, spare: int = 0) -> Padded:
    """The sequences as a table, with ``spare`` more columns."""
    counts, rows = sequences.counts(), sequences.row_of_entry()
    width = int(counts.max()) + spare if len(counts) else spare
    ids = torch.zeros(len(counts), max(width, 1), dtype=torch.int64, device=rows.device)
    columns = torch.arange(len(rows), device=rows.device) - sequences.offsets[rows]
    ids[rows, columns] = sequences.candidates
    return Padded(ids, torch.arange(ids.shape[1], device=rows.device) < counts[:, None])


def _by(values: Tensor, rows: Tensor) -> Tensor:
    """The places of entries by row, then by value; equal values keep their order."""
    order = values.argsort(stable=True)
    return order[rows[order].argsort(stable=True)]
