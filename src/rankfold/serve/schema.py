"""The requests and responses: pydantic checks requests, the OpenAPI document describes both."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from rankfold.config import declarations
from rankfold.models.conditions import MAX_LENGTH
from rankfold.models.grader import DEFAULT_FPR
from rankfold.models.ranking import By
from rankfold.models.reranking import Rules
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits

SEARCH_INPUTS: tuple[By, ...] = ("queries", "history", "features", "text", "candidates")
"""A search has exactly one of them."""
_KEY_LISTS = ("queries", "history", "candidates", "exclude", "allow", "pin")
_MAX_KEY_LENGTH = 1024
_MAX_LIKE_LENGTH = 100
_DEFAULT_K = 10
_MAX_GOAL_LENGTH = 32
_MAX_RULES = 8  # boosts, and quotas
_DIVERSITY = declarations(Rules)["diversity"]

Text = Annotated[str, Field(max_length=_MAX_KEY_LENGTH)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Key = Annotated[Text | Integer, Field(title="key")]
Value = Text | bool | Integer | Annotated[float, Field(allow_inf_nan=False)] | None
Body = TypeVar("Body", bound=BaseModel)

# ---------------------------------------------------------------------------------- requests


class StrictModel(BaseModel):
    """A body without conversions: a number is not a string, and an unknown name is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _optional(description: str) -> Any:
    return Field(default=None, description=description)


def _switch(description: str) -> Any:
    return Field(default=False, description=description)


class SearchRequest(StrictModel):
    """The body of POST /search; ``search_request`` adds the types, with their limits."""

    queries: Any = _optional("rank for known queries")
    history: Any = _optional(
        "rank for a new query by the candidates it chose; or for a list of such"
    )
    features: Any = _optional("rank for a new query by its features; or for a list of such")
    text: Any = _optional("rank for a text, or for a list of texts")
    candidates: Any = _optional("find candidates similar to these")
    k: int = Field(default=_DEFAULT_K, description="how many candidates to return")
    exclude: Any = _optional("candidates that are not returned")
    allow: Any = _optional("only these candidates are returned")
    where: Any = _optional(
        "a condition on the features of candidates: price < 20 and brand = 'acme'"
    )
    pin: Any = _optional("candidates that come first, even if seen")
    boost: Any = _optional(
        "what is added to scores where a condition is met: {\"brand = 'x'\": 0.5}"
    )
    at_most: Any = _optional('results with the same value of a feature: {"brand": 2}')
    diversity: float = Field(default=0.0, description=_DIVERSITY.help)
    explain: bool = _switch("also say what raises each score most")
    thresholds: Any = _optional(
        "for texts: only results that reach their thresholds: f1, or precision=.9"
    )
    include_seen: bool = _switch("also return candidates in the query's history")
    with_features: bool = _switch("also return the features of each candidate")


class GradeRequest(StrictModel):
    """The body of POST /grade; ``grade_request`` adds the limits."""

    rows: list[dict[str, Any]] = Field(description="values by column name; null is a missing value")
    fpr: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=DEFAULT_FPR,
        description="false-positive rate: at most this share of the rows below a grade gets it",
    )
    explain: bool = _switch("also say which columns move each score most")
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = _optional(
        "of the promise that it is no larger, at each grade; absent: on average"
    )


class HistoryRequest(BaseModel):
    """The parameters of GET /history."""

    model_config = ConfigDict(extra="forbid")
    query: str = Field(max_length=_MAX_KEY_LENGTH, description="key of a known query")


class KeysRequest(BaseModel):
    """The parameters of GET /keys."""

    model_config = ConfigDict(extra="forbid")
    side: Literal["query", "candidate"] = Field(
        default="candidate", description="which keys to look up"
    )
    like: str = Field(
        default="",
        max_length=_MAX_LIKE_LENGTH,
        description="text that the key or its text contains",
    )
    limit: int = Field(default=10, ge=1, le=100, description="how many keys to return")


def search_request(limits: Limits) -> type[SearchRequest]:
    keys = Annotated[list[Key], Field(max_length=limits.keys)]
    inputs = Annotated[list[Key], Field(min_length=1, max_length=limits.batch)]
    text = Annotated[str, Field(max_length=limits.text)]
    texts = Annotated[list[text], Field(min_length=1, max_length=limits.batch)]
    histories = Annotated[list[keys], Field(min_length=1, max_length=limits.batch)]
    record = dict[Text, Value]
    records = Annotated[list[record], Field(min_length=1, max_length=limits.batch)]
    condition = Annotated[str, Field(max_length=MAX_LENGTH)]
    amount = Annotated[float, Field(allow_inf_nan=False)]
    number = Annotated[int, Field(ge=1)]
    low, high = (_DIVERSITY.bounds[name] for name in ("at_least", "at_most"))
    return _typed(
        SearchRequest,
        queries=inputs,
        history=keys | histories,
        features=record | records,
        text=text | texts,
        candidates=inputs,
        k=Annotated[int, Field(ge=1, le=limits.k)],
        **dict.fromkeys(("exclude", "allow", "pin"), keys),
        where=condition,
        thresholds=Annotated[str, Field(max_length=_MAX_GOAL_LENGTH)],
        boost=Annotated[dict[condition, amount], Field(max_length=_MAX_RULES)],
        at_most=Annotated[dict[Text, number], Field(max_length=_MAX_RULES)],
        diversity=Annotated[float, Field(ge=low, le=high)],
    )


def grade_request(limits: Limits) -> type[GradeRequest]:
    rows = Annotated[list[dict[Text, Value]], Field(min_length=1, max_length=limits.rows)]
    return _typed(GradeRequest, rows=rows)


def _typed(body: type[Body], **kinds: Any) -> type[Body]:
    """A body with other types of some fields."""
    fields: dict[str, Any] = {name: (kind, body.model_fields[name]) for name, kind in kinds.items()}
    return create_model(body.__name__, __base__=body, **fields)


def json_schema(body: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a request body."""
    schema = body.model_json_schema()
    assert "$defs" not in schema, "the schema is embedded in another document"
    for entry in schema["properties"].values():
        if entry.get("default", 0) is None:
            del entry["default"]  # it may be absent, not null
    if issubclass(body, SearchRequest):
        schema["oneOf"] = [{"required": [name]} for name in SEARCH_INPUTS]
    return schema


def query_parameters(query: type[BaseModel]) -> list[dict[str, Any]]:
    """The OpenAPI entries of URL parameters."""
    schema = query.model_json_schema()
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": entry.pop("description", name),
            "schema": entry,
        }
        for name, entry in schema["properties"].items()
    ]


def parse_body(body: type[Body], content: bytes) -> Body:
    """A checked body; an HttpError names what is wrong with it."""
    try:
        return body.model_validate_json(content)
    except ValidationError as error:
        raise explain(error, body.model_fields) from None


def explain(error: ValidationError, names: Iterable[str] = ()) -> HttpError:
    """Name the deepest error: of several readings of a value, the one that came closest.

    ``names`` are the fields to suggest in place of an unknown one.
    """
    details = error.errors(include_url=False, include_context=False)
    unknown = "extra_forbidden"  # rather than a field that is missing in its place
    deepest = max(details, key=lambda one: (len(one["loc"]), one["type"] == unknown))
    path = [str(part) for part in deepest["loc"] if not _is_type(part)]
    message = deepest["msg"][:1].lower() + deepest["msg"][1:]
    if deepest["type"] == unknown and len(path) == 1:
        near = get_close_matches(path[0], names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"fields: {', '.join(names)}"
        return HttpError(400, f"there is no field {path[0][:200]!r}", hint)
    if deepest["type"] == "string_type" and path[0] in _KEY_LISTS:
        message = "a key must be a string or a 64-bit integer"  # it is neither
    elif path[:1] == ["rows"] and len(path) > 2:  # a column's value is of no accepted type
        message = "a value must be a string, a finite number, true, false or null"
    where = f"{'.'.join(path)[:200]}: " if path else ""
    hint = _HINTS.get(deepest["type"], "see /docs for the accepted fields")
    return HttpError(400, f"{where}{message}", hint)


_HINTS = {
    "too_long": "split it into several requests",
    "json_invalid": "send a JSON object in UTF-8",
    "model_type": "send a JSON object",
    "list_type": 'write a list, such as ["a"]',
}


def _is_type(part: int | str) -> bool:
    """Whether it is a way to read a value, not a place: ``constrained-str``, ``list[...]``."""
    return isinstance(part, str) and (
        part in ("str", "int", "float", "bool") or "[" in part or part.startswith("constrained-")
    )


# ---------------------------------------------------------------------------------- responses


class ErrorResponse(BaseModel):
    error: str
    hint: str


class Reason(BaseModel):
    key: str | int
    score: float | None
    text: str | None = None


class ScoredCandidate(BaseModel):
    candidate: str | int
    score: float | None
    probability: float | None = None
    text: str | None = None
    features: dict[str, str | float | None] | None = None
    because: list[Reason] | None = None
    rest: float | None = None
    exact: bool | None = None


class Ranking(BaseModel):
    query: Any
    candidates: list[ScoredCandidate]


class SearchResponse(BaseModel):
    results: list[Ranking]


class Contribution(BaseModel):
    column: str
    contribution: float | None


class GradedRow(BaseModel):
    score: float | None
    grade: str
    probabilities: dict[str, float] | None = None
    explanation: list[Contribution] | None = None


class GradeResponse(BaseModel):
    results: list[GradedRow]


class HistoryCandidate(BaseModel):
    candidate: str | int
    text: str | None = None


class HistoryResponse(BaseModel):
    query: str | int
    candidates: list[HistoryCandidate]


class KeyWithText(BaseModel):
    key: str | int
    text: str | None = None


class KeysResponse(BaseModel):
    keys: list[KeyWithText]


class CardResponse(BaseModel):
    name: str
    method: str
    data_kind: str
    accepts: list[str]
    config: dict[str, Any]
    sizes: dict[str, int]
    metrics: dict[str, float | None]
    notes: dict[str, Any]
    limits: dict[str, int]
    index: dict[str, Any] | None
    versions: dict[str, str]
    written: str
    columns: list[dict[str, Any]] | None = None
    filters: list[dict[str, Any]] | None = None
    features: list[dict[str, Any]] | None = None
    thresholds: bool | None = None
    grades: list[str] | None = None
    importance: dict[str, Any] | None = None
    explains: bool | None = None


class ModelsResponse(BaseModel):
    models: list[str]


class StatusResponse(BaseModel):
    status: str
