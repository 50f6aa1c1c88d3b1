"""Pretrained networks of the ``transformers`` library as text encoders: ``hf:FOLDER``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankfold.encoders.bag_encoder import unit
from rankfold.encoders.pretrained_folder import Blueprint, network_folder
from rankfold.errors import UserError, require
from rankfold.types import Texts


class Pretrained(nn.Module):
    """A vector of length 1 for each text, from the token vectors of a network.

    Texts hold the tokens of the network's tokenizer; a token with a weight of 0 is hidden. Texts of
    similar lengths go through the network together, some at a time. With gradients, only their
    vectors are kept: the backward pass runs the network again (gradient caching). So memory does
    not depend on the number of texts.
    """

    def __init__(self, network: nn.Module, blueprint: Blueprint, tokens_at_once: int) -> None:
        super().__init__()
        self.network, self.pooling = network, blueprint.pooling
        self.tokens_at_once = tokens_at_once

    @property
    def width(self) -> int:
        return int(self.network.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def forward(self, texts: Texts) -> Tensor:
        """[n, D]; zeros for a text without tokens."""
        counts = texts.counts()
        order = counts.argsort(descending=True, stable=True)
        order = order[: int((counts > 0).sum())]
        parts = [self._encode(texts.select(rows)) for rows in self._chunks(order, counts)]
        vectors = torch.zeros(len(texts), self.width, device=counts.device)
        return vectors.index_copy(0, order, torch.cat(parts)) if parts else vectors

    def _chunks(self, order: Tensor, counts: Tensor) -> Iterator[Tensor]:
        """The texts, longest first, as many at a time as fit when all are as long as the first."""
        lengths, start = counts[order].tolist(), 0
        while start < len(lengths):
            stop = start + max(1, self.tokens_at_once // lengths[start])
            yield order[start:stop]
            start = stop

    def _encode(self, texts: Texts) -> Tensor:
        ids, mask = _padded(texts, getattr(self.network.config, "pad_token_id", None) or 0)
        if not torch.is_grad_enabled():
            return self._vectors(ids, mask)
        vectors: Tensor = checkpoint(self._vectors, ids, mask, use_reentrant=False)
        return vectors

    def _vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.network(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return unit(pool(hidden, mask, self.pooling))


def pool(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One vector from the token vectors [B, L, D] where ``mask`` [B, L] is 1; [B, D]."""
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        places = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(dim=1)
        return hidden[torch.arange(len(hidden), device=mask.device), places]
    if pooling == "max":
        return hidden.masked_fill(mask[:, :, None] == 0, -torch.inf).amax(dim=1)
    weights = mask[:, :, None].to(hidden)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _padded(texts: Texts, pad: int) -> tuple[Tensor, Tensor]:
    """The tokens of texts that have some, and which of them are read; [B, L] each."""
    counts = texts.counts()
    columns = torch.arange(int(counts.max()), device=counts.device)
    inside = columns < counts[:, None]
    ids, mask = inside.long(), inside.long()
    ids[inside] = texts.tokens.long()
    if texts.weights is not None:
        mask[inside] = (texts.weights > 0).long()
    mask[:, 0] = 1  # something remains if all tokens are hidden
    return ids.masked_fill(~inside, pad), mask


# ---------------------------------------------------------------------------------- networks


def load_network(path: Path, blueprint: Blueprint) -> nn.Module:
    """The network of a folder, in float32."""
    with _quiet_transformers() as transformers:
        try:
            network = transformers.AutoModel.from_pretrained(
                str(network_folder(path)),
                config=transformers.AutoConfig.for_model(**blueprint.config),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
        except Exception as error:
            raise _unreadable(str(path), error) from error
    return _bare(network)


def build_network(blueprint: Blueprint, weights: Mapping[str, Tensor]) -> nn.Module:
    """The network with these weights, which are not copied."""
    with _quiet_transformers() as transformers, torch.random.fork_rng(devices=[]):
        try:
            config = transformers.AutoConfig.for_model(**blueprint.config)
            network = _bare(transformers.AutoModel.from_config(config, trust_remote_code=False))
        except Exception as error:
            raise _unreadable(blueprint.folder, error) from error
    try:
        network.load_state_dict(dict(weights), assign=True)
    except RuntimeError as error:
        raise UserError(
            f"the model lacks weights of its encoder {blueprint.folder}: {error}",
            hint="copy the model's folder again",
        ) from error
    device = next((tensor.device for tensor in weights.values()), None)
    return network.to(device).eval()  # buffers as well, which are not among the weights


def _bare(network: Any) -> nn.Module:
    """Without what pooling does not read, which would be saved and never trained."""
    network.config.use_cache = False
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    bare: nn.Module = network.float()
    return bare


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The library, which prints neither bars nor notes meanwhile."""
    require("transformers", "encoder=hf:FOLDER", "transformers")
    import transformers
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _unreadable(name: str, error: Exception) -> UserError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return UserError(
        f"transformers cannot read {name}: {reason}",
        hint="is it a complete model whose type this version of transformers has?",
    )
