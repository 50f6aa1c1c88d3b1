"""Rows with columns, with images, and with both."""

import torch

from rankfold.types import Dataset, Graded, Vocabulary


def table(n: int = 50) -> Graded:
    rng = torch.Generator().manual_seed(0)
    numbers = 100 + 20 * torch.randn(n, 3, generator=rng)
    numbers[::7, 1] = torch.nan
    categories = torch.randint(-1, 4, (n, 2), generator=rng, dtype=torch.int32)
    return Graded(numbers, categories, None, torch.randint(0, 3, (n,), generator=rng))


def pictures(n: int = 40, channels: int = 3) -> Graded:
    rng = torch.Generator().manual_seed(0)
    grades = torch.randint(0, 3, (n,), generator=rng)
    images = torch.randint(0, 100, (n, 12, 10, channels), generator=rng) + 50 * grades.view(
        -1, 1, 1, 1
    )
    return Graded(torch.empty(n, 0), torch.empty(n, 0, dtype=torch.int32), images.byte(), grades)


def pictures_and_columns(n: int = 60, seed: int = 0) -> Graded:
    """Bright images predict grade 2; only the number and the category predict grade 1."""
    rng = torch.Generator().manual_seed(seed)
    grades = torch.randint(0, 3, (n,), generator=rng)
    images = torch.randint(0, 100, (n, 8, 8, 1), generator=rng)
    images += 100 * (grades == 2).view(-1, 1, 1, 1)
    categories = (grades == 1).int()[:, None]
    numbers = torch.randn(n, 1, generator=rng) + 2 * categories
    return Graded(numbers, categories, images.byte(), grades)


def prepared(rows: Graded) -> Dataset:
    return Dataset("graded", rows, None, rows, Vocabulary.numbered(1), Vocabulary.numbered(3))
