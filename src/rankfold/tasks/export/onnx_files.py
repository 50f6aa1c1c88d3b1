"""The networks of a model as ONNX files: towers of features, and encoders of texts.

``encode_queries.onnx`` and ``encode_candidates.onnx`` give the vectors of new rows; their inner
products are the scores. A tower takes ``numbers`` [n, F] float32 (NaN: missing) and ``categories``
[n, C] int64 (-1: unknown). A text encoder takes ``tokens`` [n, L] int64, padded with -1.

Each file is checked before it is kept: ONNX's own evaluator and the model agree on a sample.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankfold.encoders.bag_encoder import BUILT_IN
from rankfold.encoders.tables import MIN_NORM
from rankfold.errors import UserError
from rankfold.methods.gradient.model import TOWERS
from rankfold.models.open_model import open_model
from rankfold.models.ranker import Ranker
from rankfold.tasks.export.onnx_graph import Graph
from rankfold.types import Columns, Features, Model, Side, Texts

_TOLERANCE = 1e-4  # of a score relative to the largest, between the evaluator and the model
_SAMPLE, _SAMPLE_TOKENS = 16, 12
FILES: dict[Side, str] = {"query": "encode_queries.onnx", "candidate": "encode_candidates.onnx"}


def write_networks(ranker: Ranker, folder: Path) -> dict[str, Any]:
    """Write the networks that a model has; what to put into them, by file."""
    if find_spec("onnx") is None:
        raise UserError("ONNX needs the package onnx", hint="pip install 'rankfold[onnx]'")
    model, opened = ranker.model, open_model(ranker.model)
    about: dict[str, Any] = {}
    for side, file in FILES.items():
        if opened.texts is not None and _is_bag(model):
            graph, inputs = _text_graph(model, side), _sample_tokens(model)
            expected = opened.texts(_as_texts(inputs["tokens"]), side)
            shapes: dict[str, Any] = {"tokens": "[n, L] int64 in text order, padded with -1"}
        elif opened.features is not None and _has_known_tower(model, side):
            columns = Columns.from_json(model.notes[f"{side}_columns"])
            graph, inputs = _tower_graph(model, side), _sample_rows(columns)
            numbers, categories = map(torch.from_numpy, inputs.values())
            rows = Features(numbers, categories, columns)
            expected = opened.features(rows, side)
            shapes = columns.to_json()
        else:
            continue
        graph.write(folder / file)
        _check(folder / file, inputs, expected)
        about[file] = shapes
    if not about:
        raise UserError(
            f"{model.method} has no network that ONNX can hold",
            hint="towers (--set encoder=towers, with features) and built-in text encoders have one;"
            " leave --onnx out",
        )
    if ranker.tokenizer is not None and opened.texts is not None:
        (folder / "tokenizer.json").write_text(ranker.tokenizer, encoding="utf-8")
    return about


def _is_bag(model: Model) -> bool:
    return "rarity" in model.tensors and model.config.get("encoder") in BUILT_IN


# ---------------------------------------------------------------------------------- texts


def _text_graph(model: Model, side: Side) -> Graph:
    """tf-idf over tokens and frequent pairs of them, then the encoder of each member."""
    config, rarity, pairs = model.config, model.tensors["rarity"], model.tensors["pairs"]
    graph, n_words = Graph(), len(rarity) - len(pairs)
    tokens = graph.input("tokens", "int64", ("n", "L"))
    if len(pairs):
        tokens = graph("Concat", tokens, _pairs_of(graph, tokens, pairs, n_words), axis=1)
    known = graph("GreaterOrEqual", tokens, graph.value(np.int64(0)))
    ids = graph("Max", tokens, graph.value(np.int64(0)))
    share = _tf_idf(graph, tokens, known, graph("Gather", graph.value(rarity.float()), ids))
    members = [
        _finish(graph, graph.weighted_sum(share, model.tensors[f"{n}.tokens.weight"], ids), mixing)
        for n in range(config["members"])
        for mixing in [model.tensors.get(f"{n}.mixing")]
    ]
    vectors = graph("Concat", *members, axis=1)
    if side == "candidate":
        factor = (1 + config["centroid_weight"]) / config["members"]
        vectors = graph("Mul", vectors, graph.value(np.float32(factor)))
    if (config.get("popularity_weight") or 0.0) != 0:
        last = model.tensors["candidates"].shape[1] - 1  # the last column is popularity
        assert last == config["members"] * config["width"]
        column = 0.5 if side == "query" else 0.0
        vectors = graph.with_columns(vectors, torch.tensor([column]))
    graph.output("vectors", vectors)
    return graph


def _pairs_of(graph: Graph, tokens: str, pairs: Tensor, n_words: int) -> str:
    """The number of each pair of adjacent tokens, -1 if it is not frequent; [n, L - 1]."""
    first, second = graph.cut(tokens, 0, -1), graph.cut(tokens, 1, None)
    key = graph("Add", graph("Mul", first, graph.value(np.int64(n_words))), second)
    inside = graph("GreaterOrEqual", graph("Min", first, second), graph.value(np.int64(0)))
    return graph(
        "LabelEncoder",
        graph("Where", inside, key, graph.value(np.int64(-1))),
        domain="ai.onnx.ml",
        keys_int64s=pairs.tolist(),
        values_int64s=list(range(n_words, n_words + len(pairs))),
        default_int64=-1,
    )


def _tf_idf(graph: Graph, tokens: str, known: str, idf: str) -> str:
    """(1 + ln tf) idf, divided by tf for each occurrence and by the norm of the text; [n, T]."""
    equal = graph("Equal", graph.widen(tokens, 2), graph.widen(tokens, 1))
    count = graph.sum(graph("Cast", equal, to=1), 2)
    one = graph.value(np.float32(1))
    weight = graph("Mul", graph("Add", one, graph("Log", count)), idf)
    share = graph("Where", known, graph("Div", weight, count), graph.value(np.float32(0)))
    square = graph.sum(graph("Mul", weight, share), 1, keep=True)
    return graph("Div", share, graph("Max", graph("Sqrt", square), graph.value(np.float32(1e-30))))


def _finish(graph: Graph, sums: str, mixing: Tensor | None) -> str:
    """As ``BagEncoder.finish``."""
    if mixing is None:
        return graph.unit(sums, 1e-6)
    first = graph.unit(graph("Relu", sums), 1e-6)
    more = graph("Relu", graph("MatMul", first, graph.value(mixing.float().T)))
    return graph.unit(graph("Add", first, more), 1e-6)


# ---------------------------------------------------------------------------------- towers


def _has_known_tower(model: Model, side: Side) -> bool:
    """Whether the side has a tower whose network is rankfold's."""
    is_known = model.config.get("network", "residual") == "residual"
    return is_known and f"{TOWERS[side]}layers.0.weight" in model.tensors


def _tower_graph(model: Model, side: Side) -> Graph:
    """As ``Tower.encode_new``, then the length, the temperature and the biases."""
    prefix, graph = TOWERS[side], Graph()
    part = {
        name.removeprefix(prefix): tensor
        for name, tensor in model.tensors.items()
        if name.startswith(prefix)
    }
    numbers = graph.input("numbers", "float32", ("n", len(part["known.mean"])))
    categories = graph.input("categories", "int64", ("n", len(part["known.first"])))
    centred = graph("Sub", numbers, graph.value(part["known.mean"].float()))
    scaled = graph("Mul", centred, graph.value(part["known.scale"].float()))
    missing = graph("IsNaN", scaled)
    scaled = graph("Where", missing, graph.value(np.float32(0)), scaled)
    sums = graph("MatMul", scaled, graph.value(part["known.slopes"].float()))
    levels = part["known.levels.weight"].float()
    first = graph.value(part["known.first"].long())
    unknown = graph("Less", categories, graph.value(np.int64(0)))
    last = graph.value(np.int64(len(levels) - 1))
    places = graph("Where", unknown, last, graph("Add", categories, first))
    sums = graph("Add", sums, graph.sum(graph("Gather", graph.value(levels), places), 1))
    hidden = graph("Relu", graph.linear(sums, part["layers.0.weight"], part["layers.0.bias"]))
    more = graph.linear(hidden, part["layers.2.weight"], part["layers.2.bias"])
    vectors, config = graph("Add", sums, more), model.config
    if config.get("similarity") == "cosine":
        vectors = graph.unit(vectors, MIN_NORM)
    biases = model.tensors["candidates"][:, config["width"] :].float().mean(dim=0)
    if side == "query":
        cold = graph.value(np.float32(config.get("temperature", 1.0)))
        vectors, biases = graph("Div", vectors, cold), torch.ones_like(biases)
    graph.output("vectors", graph.with_columns(vectors, biases) if len(biases) else vectors)
    return graph


# ---------------------------------------------------------------------------------- checks


def _check(path: Path, inputs: Mapping[str, Any], expected: Tensor) -> None:
    """A UserError if the file gives other vectors than the model."""
    from onnx.reference import ReferenceEvaluator

    outputs: Any = ReferenceEvaluator(str(path)).run(None, dict(inputs))
    vectors = np.asarray(outputs[0])
    wanted = expected.detach().cpu().float().numpy()
    same = vectors.shape == wanted.shape
    limit = _TOLERANCE * max(float(np.abs(wanted).max(initial=0.0)), 1e-6)
    if not same or float(np.abs(vectors - wanted).max(initial=0.0)) > limit:
        raise UserError(
            f"{path.name} gives other vectors than the model: this encoder cannot be exported",
            hint="leave --onnx out",
        )


def _sample_tokens(model: Model) -> dict[str, Any]:
    """Texts of random tokens, some repeated, of different lengths; the last is empty."""
    n_words = len(model.tensors["rarity"]) - len(model.tensors["pairs"])
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, n_words, (_SAMPLE, _SAMPLE_TOKENS))
    for row, key in enumerate(model.tensors["pairs"][: _SAMPLE - 2].tolist()):
        tokens[row, :2] = divmod(key, n_words)
    tokens[:, 4] = tokens[:, 3]
    ends = np.linspace(_SAMPLE_TOKENS, 0, _SAMPLE).astype(np.int64)
    tokens[np.arange(_SAMPLE_TOKENS) >= ends[:, None]] = -1
    return {"tokens": tokens.astype(np.int64)}


def _as_texts(tokens: Any) -> Texts:
    known = tokens >= 0
    offsets = np.concatenate([[0], known.sum(axis=1).cumsum()])
    return Texts(torch.from_numpy(offsets), torch.from_numpy(tokens[known].astype(np.int32)))


def _sample_rows(columns: Columns) -> dict[str, Any]:
    """Random rows, some values missing."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(_SAMPLE, len(columns.numbers))).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    sizes = [len(levels) for levels in columns.levels.values()]
    drawn = [rng.integers(-1, size, _SAMPLE) for size in sizes]
    categories = np.stack(drawn, axis=1) if drawn else np.zeros((_SAMPLE, 0))
    return {"numbers": numbers, "categories": categories.astype(np.int64)}
