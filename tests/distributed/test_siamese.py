"""SiameseXML on one, two and three processes: the same batches, pools, draws, lists and mix."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import ranks as processes
import torch

import rankfold as rf
from rankfold.data import folder
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders import bags
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml import fit as recipe
from rankfold.methods.text.siamesexml import mining, modules
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import build_corpus, encode_all
from rankfold.training import loop
from rankfold.training.early_stopping import History
from rankfold.training.gradient_sync import sum_gradients
from rankfold.types import Comm, Dataset, Interactions, Run, Step, Texts, Vocabulary, from_pairs

DOCUMENTS, LABELS, TOPICS, WORDS = 130, 17, 4, 60
STEPS, COUNTED = 20, 6  # steps whose bytes are counted
SMALL: dict[str, Any] = {
    **{"width": 8, "batch_size": 16, "pool": 12, "shortlist": 6, "random": 3},
    **{"linear_weight": 0.0, "neighbour_weight": 0.0},  # one process alone has words
}
PAIRS = ("offsets", "candidates_of_queries")  # tensors of the pairs that a model was fitted on
SHORT: dict[str, Any] = {"encoder_epochs": 2, "classifier_epochs": 1, "joint_epochs": 2}
DOCUMENTWISE: dict[str, Any] = {"classifier_batch_size": 16}
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "pool": ("siamesexml", {}),
    "few": ("siamesexml", {"batch_size": 2, "encoder": "residual", "classifier_epochs": 0}),
    "joint": (
        "siamesexml",
        {"encoder_epochs": 0, "classifier_epochs": 0, "joint_epochs": 5, "lr": 1e-3},
    ),
    "listed": ("siamesexml-paper", {"encoder_epochs": 0, "classifier_epochs": 5, **DOCUMENTWISE}),
    "learnt": ("siamesexml", {"encoder_epochs": 0, "classifier_epochs": 5}),
    "hardest": (
        "siamesexml-paper",
        {"batch_size": 4, "thinning": 0.2, **DOCUMENTWISE},
    ),
    "refreshed": ("siamesexml-paper", {"batch_size": 4, "refresh": 2, "encoder_epochs": 6}),
}
WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "siamesexml": ("siamesexml", {}),
    "refit": ("siamesexml", {"refit": True}),
    "siamesexml-3": ("siamesexml-3", {"classifier_epochs": 0}),
    "siamesexml-paper": ("siamesexml-paper", {"batch_size": 8, **DOCUMENTWISE}),
}


def topics() -> Dataset:
    """A document has words of one topic; a label has one word of its topic.

    The last documents are not in train: of three processes, one has no training pairs.
    """
    rng = torch.Generator().manual_seed(0)
    topic = torch.arange(DOCUMENTS) % TOPICS
    lengths = torch.randint(3, 9, (DOCUMENTS,), generator=rng)
    owners = torch.repeat_interleave(torch.arange(DOCUMENTS), lengths)
    words = torch.randint(0, WORDS // TOPICS, (len(owners),), generator=rng) * TOPICS
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    documents = Texts(offsets, (words + topic[owners]).int())
    labels = Texts(torch.arange(LABELS + 1), torch.arange(LABELS).int())
    same = topic[:, None] == torch.arange(LABELS) % TOPICS
    drawn = same & (torch.rand(same.shape, generator=rng) < 0.6)
    place = torch.arange(DOCUMENTS)[:, None]
    use = torch.where(place % 5 == 0, 1, torch.where(place >= DOCUMENTS * 2 // 3, 2, 0))
    splits = [pairs(drawn & (use == number)) for number in range(3)]
    hidden = pairs(torch.rand(same.shape, generator=rng) < 0.05)
    names = Vocabulary.numbered(DOCUMENTS), Vocabulary.numbered(LABELS)
    made = Dataset("texts", *splits, *names, documents, labels, n_tokens=WORDS, excluded=hidden)
    return replace(made, fingerprint="topics")


def pairs(marks: torch.Tensor) -> Interactions:
    both = marks.nonzero()
    return from_pairs(both[:, 0], both[:, 1], None, (DOCUMENTS, LABELS))


def run_all(comm: Comm, data: Path, out: Path) -> dict[str, Any]:
    """All that is compared, in one call, since processes start slowly."""
    bags.MAX_GATHERED_PAIRS = 200
    results: dict[str, Any] = {"mined": mine(comm, data)}
    results["models"] = {
        name: fitted(comm, data, name) for name in processes.fits_of(WHOLE, comm.size)
    }
    loop.PAUSE_SECONDS = -1.0  # a step after every batch
    results |= {name: run_steps(comm, data, name) for name in processes.fits_of(FITS, comm.size)}
    if comm.size == 3:
        return results | {"resumed": [resume_fits(comm, data, out / name) for name in ("2", "1")]}
    return results | {"interrupted": begin(comm, data, out / str(comm.size))}


def options(name: str, of: dict[str, tuple[str, dict[str, Any]]] = FITS) -> dict[str, Any]:
    _, given = of[name]
    return {**SMALL, **SHORT, "pairs_from": 2, **given}


def run_steps(comm: Comm, path: Path, name: str) -> dict[str, Any]:
    """The state of a fit after some steps, with the rows of all processes."""
    rng, device = torch.Generator().manual_seed(0), torch.device("cpu")
    run = Run(rng, device, comm, build_index=Exact, memory_budget=1000)
    seen: list[dict[str, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        record_sizes(patch, seen)
        config = METHODS[FITS[name][0]].config(**options(name))
        fit = METHODS[FITS[name][0]].fit(folder.load(path, comm), config, run)
        next(fit)
        sent = comm.sent
        list(islice(fit, COUNTED))
        sent = comm.sent - sent
        *_, step = islice(fit, STEPS - 1 - COUNTED)
    state = {key: value for key, value in step.state().items() if key != "sums"}
    lengths = {key: len(state[key]) for key in step.divided}
    for key in step.divided:
        state[key] = comm.gather(state[key])
    facts = {"loss": step.loss, "state": state, "lengths": lengths}
    return {**facts, "sent": sent, "seen": seen[1 : COUNTED + 1]}


def record_sizes(patch: pytest.MonkeyPatch, seen: list[dict[str, int]]) -> None:
    """Record the sizes of each step: candidates and tokens, its own and of all processes."""
    chosen_by_all, pool_around = modules.chosen_by_all, modules.pool_around
    distinct_of_all, gather_batch = modules.distinct_of_all, modules.gather_batch

    def chosen(batch: Any, comm: Comm) -> Any:
        seen.append({"chosen": len(batch.positives.candidates.unique())})
        return chosen_by_all(batch, comm)

    def pool_of_all(*given: Any) -> Any:
        pool = pool_around(*given)
        seen[-1]["pool"] = len(pool.ids)
        return pool

    def distinct_ids(ids: Any, comm: Comm) -> Any:
        distinct = distinct_of_all(ids, comm)
        seen.append({"chosen": len(ids.unique()), "pool": len(distinct)})
        return distinct

    def gathered(*given: Any) -> Any:
        batch = gather_batch(*given)
        seen.append({"pool": batch.numel()})
        return batch

    def summed(module: Any, *given: Any) -> None:
        table = module.encoder.tokens.weight
        own = 0 if table.grad is None else len(table.grad.indices()[0])
        sum_gradients(module, *given)
        tokens = 0 if table.grad is None else len(table.grad.indices()[0])
        seen[-1] |= {"own": own, "tokens": tokens}

    patch.setattr(modules, "chosen_by_all", chosen)
    patch.setattr(modules, "pool_around", pool_of_all)
    patch.setattr(modules, "distinct_of_all", distinct_ids)
    patch.setattr(modules, "gather_batch", gathered)
    patch.setattr(loop, "sum_gradients", summed)


def mine(comm: Comm, path: Path) -> dict[str, Any]:
    """Counts over all texts, and lists of all candidates, with the rows of all processes."""
    rng, device = torch.Generator().manual_seed(0), torch.device("cpu")
    run = Run(rng, device, comm, build_index=Exact, memory_budget=1000)
    config = SiameseConfig(**SMALL, pairs_from=2)
    parts = build_corpus(folder.load(path, comm), config, run)
    module = recipe.start_module(parts, config, run, 0)
    with torch.no_grad():
        texts = encode_all(module.encoder, parts.labels)
        tables = {
            "texts": texts,
            "vectors": encode_all(module.encoder, parts.documents),
            "centroids": mining.centroids(module.encoder, parts, texts),
            "shortlists": mining.mine_shortlists(module.encoder, parts, 6, Exact),
            "documents": mining.mine_documents(module.encoder, parts, Exact),
        }
    shared = {"pairs": parts.pairs, "idf": parts.idf, "counts": parts.counts}
    return {**shared, "shares": parts.shares, **{k: comm.gather(t) for k, t in tables.items()}}


def fitted(comm: Comm, data: Path, name: str) -> dict[str, Any]:
    """The final model, and how its mix was chosen."""
    ranker = rf.fit(WHOLE[name][0], data, comm=comm, **options(name, WHOLE))
    model = ranker.model
    facts = {"config": dict(model.config), "mixes": model.notes["mixes"]}
    if comm.size == 1:
        facts["score"] = rf.evaluate(ranker, data, metrics=["ndcg@3"])["ndcg@3"]
    return {**facts, "tensors": dict(model.tensors)}


def stop(_history: History, step: Step) -> None:
    """Send Ctrl-C in the last module of the last member, on the rank that reports."""
    if step.share is not None and step.share > 0.9 and not step.whole:
        processes.send_interrupt()


def stop_before_refit(history: History, step: Step) -> None:
    """Once the first fit has its model, when each process holds its share of the candidates."""
    if history.phase == "fit" and step.final:
        processes.send_interrupt()


def begin(comm: Comm, data: Path, out: Path) -> list[str]:
    """Start fits; each is interrupted and leaves a checkpoint."""
    out.mkdir(exist_ok=True)

    def fit(name: str) -> None:
        report = stop_before_refit if name == "refit" else stop
        how = {"out": out / name, "report": report, **options(name, WHOLE)}
        rf.fit(WHOLE[name][0], data, comm=comm, **how)

    return processes.interrupted(WHOLE, fit)


def resume_fits(comm: Comm, data: Path, out: Path) -> dict[str, Any]:
    """Models that are resumed from their checkpoints, and their metrics."""
    results = {}
    for name in WHOLE:
        how = {"out": out / name, "resume": True, **options(name, WHOLE)}
        tensors = dict(rf.fit(WHOLE[name][0], data, comm=comm, **how).model.tensors)
        score = rf.evaluate(out / name, data, metrics=["ndcg@3"])["ndcg@3"]
        results[name] = {"tensors": tensors, "score": score}
    return results


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data"
    folder.save(topics(), path)
    return path


@pytest.fixture(scope="module")
def ranks(data: Path, out: Path) -> Iterator[processes.Ranks]:
    """Results of one, two and three processes; the three resume the fits of the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PAUSE_SECONDS", loop.PAUSE_SECONDS)
        patch.setattr(bags, "MAX_GATHERED_PAIRS", 200)
        results = {
            1: [run_all(SINGLE_PROCESS, data, out)],
            2: processes.run_ranks(2, run_all, data, out),
        }
        shutil.copytree(out / "2", out / "copied")
        yield results | {3: processes.run_ranks(3, run_all, data, out)}


@pytest.mark.parametrize(("name", "size"), processes.cases(FITS))
def test_parameters_equal_one_process(name: str, size: int, ranks: processes.Ranks) -> None:
    """So do generators, lists and optimiser states; shared state is bit-identical."""
    processes.check_equals_one_process(ranks, size, name)


@pytest.mark.parametrize("size", [2, 3])
def test_each_process_holds_its_share_of_the_labels(size: int, ranks: processes.Ranks) -> None:
    rows = [LABELS * (rank + 1) // size - LABELS * rank // size for rank in range(size)]
    for name in {"pool", "hardest"} & {*processes.fits_of(FITS, size)}:
        kept = [one[name]["lengths"] for one in ranks[size]]
        tables = [key for key in kept[0] if "found" not in key]
        assert len(tables) == 4  # the refinements and their optimiser states
        for key in tables:
            assert [one[key] for one in kept] == rows


@pytest.mark.parametrize("size", [2, 3])
def test_counts_and_lists_equal_one_process(size: int, ranks: processes.Ranks) -> None:
    """So do the nearest documents and labels, up to ties."""
    expected = ranks[1][0]["mined"]
    assert len(expected["pairs"]) > 20
    assert bool((expected["documents"] >= 0).all())
    texts, centroids, vectors = (expected[key] for key in ("texts", "centroids", "vectors"))
    for one in ranks[size]:
        for key in ("pairs", "counts"):
            assert torch.equal(one["mined"][key], expected[key])
        for key in ("idf", "shares", "texts", "centroids", "vectors"):
            torch.testing.assert_close(one["mined"][key], expected[key], rtol=1e-6, atol=1e-6)
        nearest = one["mined"]["documents"].long(), expected["documents"].long()
        scores = [(texts * vectors[ids]).sum(dim=1) for ids in nearest]
        torch.testing.assert_close(*scores, rtol=0, atol=1e-5)
        clear = are_clear(vectors, [texts, centroids], 3)
        assert clear.double().mean() > 0.8
        assert torch.equal(one["mined"]["shortlists"][clear], expected["shortlists"][clear])


def are_clear(vectors: torch.Tensor, tables: list[torch.Tensor], k: int) -> torch.Tensor:
    """Which documents in train have a clear gap after their k nearest other labels, in each table.

    The lists of the other documents depend on rounding.
    """
    train = topics().split("train")
    own = torch.zeros(DOCUMENTS, LABELS, dtype=torch.bool)
    own[train.query_of_pair().long(), train.candidates.long()] = True
    scores = [(vectors @ table.T).masked_fill(own, -torch.inf) for table in tables]
    best = [some[train.counts() > 0].topk(k + 1, dim=1).values for some in scores]
    return torch.stack([some[:, k - 1] - some[:, k] > 1e-5 for some in best]).all(dim=0)


@pytest.mark.parametrize(("name", "size"), processes.cases(WHOLE))
def test_the_model_equals_one_process(name: str, size: int, ranks: processes.Ranks) -> None:
    expected = ranks[1][0]["models"][name]
    assert len(expected["mixes"]) > 1 or name == "refit"  # from the earlier fit
    for one in ranks[size]:
        result = one["models"][name]
        assert result["config"] == expected["config"]  # including the mix
        for mix, right in zip(result["mixes"], expected["mixes"], strict=True):
            assert mix == pytest.approx(right, abs=1e-6)
        check_same(result["tensors"], expected["tensors"])


def check_same(result: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Equal to 1e-5; encoders, which are stored as halves, to one unit in the last place.

    Only a single process learns thresholds, and keeps the pairs that it was fitted on.
    """
    names = [
        {key for key in one if "thresholds." not in key and key not in PAIRS}
        for one in (result, expected)
    ]
    assert names[0] == names[1]
    for key in names[0]:
        value = expected[key]
        bound = 1e-3 if value.dtype == torch.half else 1e-5
        torch.testing.assert_close(result[key], value, rtol=bound, atol=bound)


def bytes_of_step(name: str, every: list[dict[str, int]]) -> tuple[int, list[int]]:
    """Bytes that a step gathers from each rank, and of its sums; docs/reference/processes.md."""
    width, one = SMALL["width"], every[0]
    others = width**2 if name in ("few", "refreshed", "listed") else 0
    sums, gathered = [24, 4 * one["pool"] * width, 4 * one["pool"] * width], 0
    if name == "refreshed":
        sums.append(8 * one["pool"])
    else:
        size = 8 if name == "listed" else 4
        gathered += 8 + size * max(each["chosen"] for each in every)
    if name not in ("learnt", "listed"):
        gathered += 8 + 4 * max(each["own"] for each in every)
        sums.append(4 * (one["tokens"] * width + others))
    elif others:
        sums.append(4 * others)
    return gathered, sums


@pytest.mark.parametrize(
    ("name", "size"), processes.cases(FITS, ["joint", "few", "learnt", "listed", "refreshed"])
)
def test_a_step_sends_the_documented_bytes(name: str, size: int, ranks: processes.Ranks) -> None:
    steps = list(zip(*(one[name]["seen"] for one in ranks[size]), strict=True))
    assert len(steps) == COUNTED
    total = 0
    for every in steps:
        gathered, sums = bytes_of_step(name, list(every))
        total += gathered * (size - 1) + sum(2 * n * (size - 1) // size for n in sums)
    assert [one[name]["sent"] for one in ranks[size]] == [total] * size


def test_another_number_of_processes_resumes(data: Path, out: Path, ranks: processes.Ranks) -> None:
    """Two then three or one, one then three: all equal one uninterrupted process."""
    assert [one["interrupted"] for size in (1, 2) for one in ranks[size]] == [list(WHOLE)] * 3
    whole = ranks[1][0]["models"]
    resumed = [each for one in ranks[3] for each in one["resumed"]]
    for results in (resume_fits(SINGLE_PROCESS, data, out / "copied"), *resumed):
        assert results.keys() == WHOLE.keys()
        for name, result in results.items():
            expected = whole[name]
            check_same(result["tensors"], expected["tensors"])
            assert result["score"] == pytest.approx(expected["score"], abs=1e-6)
            assert expected["score"] > 0.3
