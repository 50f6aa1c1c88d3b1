"""The one gradient loop: an iterator of epochs that can stop and resume anywhere.

All randomness follows from the seed: the parameters; the order of an epoch, by its number; the
draws, by a generator whose state is saved; and the draws of a custom module from torch's global
generator, by the number of the step. So a resumed run equals an uninterrupted one to the bit, on a
CPU with the same number of threads.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from rankfold.config import Settings, setting
from rankfold.errors import UserError
from rankfold.training import optimisers
from rankfold.training.batches import Batches
from rankfold.training.gradient_sync import UNDIVIDED, Sides, own_rows, sum_gradients
from rankfold.training.optimisers import OPTIMISERS
from rankfold.training.schedules import SCHEDULES, rate
from rankfold.types import Model, Run, Step

PAUSE_SECONDS = 1.0  # seconds of training after which a step inside an epoch is yielded
_LOSS_CHECK_BATCHES = 64  # batches between two checks of the losses: a check waits for the GPU


class Training(Settings):
    """Settings of every method that is trained by gradients."""

    width: int = setting(64, at_least=1, help="length of the vectors")
    epochs: int = setting(50, at_least=1, help="largest number of epochs; validation stops earlier")
    lr: float = setting(0.01, above=0, help="learning rate")
    optimiser: str = setting("auto", choices=OPTIMISERS, help="auto: adam, or sparse-adam if large")
    weight_decay: float | None = setting(1e-5, at_least=0, help="weight decay of the optimiser")
    schedule: str = setting("constant", choices=SCHEDULES, help="how the learning rate changes")
    warmup: float = setting(0.0, at_least=0, help="epochs over which the rate rises linearly")
    clip: float | None = setting(None, above=0, help="largest norm of a gradient; none: any")
    precision: Literal["float32", "bfloat16"] = setting("float32", help="bfloat16 needs CUDA")
    weights: Literal["none", "grade"] = setting("none", help="grade: draw positives by grade")


class Memory(Protocol):
    """State beside the parameters that outlives a step, such as a sampler's."""

    def state(self) -> dict[str, Tensor]: ...
    def load(self, state: Mapping[str, Tensor]) -> None: ...


class EmptyMemory:
    """A ``Memory`` without state."""

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        assert not state


EMPTY_MEMORY = EmptyMemory()


@dataclass(frozen=True, slots=True)
class Task:
    """A module, its batches and its losses."""

    module: nn.Module
    batches: Batches
    losses: Callable[[Any, torch.Generator], Tensor]  # of a batch, with a generator for draws; [B]
    export: Callable[[], Model | None]
    memory: Memory = EMPTY_MEMORY
    weights: Callable[[Any], Tensor] | None = None  # of the losses in a batch's mean; None: equal
    count: float = 1.0  # the equal weight; less if several processes have the same losses
    sides: Sides = UNDIVIDED  # of the module's tables
    batch_candidates: Callable[[], Tensor | None] = lambda: None  # of all processes; None: all
    divided: tuple[str, ...] = ()  # names in the memory's state of tables divided among processes
    factors: Mapping[nn.Parameter, float] = field(default_factory=dict)  # of learning rates
    measure: Callable[[], Mapping[str, float]] = dict  # figures of an epoch, for the log of a fit
    gradient_scale: float = 1.0  # of sparse gradients: of tables in half precision
    draws_elsewhere: bool = False  # a custom module, which may draw from torch's global generator


def train(task: Task, config: Training, run: Run) -> Iterator[Step]:
    """Train epoch after epoch. Steps inside a long epoch are only places to stop at."""
    loop = Loop(task, config, run)
    if run.resume is not None:
        loop.load(run.resume)
    while loop.epoch < config.epochs:
        yield from loop.finish_epoch()


class Loop:
    """The state of training."""

    def __init__(self, task: Task, config: Training, run: Run) -> None:
        self.task, self.config, self.run = task, config, run
        self.half = config.precision == "bfloat16"
        if self.half and run.device.type != "cuda":
            there = ", or fit with --device cuda"
            missing = ", the default: this machine has no CUDA device"
            raise UserError(
                f"precision=bfloat16 needs a CUDA device, got {run.device.type}",
                hint=f"set precision=float32{there if torch.cuda.is_available() else missing}",
            )
        self.draws = torch.Generator(run.device).manual_seed(seed_of(run, "draws"))
        assert config.weight_decay is not None
        self.decay = config.weight_decay
        self.optimisers = optimisers.make(
            config.optimiser, task.module, config.lr, self.decay, task.factors
        )
        self.epoch, self.place = 0, 0  # epochs done, batches done of the next epoch
        self.total, self.weight = 0.0, 0.0  # of the epoch so far
        self.votes = torch.zeros(())  # number of processes that want a pause after this batch
        self.unchecked: list[tuple[Tensor, Tensor]] = []  # losses and weights not checked yet

    def finish_epoch(self) -> Iterator[Step]:
        """Train to the end of the epoch. The last step yielded is the epoch's."""
        seed = seed_of(self.run, f"order of epoch {self.epoch}")
        rng = torch.Generator(self.run.device).manual_seed(seed)
        order, count = self.task.batches.order(rng), len(self.task.batches)
        began = perf_counter()
        while self.place < count:
            batch = self.task.batches.take(order, self.place)
            self.learn(batch, is_long=perf_counter() - began > PAUSE_SECONDS)
            self.place += 1
            if len(self.unchecked) == _LOSS_CHECK_BATCHES or self.place == count:
                self.check_losses()
            if self.is_long(perf_counter() - began) and self.place < count:
                self.check_losses()
                yield self.pause()
                began = perf_counter()
        model = self.task.export()
        self.epoch, self.place = self.epoch + 1, 0
        loss = self.total / max(self.weight, 1.0)
        self.total = self.weight = 0.0
        final = self.epoch == self.config.epochs
        done = Step(self.epoch, loss, model, self.state, final, updates=count)
        done = done._replace(measured=self.task.measure())
        yield done._replace(share=self.share, divided=self.divided)

    def learn(self, batch: Any, *, is_long: bool = False) -> None:
        """Train on one batch: one mean, one step of the optimisers."""
        done = self.epoch + self.place / len(self.task.batches)
        schedule, config = SCHEDULES[self.config.schedule], self.config
        factor = rate(schedule, done, config.epochs, config.warmup)
        optimisers.set_rate(self.optimisers, config.lr * factor)
        with torch.autocast(self.run.device.type, torch.bfloat16, enabled=self.half):
            values = self.losses(batch)
        weigh, count = self.task.weights, self.task.count
        weights = torch.full_like(values, count) if weigh is None else weigh(batch).to(values)
        total, weight = (values * weights).sum(), weights.sum()
        batch_total, weight = self.sum_over_ranks(total, weight, is_long=is_long)
        (total / weight).backward()
        module, sides, comm = self.task.module, self.task.sides, self.run.comm
        optimisers.coalesce(module)
        sum_gradients(module, sides, self.task.batch_candidates(), comm)
        if config.clip is not None:
            optimisers.clip(module, config.clip, sides, comm)
        optimisers.decay_rows(self.task.module, self.decay, self.task.gradient_scale)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.unchecked.append((batch_total.detach() / weight, weight.detach()))

    def losses(self, batch: Any) -> Tensor:
        """The losses of a batch, [B]. Draws from torch's global generators follow the seed."""
        if not self.task.draws_elsewhere:
            return self.task.losses(batch, self.draws)
        place = f"step {self.place} of epoch {self.epoch}, rank {self.run.comm.rank}"
        with seeded(seed_of(self.run, place), self.run.device):
            return self.task.losses(batch, self.draws)

    def sum_over_ranks(
        self, total: Tensor, weight: Tensor, *, is_long: bool
    ) -> tuple[Tensor, Tensor]:
        """The sums of losses and weights over all processes, which also vote on a pause."""
        if self.run.comm.size == 1:
            return total, weight
        vote = torch.full_like(total, is_long)
        sums = torch.stack([total, weight, vote]).detach().double()
        total_of_all, weight, self.votes = self.run.comm.sum(sums)
        return total_of_all.to(total), weight.to(total)

    def is_long(self, seconds: float) -> bool:
        """Whether a step inside the epoch is due. The same on all processes."""
        return seconds > PAUSE_SECONDS if self.run.comm.size == 1 else bool(self.votes > 0)

    def check_losses(self) -> None:
        """Add up the losses since the last check. A loss that is not finite ends the fit."""
        if not self.unchecked:
            return
        columns = zip(*self.unchecked, strict=True)
        losses, weights = (torch.stack(column).double().cpu() for column in columns)
        if not bool(losses.isfinite().all()):
            first = int((~losses.isfinite()).nonzero()[0])
            number = self.place - len(losses) + first + 1
            raise UserError(
                f"the loss became {float(losses[first])} at batch {number} of epoch "
                f"{self.epoch + 1}",
                hint=f"lower lr, now {self.config.lr:g}, or set clip=1",
            )
        self.total += float(losses @ weights)
        self.weight += float(weights.sum())
        self.unchecked.clear()

    def pause(self) -> Step:
        """A place to stop at, inside an epoch."""
        loss, number = self.total / max(self.weight, 1.0), self.epoch + 1
        step = Step(number, loss, None, self.state, final=False, whole=False)
        return step._replace(share=self.share, divided=self.divided)

    @property
    def share(self) -> float:
        done = self.epoch + self.place / max(1, len(self.task.batches))
        return done / self.config.epochs

    @property
    def divided(self) -> list[str]:
        """Names in the state of tables that are divided among processes."""
        sides, named = self.task.sides, self.task.module.named_parameters()
        names = [f"module.{name}" for name, one in named if sides.is_divided(one)]
        kept = optimisers.names_of(self.optimisers, sides.divided)
        names += [f"memory.{name}" for name in self.task.divided]
        return names + [f"optimiser.{name}" for name in kept]

    def state(self) -> dict[str, Tensor]:
        """The whole state, as plain tensors."""
        sums = [self.total, self.weight]
        return {
            "epoch": torch.tensor(self.epoch),
            "place": torch.tensor(self.place),
            "sums": torch.tensor(sums, dtype=torch.float64),
            "draws": self.draws.get_state(),
            **_under("module", self.task.module.state_dict()),
            **_under("optimiser", optimisers.state(self.optimisers)),
            **_under("memory", self.task.memory.state()),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Resume from ``state``."""
        self.epoch, self.place = int(state["epoch"]), int(state["place"])
        self.total, self.weight, *_ = state["sums"].tolist()
        if len(state["draws"]) != len(self.draws.get_state()):
            raise UserError(
                "the checkpoint was made on another kind of device",
                hint="resume on the same kind: --device cpu or cuda",
            )
        self.draws.set_state(state["draws"].cpu())
        module, comm, saved = self.task.module, self.run.comm, _below("module", state)
        if saved.keys() != module.state_dict().keys():
            raise UserError(
                "the checkpoint has other parameters: it was made by another version",
                hint="start again without --resume",
            )
        for name, tensor in module.state_dict().items():
            saved[name] = own_rows(saved[name], tensor, comm)
        module.load_state_dict(saved)
        optimisers.load(self.optimisers, _below("optimiser", state), comm)
        self.task.memory.load(_below("memory", state))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, of the CPU and a device; restore them afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for one in devices:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(seed)
        yield


def seed_of(run: Run, purpose: str) -> int:
    """A separate seed for each purpose and each run's seed."""
    text = f"{run.rng.initial_seed()}: {purpose}"
    return int.from_bytes(sha256(text.encode()).digest()[:7], "big")


def _under(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{key}": tensor.detach() for key, tensor in tensors.items()}


def _below(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{name}."
    return {key[len(start) :]: value for key, value in tensors.items() if key.startswith(start)}
