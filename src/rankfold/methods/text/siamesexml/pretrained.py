"""SiameseXML with a pretrained encoder: from a folder into a fit, and from a model out again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from rankfold.data.build.retokenise import Reading, retokenised
from rankfold.encoders.bag_encoder import PRETRAINED
from rankfold.encoders.pretrained import Pretrained, build_network, load_network
from rankfold.encoders.pretrained_folder import Blueprint, Choices, read_blueprint
from rankfold.errors import UserError
from rankfold.methods.text.siamesexml.config import EncoderConfig
from rankfold.types import Comm, Dataset, Model

NOTE = "pretrained"  # of a model: its blueprint


def is_pretrained(config: Any) -> bool:
    return str(getattr(config, "encoder", "")).startswith(PRETRAINED)


def read(data: Dataset, config: EncoderConfig, comm: Comm) -> Dataset:
    """The data as the encoder reads it: with a pretrained one, in its own tokens."""
    if not is_pretrained(config):
        return data
    if comm.size > 1:
        raise UserError(
            f"encoder={config.encoder} is fitted by one process, got {comm.size}",
            hint="start it without torchrun",
        )
    blueprint, tokenizer = blueprint_of(config)
    return retokenised(data, reading_of(blueprint, tokenizer))


def reading_of(blueprint: Blueprint, tokenizer: str) -> Reading:
    return Reading(tokenizer, blueprint.prompts, blueprint.lower)


def blueprint_of(config: EncoderConfig) -> tuple[Blueprint, str]:
    """The blueprint of the encoder's folder, and its tokenizer."""
    choices = Choices(
        config.pooling, config.max_length, config.query_prompt, config.candidate_prompt
    )
    return read_blueprint(_folder(config), choices)


def load(config: EncoderConfig, blueprint: Blueprint) -> Pretrained:
    """The encoder as it is in its folder."""
    return Pretrained(load_network(_folder(config)), blueprint, config.tokens_at_once)


def rebuild(
    config: EncoderConfig, blueprint: Blueprint, tensors: Mapping[str, Tensor], member: int
) -> Pretrained:
    """The encoder of a member of a model; its folder is not needed."""
    prefix = f"{member}.network."
    weights = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
    network = build_network(blueprint, weights)
    return Pretrained(network, blueprint, config.tokens_at_once).eval()


def blueprint_in(model: Model) -> Blueprint | None:
    given = model.notes.get(NOTE)
    return None if given is None else Blueprint(**given)


def fitting(config: EncoderConfig, encoder: Pretrained) -> Any:
    """The settings with the width of the encoder."""
    return replace(config, width=encoder.width)


def _folder(config: EncoderConfig) -> Path:
    return Path(config.encoder.removeprefix(PRETRAINED))
