"""Prepared texts in the tokens of another tokenizer; this needs the texts as they were written."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from rankfold.data.build.pretrained_tokens import changed_by
from rankfold.data.build.tokens import n_tokens, tokenise
from rankfold.errors import UserError
from rankfold.types import Dataset, Side, Texts, Vocabulary


class Reading(NamedTuple):
    """How texts become tokens."""

    tokenizer: str
    prompts: Mapping[str, str] = {}  # by side
    lower: bool = False

    def tokens(self, texts: object, side: Side) -> Texts:
        change = changed_by(self.prompts.get(side, ""), lower=self.lower)
        return tokenise(self.tokenizer, texts, change=change)  # type: ignore[arg-type]


def retokenised(data: Dataset, reading: Reading) -> Dataset:
    """The same data with its texts in other tokens."""
    return replace(
        data,
        query_texts=_texts(data, data.queries, data.query_texts, "query", reading),
        candidate_texts=_texts(data, data.candidates, data.candidate_texts, "candidate", reading),
        tokenizer=reading.tokenizer,
        n_tokens=n_tokens(reading.tokenizer),
    )


def has_words(data: Dataset) -> bool:
    """Whether queries have their texts as they were written."""
    return data.queries.texts is not None


def _texts(
    data: Dataset, keys: Vocabulary, own: Texts | None, side: Side, reading: Reading
) -> Texts | None:
    if own is None:
        return None
    if keys.texts is None:
        names = {"query": "queries", "candidate": "candidates"}
        raise UserError(
            f"the data has tokens of its {names[side]}, but not their texts as they were written",
            hint="prepare it again, from texts: bags of features and older folders have none",
        )
    first = data.first if side == "query" else 0
    return reading.tokens(keys.texts.slice(first, len(own)), side)
