"""Tensors as the bytes of a safetensors file."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def tensor_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """A safetensors file, piece by piece; equal tensors give equal files, in whatever order.

    Wide types come first, so that all are aligned.

    The library's own writer holds a second copy of everything; these tensors may be memory-mapped
    and larger than memory.
    """
    widest_first = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {}
    end = 0
    for name in widest_first:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        dtype, shape = _DTYPES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in widest_first:
        if tensors[name].numel() == 0:
            continue  # it may have no strides, and then it has no view
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data
