"""The text encoders of the members of a model: new, saved and opened again."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rankfold.encoders.bag_encoder import BUILT_IN, TEXT_ENCODERS
from rankfold.encoders.frozen import Source
from rankfold.errors import UserError
from rankfold.methods.text.siamesexml import on_disk
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import encode_all
from rankfold.training.loop import seeded
from rankfold.types import Texts

MIXED = ("refined", "texts", "centroids")  # the vectors of a candidate; no tensor of an encoder


@torch.no_grad()
def encode(encoders: list[nn.Module], bags: Texts) -> Tensor:
    """Member beside member; [n, D]."""
    return torch.cat([encode_all(encoder, bags) for encoder in encoders], dim=1)


def encoders_of(
    tensors: Mapping[str, Tensor],
    config: SiameseConfig,
    n_tokens: int,
    source: Source | None = None,
) -> list[nn.Module]:
    """The members' encoders, from saved tensors; nothing is copied.

    A built-in encoder starts from one zero, expanded: a table of all tokens would be filled in
    vain. Another encoder may write into its start. One from disk is built by its source.
    """
    if source is not None:
        members = range(config.members)
        return [on_disk.rebuild(config, source, tensors, number) for number in members]
    encoders = []
    for number in range(config.members):
        start = torch.zeros(1, 1).expand(n_tokens, config.width)
        start = start if config.encoder in BUILT_IN else start.contiguous()
        encoder = make_encoder(config.encoder, start, 0)
        state = {name: tensors[f"{number}.{name}"] for name in encoder.state_dict()}
        if "mixing" in state and config.encoder in BUILT_IN:
            state["mixing"] = state["mixing"].float()
        encoder.load_state_dict(state, assign=True)
        encoders.append(encoder.eval())
    return encoders


def make_encoder(name: str, start: Tensor, seed: int) -> nn.Module:
    """An encoder by name; its draws, also from torch's global generator, follow the seed."""
    with seeded(seed, torch.device("cpu")):
        encoder = TEXT_ENCODERS[name](start, torch.Generator().manual_seed(seed))
    state = encoder.state_dict()
    if unsaved := [name for name, _ in encoder.named_buffers() if name not in state]:
        raise UserError(
            f"encoder={name} has a buffer {unsaved[0]!r} that is not saved with a model",
            hint="register the buffer as persistent",
        )
    if reserved := [one for one in MIXED if one in state]:
        raise UserError(
            f"encoder={name} has a tensor with the reserved name {reserved[0]!r}",
            hint="rename the tensor",
        )
    return encoder


def saved_encoders(done: Mapping[str, Tensor], config: SiameseConfig) -> dict[str, Tensor]:
    """The encoders' tensors that a model saves; those of built-in encoders as float16."""
    tensors = {key: tensor for key, tensor in done.items() if key.split(".", 1)[1] not in MIXED}
    if config.encoder not in BUILT_IN:
        return tensors
    return {key: tensor.half() for key, tensor in tensors.items()}
