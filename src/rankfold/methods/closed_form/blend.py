"""Two methods as one: their scores are added, with weights chosen on validation.

Both are fitted on the same pairs and choose their own settings. The scores of each are divided by
their standard deviation over the candidates, query by query, so that the weights mean the same for
any methods and any history.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rankfold import config as settings_of
from rankfold.config import Settings, setting
from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError, find
from rankfold.kernels.threads import limited_threads
from rankfold.methods.closed_form.all_scores import Scores, scores_of, search
from rankfold.methods.closed_form.racing import (
    choice_notes,
    choose,
    describe_choice,
    histories_of,
    measure_scores,
    stages,
)
from rankfold.solvers.progress import Work, part, stops
from rankfold.training.early_stopping import History
from rankfold.types import (
    Dataset,
    Interactions,
    Judge,
    Method,
    Model,
    Opened,
    Run,
    Step,
    history_tensors,
)

SHARES = tuple(round(0.1 * tenths, 1) for tenths in range(11))  # tried on validation
DEFAULT_SHARE = 0.5
_SHARE = 0.45  # of each method in the time of a fit
_PATIENCE = 3  # steps of a method that does not choose its own
_HISTORY = ("queries", "offsets", "candidates_of_queries", "grades_of_queries")
_NUMBERS = 6  # of all scores at a time: of both parts, their sum and what they are made from
_MOST_QUERIES = 512  # at a time


class Config(Settings):
    first: str = setting("rg2", help="a method that answers histories")
    second: str = setting("ease", help="another method that answers histories")
    settings: str = setting("{}", help='settings of both methods, as JSON: {"rg2": {"rank": 64}}')
    width: int = setting(512, at_least=1, help="length of the vectors, if a method has them")
    share: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="weight of the second method's scores; none: chosen on validation",
    )
    path_queries: int = setting(400, at_least=1, help="validation queries that score the shares")

    def __post_init__(self) -> None:
        settings_of.check(self)
        if self.first == self.second:
            raise UserError(
                f"blend needs two methods, got {self.first} twice",
                hint="choose another method for one of them",
            )
        for name, values in self.given.items():
            if name not in (self.first, self.second) or not isinstance(values, dict):
                raise UserError(
                    f"`settings` has {name!r}, which is not a method of this blend",
                    hint=f"blended are {self.first} and {self.second}",
                )

    @property
    def given(self) -> dict[str, dict[str, Any]]:
        """The settings of each method."""
        try:
            given = json.loads(self.settings)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise UserError(
                f"`settings` must be JSON, got {self.settings}",
                hint='write --set \'settings={"rg2": {"rank": 64}}\'',
            )
        return given


def blend_of(methods: Mapping[str, Method]) -> Method:
    """The method that blends two of ``methods``."""
    return Method(
        summary="the weighted sum of two methods' scores, by default of rg2 and ease",
        config=Config,
        data_kind="interactions",
        fit=partial(_fit, methods),
        open=partial(_open, methods),
        answers=("histories",),
        own_search=True,
        self_tuning=True,
        describe=partial(describe_choice, names=("share",)),
    )


def _fit(methods: Mapping[str, Method], data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Both methods, then their shares: one step, with places to stop at."""
    parts, run = [], replace(run, resume=None)  # it starts again
    for place, name in enumerate((config.first, config.second)):
        work = part(
            _fit_part(methods, name, data, config, run), place * _SHARE, (place + 1) * _SHARE
        )
        parts.append((yield from stops(work)))
    yield from blend_models(methods, parts, data, config, run)


def blend_models(
    methods: Mapping[str, Method], parts: Sequence[Model], data: Dataset, config: Config, run: Run
) -> Iterator[Step]:
    """The blend of two models that were fitted on ``data``: one step."""
    rows = data.split("train").to(run.device)
    choice = part(_choose(methods, parts, data, config, run), 2 * _SHARE, 1)
    share, notes = yield from stops(choice)
    tensors = {
        f"{place}.{name}": tensor
        for place, one in zip(("first", "second"), parts, strict=True)
        for name, tensor in one.tensors.items()
        if name not in _HISTORY
    }
    chosen = {one.method: dict(one.config) for one in parts}
    settings = asdict(replace(config, settings=json.dumps(chosen), share=share))
    notes |= {"parts": {one.method: dict(one.notes) for one in parts}}
    model = Model("blend", settings, {**tensors, **history_tensors(rows)}, notes)
    yield Step(1, 0.0, model, dict, final=True)


def find_part(methods: Mapping[str, Method], name: str) -> Method:
    """A method by name; a UserError if it cannot be blended."""
    method = find(methods, name, "method")
    if "histories" not in method.answers or method.data_kind != "interactions" or name == "blend":
        able = [n for n, m in methods.items() if "histories" in m.answers and n != "blend"]
        raise UserError(
            f"{name} cannot be blended: it does not answer histories",
            hint=f"blend two of {', '.join(able)}",
        )
    return method


def with_sweeps(model: Model, number: int) -> Model:
    """The model with the sweep that validation chose in its settings: a refit stops there."""
    if "sweeps" not in model.config:
        return model
    return replace(model, config={**model.config, "sweeps": number})


def _fit_part(
    methods: Mapping[str, Method], name: str, data: Dataset, config: Config, run: Run
) -> Work[Model]:
    """The model of one method: of its best step, if it is not self-tuning."""
    method = find_part(methods, name)
    known = {one.name for one in fields(method.config)}
    given = {"width": config.width} if "width" in known else {}
    settings = settings_of.build(method.config, given | config.given.get(name, {}))
    history = History()
    with limited_threads(own=method.own_threads):
        for step in method.fit(data, settings, run):
            if step.whole:
                score = None
                if step.model is not None and run.validate is not None and not method.self_tuning:
                    score = run.validate(step.model)
                history.note(step, score)
                if history.is_over(step, _PATIENCE):
                    break
            yield _share_of(step, settings)
        assert history.model is not None
        model = with_sweeps(history.model, history.number)
        if method.finalize is not None:
            model = method.finalize(model, data.split("train").to(run.device), run)
    return model


def _share_of(step: Step, settings: Any) -> float:
    """The share of a method's work that is done after a step, about."""
    if step.share is not None:
        return step.share
    most = getattr(settings, "sweeps", getattr(settings, "epochs", None))
    return 1.0 if most is None else min(1.0, step.number / most)


def _choose(
    methods: Mapping[str, Method], parts: Sequence[Model], data: Dataset, config: Config, run: Run
) -> Work[tuple[float, dict[str, Any]]]:
    """The share of the second method, and notes on the choice."""
    if config.share is not None:
        return config.share, {}
    judge = run.judge
    if judge is None or sum_over_ranks(len(judge.queries), run.comm) == 0:
        return DEFAULT_SHARE, {"chosen_by": "the defaults"}
    both = [_scaled(scores_of(one, methods[one.method].open(one))) for one in parts]
    rows = data.split("train").to(run.device)
    values: dict[float, list[Tensor]] = {}
    share = yield from _best_share(judge, both, rows, data.given, config.path_queries, run, values)
    return share, choice_notes(values, share, lambda one: {"share": one})


def _best_share(
    judge: Judge,
    both: Sequence[Scores],
    rows: Interactions,
    given: Interactions | None,
    n_queries: int,
    run: Run,
    values: dict[float, list[Tensor]],
) -> Work[float]:
    """The best of ``SHARES``, or the mean of those that may be. ``values`` get their metric."""
    every = list(stages(judge, n_queries, run.comm, None))
    histories = histories_of(every, rows, given)
    most = max(1, min(_MOST_QUERIES, run.memory_budget // (4 * _NUMBERS * rows.n_candidates)))

    def measure(shares: Sequence[float], stage: int) -> dict[float, Tensor]:
        def scores(some: Sequence[float], own: slice) -> Iterator[tuple[float, Tensor]]:
            first, second = (of(histories[stage].part(own.start, own.stop)) for of in both)
            for share in some:
                yield share, torch.lerp(first, second, share)

        return measure_scores(judge, every[stage], shares, most, scores)

    return (yield from choose(SHARES, values, measure, len(every), _middle))


def _middle(weights: Mapping[float, float]) -> float:
    return round(
        sum(share * weight for share, weight in weights.items()) / sum(weights.values()), 3
    )


def _open(methods: Mapping[str, Method], model: Model) -> Opened:
    both, opened, settings = [], [], json.loads(model.config["settings"])
    for place in ("first", "second"):
        name = model.config[place]
        tensors = {
            key.removeprefix(f"{place}."): tensor
            for key, tensor in model.tensors.items()
            if key.startswith(f"{place}.")
        }
        own = Model(name, settings[name], tensors, model.notes["parts"][name])
        opened.append(methods[name].open(own))
        both.append(scores_of(own, opened[-1]))

    def scores(rows: Interactions) -> Tensor:
        first, second = (_scaled(of)(rows) for of in both)
        return torch.lerp(first, second, share)

    def parts(rows: Interactions, ids: Tensor) -> Tensor:
        """What each pair of one history adds, over the standard deviation of the scores."""
        total = torch.zeros(rows.n_pairs, len(ids), device=ids.device)
        for of, one, weight in zip(both, opened, (1 - share, share), strict=True):
            assert one.parts is not None
            spread = float(of(rows).float().std(correction=0))
            total += one.parts(rows, ids) * (weight / spread if spread > 0 else 0.0)
        return total

    share = model.config["share"]
    explains = all(one.parts is not None for one in opened)
    own_parts = parts if explains else None
    return Opened(search_histories=partial(search, scores), scores=scores, parts=own_parts)


def _scaled(scores: Scores) -> Scores:
    """The scores over their standard deviation; zeros where all are equal."""

    def scaled(rows: Interactions) -> Tensor:
        filled = rows.counts().nonzero()[:, 0]
        if len(filled) == 0:
            return torch.zeros(rows.n_queries, rows.n_candidates, device=rows.offsets.device)
        result = scores(rows.select(filled)).float()
        spread = result.std(dim=1, keepdim=True, correction=0)
        result /= torch.where(spread > 0, spread, torch.inf)
        if len(filled) == rows.n_queries:
            return result
        every = result.new_zeros(rows.n_queries, rows.n_candidates)
        return every.index_copy_(0, filled, result)

    return scaled
