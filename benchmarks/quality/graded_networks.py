"""Networks on graded rows: what the encoding, the size and the loss are worth.

    python -m benchmarks.quality.graded_networks export           # arrays, from the prepared sets
    python -m benchmarks.quality.graded_networks run --jobs 8     # torch and numpy suffice
    python -m benchmarks.quality.graded_networks table

The rows are those of train and validation of the development sets: no test row is read. Each of
``DRAWS`` draws divides them anew into rows to fit, to choose the epoch, and to judge. The networks
of all draws are trained at once, as one batch of matrices. A variant is the default but for the
settings it names. A figure is the mean TPR at the set's first rate, on the rows that judge.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.paths import RESULTS, SCRATCH

ARRAYS, OUT = SCRATCH / "graded-arrays", RESULTS / "quality" / "graded"
DRAWS, MOST, EPOCHS = (
    int(os.environ.get(name, value))
    for name, value in (("DRAWS", "6"), ("MOST", "45000"), ("EPOCHS", "20"))
)
RATES = {
    "attrition": 0.05, "caravan": 0.05, "lending": 0.05, "visits": 0.01, "stops": 0.01,
    "diamonds": 0.01, "claims": 0.01, "lectures": 0.01, "flights": 0.01, "fraud": 0.01,
}  # fmt: skip
DEFAULT: dict[str, Any] = {
    "encoding": "scale", "bins": 16, "hidden": (256, 64), "dropout": 0.1, "lr": 0.002,
    "decay": 1e-4, "epochs": EPOCHS, "batch": 256, "loss": "ce", "low": 0.0, "sigma": None,
    "start": 0.0, "embedding": 24,
}  # fmt: skip
PLE = {"encoding": "ple"}
VARIANTS: dict[str, dict[str, Any]] = {
    "ce": {},
    "ce ple": PLE,
    "cba": {"loss": "cba", "low": 1.0, "dropout": 0.3},
    "cba ple": {**PLE, "loss": "cba", "low": 1.0, "dropout": 0.3},
    "odds ple": {**PLE, "loss": "odds"},
    "fh ple": {**PLE, "loss": "fh"},
    "odds low .3": {**PLE, "loss": "odds", "low": 0.3},
    "odds low 1": {**PLE, "loss": "odds", "low": 1.0},
    "ce ple+scale": {"encoding": "ple+scale"},
    "cba ple start": {**PLE, "loss": "cba", "low": 1.0, "dropout": 0.3, "start": 0.5},
    "fh low .3": {**PLE, "loss": "fh", "low": 0.3},
    "odds low .3 start": {**PLE, "loss": "odds", "low": 0.3, "start": 0.5},
    "ce ple dropout .3": {**PLE, "dropout": 0.3},
    "ce quantile": {"encoding": "quantile"},
    "odds ple dropout .3": {**PLE, "loss": "odds", "dropout": 0.3},
    "odds low .1": {**PLE, "loss": "odds", "low": 0.1},
    "ce ple batch 1024": {**PLE, "batch": 1024, "lr": 0.003},
    "ce ple hidden 256 256": {**PLE, "hidden": (256, 256)},
    "cba ple sigma .35": {**PLE, "loss": "cba", "low": 1.0, "dropout": 0.3, "sigma": 0.35},
    "ce ple 8": {**PLE, "bins": 8},
    "ce dropout .3": {"dropout": 0.3},
    "ce ple 32": {**PLE, "bins": 32},
    "ce ple hidden 128 64": {**PLE, "hidden": (128, 64)},
    "ce ple batch 512": {**PLE, "batch": 512},
    "ce ple epochs 10": {**PLE, "epochs": 10},
    "ce ple decay .01": {**PLE, "decay": 0.01},
    "ce ple lr .001": {**PLE, "lr": 0.001},
    "ce ple embedding 8": {**PLE, "embedding": 8},
    "cba ple dropout .1": {**PLE, "loss": "cba", "low": 1.0},
    "cba ple sigma .1": {**PLE, "loss": "cba", "low": 1.0, "dropout": 0.3, "sigma": 0.1},
    "cba ple low .3": {**PLE, "loss": "cba", "low": 0.3, "dropout": 0.3},
    "odds low .3 dropout .3": {**PLE, "loss": "odds", "low": 0.3, "dropout": 0.3},
    "odds low 1 dropout .3": {**PLE, "loss": "odds", "low": 1.0, "dropout": 0.3},
    "odds low .3 sigma .1": {**PLE, "loss": "odds", "low": 0.3, "sigma": 0.1},
    "odds low 1 start": {**PLE, "loss": "odds", "low": 1.0, "start": 0.5},
    "odds ple low .3": {**PLE, "loss": "odds", "low": 0.3},
    "odds ple low 1": {**PLE, "loss": "odds", "low": 1.0},
    "ce low .3": {**PLE, "low": 0.3},
    "ce low 1": {**PLE, "low": 1.0},
    "ce low .3 scale": {"low": 0.3},
    "ce low 1 start": {**PLE, "low": 1.0, "start": 0.5},
    "fh low .1": {**PLE, "loss": "fh", "low": 0.1},
    "fh low 1": {**PLE, "loss": "fh", "low": 1.0},
    "fh low .3 start": {**PLE, "loss": "fh", "low": 0.3, "start": 0.5},
}


class Rows(NamedTuple):
    """Rows of all draws."""

    numbers: Tensor  # [S, n, F]
    categories: Tensor  # [S, n, C], 0: missing
    grades: Tensor  # [S, n]

    def take(self, places: Tensor) -> Rows:
        """Some rows of each draw, by [S, b]."""
        draws = torch.arange(len(places), device=places.device)[:, None]
        return Rows(*(one[draws, places] for one in self))


# ---------------------------------------------------------------------------------- the network


class Network:
    """One network per draw."""

    def __init__(self, rows: Rows, levels: list[int], n_grades: int, how: dict[str, Any]) -> None:
        self.how, self.n_grades, s = how, n_grades, len(rows.grades)
        self.device = rows.grades.device
        self.rng = torch.Generator(self.device).manual_seed(0)
        self.fit_encoding(rows.numbers)
        self.tables, self.weights, size = [], [], self.width_of_numbers
        for n in levels:
            width = min(how["embedding"], 2 + n // 2)
            table = self.random(s, n + 1, width) * width**-0.5
            table[:, 0] = 0
            self.tables.append(table.requires_grad_())
            size += width
        sizes = [size, *how["hidden"], 1 + n_grades + 2 * (n_grades - 1)]
        for place in range(len(sizes) - 1):
            scale = (2 / sizes[place]) ** 0.5 if place < len(sizes) - 2 else sizes[place] ** -0.5
            weight = self.random(s, sizes[place], sizes[place + 1]) * scale
            bias = torch.zeros(s, 1, sizes[place + 1], device=self.device)
            self.weights.append((weight.requires_grad_(), bias.requires_grad_()))

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.rng, device=self.device)

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.tables, *(one for pair in self.weights for one in pair)]

    def fit_encoding(self, numbers: Tensor) -> None:
        kind, bins = self.how["encoding"], self.how["bins"]
        bins = 64 if kind == "quantile" else bins
        some = numbers[:, :20_000]
        self.mean = some.nanmean(dim=1, keepdim=True).nan_to_num()
        spread = ((some - self.mean) ** 2).nanmean(dim=1, keepdim=True).nan_to_num()
        self.scale = torch.where(spread > 0, spread.rsqrt(), 1.0)
        at = torch.linspace(0, 1, bins + 1, device=numbers.device)
        # equal quantiles make an empty bin, which is a step at its edge
        self.edges = torch.nanquantile(some, at, dim=1).permute(1, 2, 0).nan_to_num()  # [S, F, Q]
        normal = torch.erfinv(2 * at.clamp(0.005, 0.995) - 1) * 2**0.5
        self.heights = normal.diff()
        f = numbers.shape[2]
        of_kind = {"scale": f, "quantile": f, "ple": f * bins, "ple+scale": f * (bins + 1)}
        self.width_of_numbers = f + of_kind[kind]

    def encode(self, numbers: Tensor) -> Tensor:
        missing, kind = numbers.isnan(), self.how["encoding"]
        parts = [missing.float()]
        if "scale" in kind:
            scaled = ((numbers - self.mean) * self.scale).masked_fill(missing, 0)
            parts.append(scaled.clamp(-10, 10))
        if kind != "scale":
            low, high = self.edges[:, None, :, :-1], self.edges[:, None, :, 1:]
            width = high - low
            inside = torch.where(
                width > 0,
                ((numbers[..., None] - low) / width.clamp(min=1e-12)).clamp(0, 1),
                (numbers[..., None] >= high).float(),
            )
            inside = inside.masked_fill(missing[..., None], 0)
            if kind == "quantile":
                first = -self.heights.sum() / 2
                value = (inside * self.heights).sum(dim=-1) + first
                parts.append(value.masked_fill(missing, 0))
            else:
                parts.append(inside.flatten(2))
        return torch.cat(parts, dim=2)

    def outputs(self, rows: Rows, *, training: bool) -> Tensor:
        draws = torch.arange(len(rows.grades), device=self.device)[:, None]
        parts = [self.encode(rows.numbers)]
        parts += [t[draws, rows.categories[..., c]] for c, t in enumerate(self.tables)]
        hidden = torch.cat(parts, dim=2)
        for weight, bias in self.weights[:-1]:
            hidden = torch.baddbmm(bias, hidden, weight).relu()
            if training and self.how["dropout"]:
                kept = torch.rand(hidden.shape, generator=self.rng, device=self.device)
                hidden = hidden * (kept >= self.how["dropout"]) / (1 - self.how["dropout"])
        weight, bias = self.weights[-1]
        return torch.baddbmm(bias, hidden, weight)

    def score(self, outputs: Tensor) -> Tensor:
        g = self.n_grades
        if self.how["loss"] in ("odds", "cba"):
            return outputs[..., 0].double()
        if self.how["loss"] == "fh":
            u = outputs[..., 1 + g : 2 * g].double()
            return u.sigmoid().sum(dim=-1) if g > 2 else u[..., 0]
        classes = outputs[..., 1 : 1 + g].double()
        places = torch.arange(g, device=self.device, dtype=torch.float64)
        return classes.softmax(-1) @ places if g > 2 else classes[..., 1] - classes[..., 0]


# ---------------------------------------------------------------------------------- the losses


class Queue:
    """The latest scores and grades: a batch's negatives are ranked among them."""

    def __init__(self, fpr: float, sigma: float, n_batches: int) -> None:
        self.fpr, self.sigma, self.n = fpr, sigma, n_batches
        self.scores: list[Tensor] = []
        self.positive: list[Tensor] = []

    def weights(self, scores: Tensor, positive: Tensor) -> Tensor:
        """Weights p of the batch's negatives by threshold; scores [S, T, B], positive [S, T, B]."""
        self.scores = [*self.scores, scores][-self.n :]
        self.positive = [*self.positive, positive][-self.n :]
        known, side = torch.cat(self.scores, dim=2), torch.cat(self.positive, dim=2)
        ordered = known.masked_fill(side, torch.inf).sort(dim=2).values
        n = (~side).sum(dim=2, keepdim=True)
        above = n - torch.searchsorted(ordered, scores.contiguous(), right=True)
        ranks = above / n.clamp(min=1)
        p = (-((ranks - self.fpr) ** 2) / (2 * self.sigma**2)).exp().masked_fill(positive, 0)
        return p / p.sum(dim=2, keepdim=True).clamp(min=1e-9)


def loss_of(
    net: Network, outputs: Tensor, grades: Tensor, queue: Queue, *, with_low: bool
) -> Tensor:
    """The mean loss of each draw, summed over draws."""
    how, g = net.how, net.n_grades
    thresholds = torch.arange(g - 1, device=grades.device)
    positive = grades[:, None] > thresholds[:, None]  # [S, T, B]
    kind = how["loss"]
    single = outputs[..., 0]
    if kind in ("ce", "cba"):
        flat = outputs[..., 1 : 1 + g].flatten(0, 1)
        total = F.cross_entropy(flat, grades.flatten()) * len(grades)
    else:
        own = outputs[..., 1 + g : 2 * g].transpose(1, 2)  # [S, T, B]
        cuts = net.weights[-1][1][:, 0, 2 * g :, None]  # biases that nothing else uses
        u = own if kind == "fh" else single[:, None] + cuts
        each = F.binary_cross_entropy_with_logits(u, positive.float(), reduction="none")
        total = each.mean(dim=2).sum()
    if how["low"] and with_low:
        if kind == "ce":  # the log-odds of the expected grade, which orders rows as the score does
            p = outputs[..., 1 : 1 + g].softmax(dim=-1)
            places = torch.arange(g, device=p.device) / (g - 1)
            single = (p @ places.to(p.dtype)).clamp(1e-6, 1 - 1e-6).logit()
        scores = own if kind == "fh" else single[:, None].expand(-1, g - 1, -1)
        p = queue.weights(scores.detach(), positive)
        shares = positive / positive.sum(dim=2, keepdim=True).clamp(min=1)
        costs = F.softplus(scores[:, :, None, :] - scores[:, :, :, None])  # [S, T, i, j]
        low = torch.einsum("stij,sti,stj->st", costs, shares, p)
        total = total + how["low"] * low.mean(dim=1).sum()
    return total


# ---------------------------------------------------------------------------------- one variant


def tpr(scores: Tensor, grades: Tensor, n_grades: int, fpr: float) -> list[float]:
    """TPR at the rate, pauc up to twice the rate (raw) and AUC: means over thresholds."""
    values = []
    order = scores.argsort(descending=True)
    for k in range(n_grades - 1):
        positive = (grades[order] > k).double()
        n, m = positive.sum(), (1 - positive).sum()
        found, wrong = positive.cumsum(0) / n, (1 - positive).cumsum(0)
        allowed = int(fpr * float(m) + 1e-9)
        first = int((wrong <= allowed).sum()) - 1
        at = found[first] if first >= 0 else found[0] * 0
        twice = max(1, int(2 * fpr * float(m)))
        own = found[(positive == 0).nonzero().flatten()]
        values.append(torch.stack([at, own[:twice].mean(), own.mean()]))
    return torch.stack(values).mean(dim=0).tolist()


def draws_of(name: str, device: str) -> tuple[Rows, Rows, Rows, list[int], int]:
    arrays = np.load(ARRAYS / f"{name}.npz")
    numbers, grades = torch.from_numpy(arrays["numbers"]), torch.from_numpy(arrays["grades"])
    categories, n = torch.from_numpy(arrays["categories"]).long() + 1, len(grades)
    orders = torch.stack(
        [torch.randperm(n, generator=torch.Generator().manual_seed(d)) for d in range(DRAWS)]
    )
    ends = [0, int(0.65 * n), int(0.77 * n), n]
    parts = []
    for start, end in itertools.pairwise(ends):
        some = orders[:, start:end]
        parts.append(Rows(numbers[some], categories[some], grades[some].long()))
    train, validation, judge = (Rows(*(one.to(device) for one in part)) for part in parts)
    return train, validation, judge, arrays["levels"].tolist(), int(grades.max()) + 1


def fitted(name: str, variant: str, device: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    how, fpr = {**DEFAULT, **VARIANTS[variant]}, RATES[name]
    began = time.perf_counter()
    train, validation, judge, levels, n_grades = draws_of(name, device)
    n = train.grades.shape[1]
    largest = how["batch"]
    batch = max(32, min(largest, 2 ** int(math.log2(max(1, n / 16)))))
    net = Network(train, levels, n_grades, how)
    negatives = int((train.grades[0] == 0).sum())
    sigma = how["sigma"] or max(2 * fpr, min(0.35, 150 / negatives))
    queue = Queue(fpr, sigma, max(1, 4096 // batch))
    adam = torch.optim.AdamW(net.parameters, lr=how["lr"], weight_decay=how["decay"])
    steps, chosen = n // batch, [[-1.0, 0.0, 0.0, 0.0, 0.0]] * DRAWS
    rng = torch.Generator(device).manual_seed(1)
    for epoch in range(how["epochs"]):
        order = torch.rand(DRAWS, n, generator=rng, device=device).argsort(dim=1)
        for step in range(steps):
            done = (epoch + (step + 1) / steps) / how["epochs"]
            warm = min(1.0, done * how["epochs"])
            for group in adam.param_groups:
                group["lr"] = how["lr"] * warm * (1 + math.cos(math.pi * done)) / 2
            rows = train.take(order[:, step * batch : (step + 1) * batch])
            outputs = net.outputs(rows, training=True)
            loss = loss_of(net, outputs, rows.grades, queue, with_low=done >= how["start"])
            adam.zero_grad()
            loss.backward()
            adam.step()
        scores = [scored(net, part) for part in (validation, judge)]
        for d in range(DRAWS):
            by = tpr(scores[0][d], validation.grades[d], n_grades, fpr)[1]
            values = tpr(scores[1][d], judge.grades[d], n_grades, fpr)
            if by > chosen[d][0]:
                chosen[d] = [by, epoch + 1, *values]
            if d == 0 and epoch == 0:
                last = []
            if epoch == how["epochs"] - 1:
                last.append(values[0])
    figures = {"set": name, "variant": variant, "seconds": round(time.perf_counter() - began, 1)}
    kept = {"tpr": 2, "pauc": 3, "auc": 4, "epoch": 1}
    return figures | {
        **{key: [round(one[place], 4) for one in chosen] for key, place in kept.items()},
        "last": [round(one, 4) for one in last],
    }


@torch.no_grad()
def scored(net: Network, rows: Rows) -> Tensor:
    parts = [
        net.score(net.outputs(Rows(*(one[:, a : a + 4096] for one in rows)), training=False))
        for a in range(0, rows.grades.shape[1], 4096)
    ]
    return torch.cat(parts, dim=1)


# ---------------------------------------------------------------------------------- the program


def export() -> None:
    from benchmarks.quality.graded_sets import prepare

    ARRAYS.mkdir(parents=True, exist_ok=True)
    for name in RATES:
        data = prepare(name)
        rows = data.graded("train").join(data.graded("validation"))
        most = 3 * MOST if name == "fraud" else MOST
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(9))[:most]
        some = rows.select(order)
        np.savez_compressed(
            ARRAYS / f"{name}.npz",
            numbers=some.numbers.numpy(),
            categories=some.categories.to(torch.int16).numpy(),
            grades=some.grades.to(torch.int8).numpy(),
            levels=np.array([len(one) for one in data.columns.levels.values()], dtype=np.int64),
        )


def one(job: tuple[str, str, str]) -> str:
    try:
        return json.dumps(fitted(*job))
    except Exception as error:
        return json.dumps({"set": job[0], "variant": job[1], "error": repr(error)})


def run(args: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    jobs = [(name, variant, device) for variant in args.variants for name in args.sets]
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "networks.jsonl"
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool, file.open("a") as lines:
        for line in pool.imap_unordered(one, jobs, chunksize=1):
            lines.write(line + "\n")
            lines.flush()


def table(args: argparse.Namespace) -> None:
    lines = [json.loads(line) for line in (args.out / "networks.jsonl").open()]
    found = {(one["set"], one["variant"]): one for one in lines if "tpr" in one}
    print("variant", *RATES, "mean", sep=" | ")
    for variant in dict.fromkeys(one["variant"] for one in lines):
        means = [float(np.mean(found[name, variant]["tpr"])) if (name, variant) in found
                 else math.nan for name in RATES]  # fmt: skip
        print(variant, *(f"{mean:.3f}" for mean in means), f"{np.nanmean(means):.4f}", sep=" | ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["export", "run", "table"])
    parser.add_argument("--sets", nargs="+", default=list(RATES))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--out", type=type(OUT), default=OUT)
    arguments = parser.parse_args()
    if arguments.task == "export":
        export()
    else:
        (run if arguments.task == "run" else table)(arguments)
