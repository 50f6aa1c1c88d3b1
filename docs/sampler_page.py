"""The page "Samplers": generated from the registry of samplers and their docstrings."""

import inspect

import torch

from rankfold.samplers import SAMPLERS, SamplerContext

HEAD = """# Samplers

    rankfold fit sampled data --out model --set sampler=in-batch --set loss=softmax

A sampler draws the pool of candidates that a batch is compared with. [Where negatives come
from](../concepts/negatives.md) says which one to use and what each correction converges to.
"""


def page() -> str:
    """A section per sampler."""
    context = SamplerContext(counts=torch.ones(8), batch_size=4)
    parts = [HEAD]
    for name, make in SAMPLERS.items():
        sampler = type(make(context))
        text = inspect.cleandoc(sampler.__doc__ or "")
        place = f"`{sampler.__module__}.{sampler.__qualname__}`"
        parts.append(f"## {name}\n\n{text}\n\n{place}\n")
    return "\n".join(parts).replace("::\n", ":\n")
