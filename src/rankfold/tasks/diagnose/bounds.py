"""The bounds of SiameseXML at a fitted model: Theorems 3 to 5, Lemma 1 and Claims 17 and 18.

With E [D, V] the token vectors, R the residual matrix, s the most words of a text, L labels, N
documents, margin g and the normaliser v of the theory, Theorem 4 bounds the risk of module I by::

    risk <= empirical risk + (1/g) P log(N) / sqrt(N) + sqrt(log(1/delta) / N)
    P = C/v ( sqrt(D log D) sqrt(|R|_inf,1 |R|_1,1)
              + (1/v) sqrt(s) log(D V) (|R|_2 + 1) sqrt(|E|_inf,1 |E|_1,1) )

|A|_1,1 is the sum of all absolute values, |A|_inf,1 the sum of each row's largest one. Nothing in
it depends on L. Theorem 5 (with classifiers w = normalise(z + eta)) adds log(D L) sqrt(|H|_1,inf
|H|_1,1), H the etas. C is a constant of the proof: the value at C = 1 is the most hopeful one, and
that with the proof's own constants is given too (covers of Claims 13 and 14, Lemma 8)::

    ln cover(e) <= A / e^2,  2 * 4/g ( 2/sqrt(N) + sqrt(A/N) log(2 sqrt(N)) )
    A = 64 s ln(3 e^2 V) ln(2 D V) |E|_inf,1 |E|_1,1 (8 (|R|_2 + 1) / v^2)^2
        + 128 (D+1) ln(2 (D+1)^2) |R|_inf,1 |R|_1,1 (4 / v)^2

Departs from the paper: it prints |R|_2 for |R|_2 + 1, which its Lemma 8 has, and by which an
encoder without R would have no complexity at all.

A risk is at most 1, so a gap of 1 or more says nothing.

Lemma 1 is about a label's text vector z in place of its classifier w. With e = p(+|1) - p(+|z.w)
and C_lip = exp(2 d) / (c d), for every document x::

    |x.w - x.z| <= |w - z| <= sqrt(2 C_lip e)

Claim 17: the ramp loss is at least 1 - P@k. Claim 18: so is the likelihood loss, for every c in
(0, 1) and d > 0 if k is at most the number of positives; its factor 1 / ln(4 c) is not needed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.encoders.bag_encoder import BUILT_IN, BagEncoder, unit
from rankfold.encoders.bags import with_pairs
from rankfold.errors import UserError
from rankfold.methods.text.siamesexml.modules import classifier_loss
from rankfold.models.open_model import open_model
from rankfold.tasks.diagnose.figures import spaced
from rankfold.tasks.diagnose.result import SIAMESE, Chart, Diagnosis, DiagnosisResult, Level, Line
from rankfold.tasks.diagnose.subject import BLOCK_SCORES, DiagnosedModel, drawn_rows
from rankfold.types import Progress

_C, _D = 0.75, 3.0  # of the likelihood of module III
_BLOCK = 4096  # texts encoded at a time

Gap = Callable[[float], float]
"""The bound on a risk's gap for a number of documents or labels."""


class BoundsConfig(Settings):
    queries: int = setting(500, at_least=2, help="documents with labels, drawn by the seed")
    margin: float = setting(0.1, above=0, help="gamma: the margin of the ramp")
    k: int = setting(1, at_least=1, help="labels of a document that count")
    nu: float = setting(1.0, above=0, help="nu: of the theory's normaliser")
    delta: float = setting(0.05, above=0, below=1, help="the chance that a bound is exceeded")


class Norms(NamedTuple):
    """The numbers in Theorems 4 and 5; arguments of ``gap``."""

    width: int  # D
    tokens: int  # V
    words: int  # s
    table: float  # sqrt(|E|_inf,1 |E|_1,1)
    residual: float  # sqrt(|R|_inf,1 |R|_1,1)
    spectral: float  # |R|_2
    classifiers: float  # sqrt(|H|_1,inf |H|_1,1)


def measure(config: BoundsConfig, subject: DiagnosedModel, progress: Progress) -> DiagnosisResult:
    """The bounds at the model's norms, its risks on documents, and Lemma 1 per label."""
    encoder, (documents, labels, classifiers), words = _vectors(config, subject, progress)
    train = subject.data.split("train")
    rows = drawn_rows(train, config.queries, subject.seed)
    own = train.select(rows)
    step, parts = max(1, BLOCK_SCORES // len(labels)), []
    for start in range(0, len(rows), step):
        progress("bounds: risks", 0.6 + 0.4 * start / len(rows))
        some = own.part(start, min(start + step, len(rows)))
        positive = torch.zeros(some.n_queries, len(labels), dtype=torch.bool)
        positive[some.query_of_pair().long(), some.candidates.long()] = True
        block = documents[start : start + step]
        for name, table in (("text", labels), ("classifier", classifiers)):
            parts.append((name, risks(block @ table.T, positive, config.margin, config.k)))
    by_name = {
        name: {
            what: torch.cat([one[what] for other, one in parts if other == name])
            for what in parts[0][1]
        }
        for name in ("text", "classifier")
    }
    norms = norms_of(encoder, labels, classifiers, words)
    lemma = lemma_1(documents, labels, classifiers)
    counts = int((train.counts() > 0).sum()), train.n_candidates
    return _result(config, norms, counts, by_name, lemma)


def risks(scores: Tensor, positive: Tensor, margin: float, k: int) -> dict[str, Tensor]:
    """The ramp loss, 1 - P@k and the likelihood loss of documents; scores [B, L], [B] each."""
    best = scores.masked_fill(positive, -torch.inf).amax(dim=1, keepdim=True)
    top = scores.masked_fill(~positive, -torch.inf).topk(min(k, scores.shape[1]), dim=1).values
    ramp = ((top - best) / margin).clamp(0, 1).nan_to_num(nan=0.0)
    ranked = scores.topk(min(k, scores.shape[1]), dim=1).indices
    hits = positive.gather(1, ranked).double().sum(dim=1) / k
    valid = torch.ones_like(positive)
    each = classifier_loss(scores.clamp(max=1), positive.float(), valid)
    return {
        "ramp": 1 - ramp.double().sum(dim=1) / k,
        "precision": 1 - hits,
        "likelihood": each.double() * positive.sum(dim=1),  # the paper sums over positives
    }


def norms_of(encoder: BagEncoder, labels: Tensor, classifiers: Tensor, words: int) -> Norms:
    """The norms of the encoder's tables, in blocks of tokens."""
    table = encoder.tokens.weight.detach()
    total, highest = 0.0, torch.zeros(table.shape[1], dtype=torch.float64)
    for some in table.split(2**16):
        sizes = some.double().abs()
        total += float(sizes.sum())
        highest = torch.maximum(highest, sizes.amax(dim=0))  # a row of E is a column here
    mixing = encoder.mixing
    r = torch.zeros(1, 1) if mixing is None else mixing.detach().double()
    etas = (classifiers - labels).double().abs().sum(dim=1)
    return Norms(
        width=table.shape[1],
        tokens=len(table),
        words=words,
        table=math.sqrt(float(highest.sum()) * total),
        residual=math.sqrt(float(r.abs().amax(dim=1).sum()) * float(r.abs().sum())),
        spectral=float(torch.linalg.matrix_norm(r.double(), ord=2)),
        classifiers=math.sqrt(float(etas.max()) * float(etas.sum())),
    )


def theorem_4(a: Norms, n: float, config: BoundsConfig) -> float:
    """The gap of Theorem 4 at C = 1 for n documents, without the term of delta."""
    return _complexity(a, config.nu) * math.log(n) / (config.margin * math.sqrt(n))


def theorem_5(a: Norms, n: float, n_labels: float, config: BoundsConfig) -> float:
    """The gap of Theorem 5 at C = 1: with classifiers, for n documents and L labels."""
    own = math.log(a.width * n_labels) * a.classifiers
    whole = (own + _complexity(a, config.nu)) / config.nu
    return whole * math.log(n) / (config.margin * math.sqrt(n))


def _complexity(a: Norms, nu: float) -> float:
    """P at C = 1."""
    mixing = math.sqrt(a.width * math.log(a.width)) * a.residual
    table = math.sqrt(a.words) * math.log(a.width * a.tokens) * (a.spectral + 1) * a.table
    return (mixing + table / nu) / nu


def with_constants(a: Norms, n: float, config: BoundsConfig) -> float:
    """The gap of Theorem 4 with the constants of its proof, without the term of delta."""
    d, v, nu = a.width, a.tokens, config.nu
    table = 64 * a.words * math.log(3 * math.e**2 * v) * math.log(2 * d * v) * a.table**2
    mixing = 128 * (d + 1) * math.log(2 * (d + 1) ** 2) * a.residual**2
    cover = table * (8 * (a.spectral + 1) / nu**2) ** 2 + mixing * (4 / nu) ** 2
    rademacher = 2 / math.sqrt(n) + math.sqrt(cover / n) * math.log(2 * math.sqrt(n))
    return 2 * 4 / config.margin * rademacher


def lemma_1(documents: Tensor, labels: Tensor, classifiers: Tensor) -> dict[str, Tensor]:
    """The two sides of Lemma 1 per label [L], and the largest change of a document's score."""
    cosine = torch.linalg.vecdot(labels.double(), classifiers.double()).clamp(-1, 1)
    short = _C * (1 - (_D * (cosine - 1)).exp())
    lipschitz = math.exp(2 * _D) / (_C * _D)
    distance = (2 * (1 - cosine)).sqrt()
    step, most = max(1, BLOCK_SCORES // max(1, len(documents))), []
    for start in range(0, len(labels), step):
        moved = classifiers[start : start + step] - labels[start : start + step]
        most.append((documents @ moved.T).abs().amax(dim=0))
    return {
        "change": torch.cat(most).double(),
        "distance": distance,
        "bound": (2 * lipschitz * short).sqrt(),
    }


def _vectors(
    config: BoundsConfig, subject: DiagnosedModel, progress: Progress
) -> tuple[BagEncoder, tuple[Tensor, Tensor, Tensor], int]:
    """The encoder; vectors of a sample of documents, of labels' texts, of classifiers; s.

    The classifier of a label is the direction that the model ranks by.
    """
    ranker, data = subject.ranker, subject.data
    model = ranker.model
    encoder = _encoder(model.tensors, model.config)
    if encoder is None:
        raise UserError(
            f"the bounds are about one built-in text encoder, and this {model.method} has another",
            hint="fit siamesexml with encoder=plain or residual and members=1",
        )
    if ranker.n_tokens != data.n_tokens or ranker.tokenizer != data.tokenizer:
        raise UserError(
            "the model and the data have other tokens",
            hint="give the data that the model was fitted on",
        )
    texts = data.query_texts, data.candidate_texts
    if texts[0] is None or texts[1] is None:
        raise UserError("bounds needs texts of both sides", hint="prepare it with --format texts")
    encode, width = open_model(model).texts, encoder.tokens.weight.shape[1]
    assert encode is not None
    progress("bounds: labels", 0.0)
    blocks = [texts[1].select(rows) for rows in torch.arange(len(texts[1])).split(_BLOCK)]
    labels = torch.cat([_unit(encode(one, "query")[:, :width]) for one in blocks])
    progress("bounds: documents", 0.4)
    own = texts[0].select(drawn_rows(data.split("train"), config.queries, subject.seed))
    documents = _unit(encode(own, "query")[:, :width])
    idf, pairs = model.tensors["rarity"], model.tensors["pairs"]
    bags = [with_pairs(one, pairs, len(idf) - len(pairs)) for one in [own, *blocks]]
    words = max(int(one.counts().max()) for one in bags if len(one))
    classifiers = _unit(model.tensors["candidates"][:, :width].float())
    return encoder, (documents, labels, classifiers), words


def _encoder(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> BagEncoder | None:
    """The encoder of a model, if it is a single built-in one."""
    table = tensors.get("0.tokens.weight")
    built_in = config.get("encoder", "plain") in BUILT_IN
    if table is None or not built_in or config.get("members", 1) != 1 or "rarity" not in tensors:
        return None
    residual = "0.mixing" in tensors
    encoder = BagEncoder(table, residual=residual, rng=torch.Generator())
    if residual:
        encoder.mixing = torch.nn.Parameter(tensors["0.mixing"].float())
    return encoder


def _unit(vectors: Tensor) -> Tensor:
    return unit(vectors.cpu().float())


def _documents_needed(gap: Gap) -> float:
    """log10 of the number of documents from which a gap is below 1."""
    low, high = math.log(10.0), 600.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(math.exp(middle)) >= 1 else (low, middle)
    return high / math.log(10)


def _result(
    config: BoundsConfig,
    norms: Norms,
    counts: tuple[int, int],
    by_name: dict[str, dict[str, Tensor]],
    lemma: dict[str, Tensor],
) -> DiagnosisResult:
    n, n_labels = counts
    chance = math.sqrt(math.log(1 / config.delta) / n)
    gaps: dict[str, Gap] = {
        "Theorem 4, C = 1": lambda m: theorem_4(norms, m, config),
        "Theorem 4, the proof's constants": lambda m: with_constants(norms, m, config),
        "Theorem 5, C = 1": lambda m: theorem_5(norms, m, n_labels, config),
    }
    text, classifier = by_name["text"], by_name["classifier"]
    first = gaps["Theorem 4, C = 1"](n) + chance
    needed = _documents_needed(gaps["Theorem 4, C = 1"])
    figures = {
        "gap of Theorem 4 at C = 1 (says something below 1)": first,
        "the same with the proof's constants": gaps["Theorem 4, the proof's constants"](n) + chance,
        "gap of Theorem 5 at C = 1, with classifiers": gaps["Theorem 5, C = 1"](n) + chance,
        "log10 of the documents from which Theorem 4 at C = 1 says something": needed,
        "ramp loss of label texts on training documents": text["ramp"],
        f"1 - P@{config.k} of label texts": text["precision"],
        "ramp loss of classifiers": classifier["ramp"],
        f"1 - P@{config.k} of classifiers": classifier["precision"],
        "share of documents where Claim 17 holds": _above(classifier, "ramp"),
        "share where Claim 18 holds": _above(classifier, "likelihood"),
        "largest change of a score by the text in place of the classifier, mean": lemma["change"],
        "bound of Lemma 1 on it, mean": lemma["bound"],
    }
    useless = float(lemma["bound"].mean()) > 2
    follows = (
        f"The gap is {first:.3g}, "
        + ("so the bound says nothing about this model; " if first >= 1 else "which is a promise; ")
        + "it does not depend on the number of labels, and falls with documents alone. "
        + (
            "Lemma 1 allows any change of a cosine here: whether classifiers are needed is seen "
            "in 1 - P@k of both, not in the lemma."
            if useless
            else "By Lemma 1 the label texts nearly do the classifiers' work."
        )
    )
    details = {
        "norms": norms._asdict(),
        "documents": n,
        "labels": n_labels,
        "chance": chance,
        "lemma_1": {name: one.mean() for name, one in lemma.items()},
        "lemma_1_holds": (lemma["change"] <= lemma["bound"] + 1e-3).double().mean(),
    }
    of_labels = {
        "Theorem 4, texts alone": lambda _m: theorem_4(norms, n, config),
        "Theorem 5, with classifiers": lambda m: theorem_5(norms, n, m, config),
    }
    return DiagnosisResult.of(figures, follows, details, _charts(gaps, of_labels))


def _charts(by_documents: Mapping[str, Gap], by_labels: Mapping[str, Gap]) -> dict[str, Chart]:
    def lines(gaps: Mapping[str, Gap], places: Sequence[float]) -> list[Line]:
        return [Line(name, [(m, gap(m)) for m in places]) for name, gap in gaps.items()]

    documents = lines(by_documents, [10.0**i for i in range(2, 31, 2)])
    labels, risk = lines(by_labels, spaced(10.0, 1e9, 9)), "gap of the risk"
    first = "The bounds by the number of documents"
    second = "The bounds by the number of labels, at C = 1"
    largest = [Level("largest risk", 1.0)]
    return {
        "bounds": Chart(first, "documents", risk, documents, largest, log="xy"),
        "bounds-labels": Chart(second, "labels", risk, labels, log="xy"),
    }


def _above(risks: dict[str, Tensor], name: str) -> Tensor:
    """Whether a loss is at least 1 - P@k; 1 or 0 per document."""
    return (risks[name] >= risks["precision"] - 1e-5).double()


DIAGNOSIS = Diagnosis(
    "Do the bounds of SiameseXML say anything about this model?", SIAMESE, measure
)
