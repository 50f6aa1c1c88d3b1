"""SiameseXML: texts of both sides in one space, and a refinement for each candidate.

Training runs through modules, each a stage of epochs, as in [siamesexml]:

    I    the encoder alone: a candidate is its text
    III  the refinements alone: a candidate is its text plus a free vector
    IV   both

Module II is the mean of a candidate's documents. The final vector of a candidate mixes the three,
with its popularity as one more column. A search is a search by inner product, with the extra scores
of ``words``.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.methods.text import linear
from rankfold.methods.text.siamesexml import on_disk, words
from rankfold.methods.text.siamesexml.config import (
    C,
    ModulesConfig,
    SiameseConfig,
    fill_defaults,
    from_model,
)
from rankfold.methods.text.siamesexml.corpus import ENCODE_BLOCK, Corpus, build_corpus
from rankfold.methods.text.siamesexml.documents import add_documents
from rankfold.methods.text.siamesexml.members import MIXED, make_encoder, saved_encoders
from rankfold.methods.text.siamesexml.mining import centroids
from rankfold.methods.text.siamesexml.mix import (
    choose_mix,
    documents_of,
    mixture,
    open_model,
    released,
)
from rankfold.methods.text.siamesexml.modules import Siamese, Stage, stages_of, task_of, training
from rankfold.methods.text.siamesexml.start import started
from rankfold.training.gradient_sync import refuse_batch_norm
from rankfold.training.loop import Task, Training, seed_of, train
from rankfold.types import Dataset, Method, Model, Range, Run, Space, Step, history_tensors


def fit(name: str, data: Dataset, config: SiameseConfig, run: Run) -> Iterator[Step]:
    """All stages, then the mix."""
    assert run.build_index is not None
    n_documents = int(sum_over_ranks((data.split("train").counts() > 0).sum(), run.comm))
    source = on_disk.open_source(data, config, run)
    if source is not None:
        config = replace(config, width=source.width)
    config = fill_defaults(config, n_documents)
    build_index, corpus = run.build_index, build_corpus(data, config, run)
    corpus = on_disk.with_source(corpus, source)
    done = yield from train_stages(
        config,
        run,
        start=lambda member: start_module(corpus, config, run, member),
        task=lambda module, stage: task_of(module, stage, corpus, config, build_index),
        training=training,
        export=lambda module: export_member(module, corpus),
        divided=MIXED,
    )
    found = yield from _words(data, config, run, done)
    model = _build_model(name, config, done, corpus, run, found)
    yield last_step(config, model, ("candidates",))


def _words(
    data: Dataset, config: SiameseConfig, run: Run, done: Mapping[str, Tensor]
) -> Generator[Step, None, words.Words | None]:
    """The words beside the vectors, if they are wanted."""
    if not words.are_wanted(data, config, run):
        return None
    before, epochs = "words.", sum(stage.epochs for stage in stages_of(config))
    where = {"member": torch.tensor(config.members), "stage": torch.tensor(0), **done}
    saved = {key: one for key, one in (run.resume or {}).items() if key.startswith(before)}
    work = words.learn(data, run, {key.removeprefix(before): one for key, one in saved.items()})
    while True:
        try:
            learner = next(work)
        except StopIteration as end:
            found: words.Words = end.value
            return found

        def state(own: linear.Learner = learner) -> dict[str, Tensor]:
            return {**where, **{before + key: one for key, one in own.state().items()}}

        number = max(1, config.members * epochs)
        yield Step(number, 0.0, None, state, final=False, whole=False, stage="words")


M = TypeVar("M", bound=nn.Module)


def train_stages(
    config: C,
    run: Run,
    *,
    start: Callable[[int], M],
    task: Callable[[M, Stage], Task],
    training: Callable[[Stage, C], Training],
    export: Callable[[M], dict[str, Tensor]],
    divided: tuple[str, ...] = (),
) -> Generator[Step, None, dict[str, Tensor]]:
    """Train all stages of all members; returns the exports of the members, by number.

    A member trains the module that ``start`` makes for its number. ``task`` and ``training`` are
    those of a stage. The exported tables named in ``divided`` are divided among processes.
    """
    stages, resume, done = stages_of(config), run.resume, _finished_members(run)
    first = (int(resume["member"]), int(resume["stage"])) if resume is not None else (0, 0)
    epochs = sum(stage.epochs for stage in stages)
    for member in range(first[0], config.members):
        module = start(member)
        for place, stage in enumerate(stages):
            if (member, place) < first:
                continue
            before = member * epochs + sum(earlier.epochs for earlier in stages[:place])
            seed = seed_of(run, f"member {member}, {stage.name}")
            stage_run = replace(run, rng=torch.Generator().manual_seed(seed), resume=resume)
            resume = None  # the checkpoint belongs to the first stage that is resumed
            where = {"member": torch.tensor(member), "stage": torch.tensor(place), **done}
            several = f"member {member + 1} of {config.members}, " if config.members > 1 else ""
            for step in train(task(module, stage), training(stage, config), stage_run):
                held = [step.state]
                then = _next_work(stages[place + 1 :], config) if step.final else ""
                share = before + (step.share or 0.0) * stage.epochs
                yield step._replace(
                    number=before + step.number,
                    final=False,
                    share=share / (config.members * epochs),
                    state=partial(lambda held, own: {**held[0](), **own}, held, where),
                    divided=[*step.divided, *_divided_keys(done, divided)],
                    stage=several + stage.name + then,
                )
                held.clear()  # who holds the step must not hold the optimiser's tables
                del step
        done |= {f"{member}.{key}": value for key, value in export(module).items()}
        first = (member + 1, 0)
    return done


def _next_work(stages: list[Stage], config: ModulesConfig) -> str:
    """The work between a stage and the next one, for progress lines; it may take a while."""
    if not stages:
        return ", then vectors of all"
    by_shortlists = getattr(config, "negatives", "hardest") == "hardest"
    return ", then shortlists (module II)" if by_shortlists else ""


def _divided_keys(done: Mapping[str, Tensor], names: tuple[str, ...]) -> list[str]:
    """The keys of the members' tables with these names."""
    return [key for key in done if key.split(".", 1)[1] in names]


def last_step(config: ModulesConfig, model: Model, divided: Collection[str] = ()) -> Step:
    """The step after all epochs. Nothing is resumed from it but a refit, which begins anew."""
    epochs = sum(stage.epochs for stage in stages_of(config))
    where = {"member": torch.tensor(config.members), "stage": torch.tensor(0)}
    number = config.members * epochs + 1
    options: dict[str, Any] = {"final": True, "divided": divided, "stage": "the mix"}
    return Step(number, 0.0, model, lambda: where, **options)


def start_module(corpus: Corpus, config: SiameseConfig, run: Run, member: int) -> Siamese:
    """The untrained encoder, and refinements of 0."""
    if corpus.source is not None:
        encoder = on_disk.load(config, corpus.source)
        return Siamese(encoder, len(corpus.labels), config.width).to(run.device)
    rng = torch.Generator().manual_seed(seed_of(run, f"vectors of member {member}"))
    tokens = start_tokens(corpus, config, rng)
    encoder = make_encoder(config.encoder, tokens, seed_of(run, f"encoder of member {member}"))
    if corpus.comm.size > 1:
        refuse_batch_norm(config.encoder, encoder)
    module = Siamese(encoder, len(corpus.labels), config.width).to(run.device)
    return module if run.start is None else started(module, corpus, run.start, member)


def start_tokens(corpus: Corpus, config: ModulesConfig, rng: torch.Generator) -> Tensor:
    """Token vectors from the file, if there is one, else random ones of about length 1; [V + P, D].

    With random ones the cosine of two texts is nearly that of their bags.
    """
    tokens: Tensor = torch.randn(len(corpus.idf), config.width, generator=rng) * config.width**-0.5
    if corpus.token_vectors is not None:
        tokens[corpus.token_vectors.tokens] = corpus.token_vectors.vectors
    return tokens


def notes_of(
    corpus: Corpus, mixes: list[dict[str, float]], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """The notes of a model: how many tokens had vectors, and the scores of all mixes."""
    vectors: dict[str, Any] = (
        {} if corpus.token_vectors is None else {"vectors": corpus.token_vectors.notes}
    )
    if corpus.source is not None:
        vectors |= corpus.source.notes()
    scores = [mix["score"] for mix in mixes if chosen.items() <= mix.items()]
    return {**vectors, "mixes": mixes, "score": scores[0]} if mixes else vectors


def _finished_members(run: Run) -> dict[str, Tensor]:
    """The exports of finished members in the checkpoint of a resumed run."""
    if run.resume is None:
        return {}
    members = tuple(f"{number}." for number in range(int(run.resume["member"])))
    kept = {key: tensor for key, tensor in run.resume.items() if key.startswith(members)}
    return {key: tensor.to(run.device) for key, tensor in kept.items()}


@torch.no_grad()
def export_member(module: Siamese, corpus: Corpus) -> dict[str, Tensor]:
    """A member's encoder, and three vectors in float16 for each candidate here.

    Candidates are encoded in blocks: there is no table in float32. Refined vectors take the place
    of the refinements, which are not needed any more.
    """
    module.eval()
    refined = module.refinements.weight.detach()
    texts = torch.empty_like(refined)
    for rows in torch.arange(len(texts), device=texts.device).split(ENCODE_BLOCK):
        block = slice(int(rows[0]), int(rows[-1]) + 1)
        vectors = module.encoder(corpus.labels.part(block.start, block.stop))
        texts[block], refined[block] = vectors.half(), module.refined(vectors, rows).half()
    return {
        "texts": texts,
        "refined": refined,
        "centroids": centroids(module.encoder, corpus, texts),
        **{key: tensor.clone() for key, tensor in module.encoder.state_dict().items()},
    }


def _build_model(
    name: str,
    config: SiameseConfig,
    done: dict[str, Tensor],
    corpus: Corpus,
    run: Run,
    found: words.Words | None,
) -> Model:
    """The model, with the mix that is best on validation; its tables leave ``done``."""
    documents = None if found is None else documents_of(done, config, corpus)
    both = None if found is None or documents is None else (found, documents)
    mix, mixes = choose_mix(done, config, corpus, run, both)
    of_words: dict[str, Tensor] = {}
    if found is not None and (mix.linear_weight or mix.neighbour_weight):
        factors = mix.factors(words.bands_of(corpus.own_counts), found.classifiers.bias)
        of_words = words.to_tensors(found, factors, documents if mix.neighbour_weight else None)
    return Model(
        name,
        asdict(replace(config, **mix._asdict())),
        {
            **saved_encoders(done, config),
            **on_disk.frozen_tensors(corpus.source),
            **(history_tensors(corpus.rows) if corpus.comm.size == 1 else {}),
            **of_words,
            "pairs": corpus.pairs,
            "rarity": corpus.idf,
            "candidates": mixture(
                released(done), mix, config.members, corpus.own_counts, getattr(torch, config.table)
            ),
        },
        notes_of(corpus, mixes, mix._asdict()),
    )


class _EnsembleConfig(SiameseConfig):
    """Three members."""

    members: int = 3


class _PaperConfig(SiameseConfig):
    """As in the paper; "open" marks what it leaves open."""

    width: int = 300
    pairs_from: int | None = 5  # open
    encoder_epochs: int = 20  # open
    classifier_epochs: int = 20
    joint_epochs: int | None = 0
    batch_size: int | None = 4096  # candidates in module I
    lr: float | None = 0.005
    classifier_batch_size: int | None = 256  # documents
    classifier_lr: float | None = 0.0005
    thinning: float = 0.0
    negatives: Literal["pool", "hardest"] = "hardest"
    encoder: str = "residual"
    popularity_weight: float | None = 0.0
    linear_weight: float | None = 0.0
    neighbour_weight: float | None = 0.0


SPACE: Space = {
    "temperature": Range(0.03, 0.15, log=True),
    "thinning": Range(0.0, 0.4),
    "joint_epochs": Range(2, 12, whole=True),
}
MODULES_SPACE: Space = {
    "lr": Range(0.001, 0.03, log=True),
    "classifier_lr": Range(5e-5, 5e-3, log=True),
}


def describe_mix(model: Model) -> str | None:
    """The mix that was selected on validation, in words."""
    mixes = model.notes.get("mixes")
    if not mixes:
        return None
    names = [name for name in mixes[0] if name in model.config]
    mix = ", ".join(f"{name} {float(model.config[name]):g}" for name in names)
    score = f"validation {model.notes['metric']} {model.notes['score']:.4f}"
    return f"chosen from {len(mixes)} mixes, {score}: {mix}"


def method(name: str, config: type[SiameseConfig], summary: str, space: Space = SPACE) -> Method:
    return Method(
        summary,
        config,
        "texts",
        partial(fit, name),
        open_model,
        ("texts",),
        paper="siamesexml",
        self_tuning=True,
        read=on_disk.read,
        start=from_model,
        add_documents=add_documents,
        distributed=True,
        space=space,
        per_query=words.PER_QUERY,
        per_candidate=("candidates", *words.PER_CANDIDATE),
        candidate_lists=words.LISTS_OF_CANDIDATES,
        describe=describe_mix,
    )


SIAMESEXML = method(
    "siamesexml", SiameseConfig, "texts of both sides in one space, refined by classifiers"
)
SIAMESEXML_PAPER = method(
    "siamesexml-paper", _PaperConfig, "SiameseXML by the paper's modules and losses", MODULES_SPACE
)
SIAMESEXML_3 = method("siamesexml-3", _EnsembleConfig, "three siamesexml models, scores averaged")
