"""What requests may say, as pydantic checks it and the OpenAPI document tells it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from rankfold.models.grader import DEFAULT_FPR
from rankfold.serve.limits import Limits, Problem

ASKS = ("queries", "history", "text", "candidates")
LISTS_OF_KEYS = ("queries", "history", "candidates", "exclude", "allow")
MOST_KEY = 1024  # characters
MOST_LIKE = 100  # characters of what keys are looked for by
USUAL_K = 10

Key = Annotated[str, Field(max_length=MOST_KEY)] | Annotated[int, Field(ge=-(2**63), lt=2**63)]
Value = (
    Annotated[str, Field(max_length=MOST_KEY)]
    | bool
    | Annotated[int, Field(ge=-(2**63), lt=2**63)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | None
)
Body = TypeVar("Body", bound=BaseModel)


class Strict(BaseModel):
    """Nothing is guessed: a number is no text, and an unknown name is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Search(Strict):
    """What POST /search takes; ``search_body`` adds the limits."""

    queries: list[Any] = Field(default_factory=list)
    history: list[Any] = Field(default_factory=list)
    text: Any = None
    candidates: list[Any] = Field(default_factory=list)
    k: int = USUAL_K
    exclude: list[Any] = Field(default_factory=list)
    allow: list[Any] | None = None
    include_seen: bool = False


class Grade(Strict):
    """What POST /grade takes."""

    rows: list[dict[str, Any]]
    fpr: float = DEFAULT_FPR


class HistoryOf(BaseModel):
    """What GET /history takes."""

    model_config = ConfigDict(extra="forbid")
    query: str = Field(max_length=MOST_KEY, description="a known query")


class Keys(BaseModel):
    """What GET /keys takes."""

    model_config = ConfigDict(extra="forbid")
    side: Literal["query", "candidate"] = "candidate"
    like: str = Field(default="", max_length=MOST_LIKE, description="that keys or texts contain")
    limit: int = Field(default=10, ge=1, le=100)


class Nothing(BaseModel):
    """What the others take."""

    model_config = ConfigDict(extra="forbid")


def search_body(limits: Limits) -> type[Search]:
    """With the limits, in the document too."""
    keys = Annotated[list[Key], Field(max_length=limits.keys)]
    asked = Annotated[list[Key], Field(min_length=1, max_length=limits.batch)]
    text = Annotated[str, Field(max_length=limits.text)]
    texts = Annotated[list[text], Field(min_length=1, max_length=limits.batch)]
    many = Annotated[list[keys], Field(min_length=1, max_length=limits.batch)]
    fields: dict[str, Any] = {
        "queries": (asked, _field("keys of known queries")),
        "history": (keys | many, _field("what a new query chose, or a list of such histories")),
        "text": (text | texts, _field("a new query, or several, of a model that ranks by text")),
        "candidates": (asked, _field("keys of candidates: those like them are found")),
        "k": (Annotated[int, Field(ge=1, le=limits.k)], USUAL_K),
        "exclude": (keys, _field("candidates that are not returned")),
        "allow": (keys, _field("the candidates that may be returned; without it, all")),
        "include_seen": (bool, Field(default=False, description="also what it chose before")),
    }
    return create_model("SearchBody", __base__=Search, **fields)


def grade_body(limits: Limits) -> type[Grade]:
    name = Annotated[str, Field(max_length=MOST_KEY)]
    rows = Annotated[list[dict[name, Value]], Field(min_length=1, max_length=limits.rows)]
    fpr = Annotated[float, Field(gt=0, lt=1)]
    about = "at most this share of the rows below a grade gets it"
    fields: dict[str, Any] = {
        "rows": (rows, Field(description="columns and their values; null: missing")),
        "fpr": (fpr, Field(default=DEFAULT_FPR, description=about)),
    }
    return create_model("GradeBody", __base__=Grade, **fields)


def _field(description: str) -> FieldInfo:
    return cast("FieldInfo", Field(default=None, description=description))


def document(body: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a body. Those that ask for lists ask in one way."""
    schema = body.model_json_schema()
    assert "$defs" not in schema, "it has to stand alone"
    for entry in schema["properties"].values():
        if entry.get("default", 0) is None:
            del entry["default"]  # it may be left out, not null
    if issubclass(body, Search):
        schema["oneOf"] = [{"required": [name]} for name in ASKS]
    return schema


def parameters(query: type[BaseModel]) -> list[dict[str, Any]]:
    """The same for what stands in an address."""
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


def checked(body: type[Body], content: bytes) -> Body:
    """A body that is as it should be; a Problem says what is not."""
    try:
        return body.model_validate_json(content)
    except ValidationError as error:
        raise explained(error) from None


def explained(error: ValidationError) -> Problem:
    """The error that is about the deepest place: of several readings, the one that came closest."""
    found = max(error.errors(include_url=False, include_context=False), key=lambda e: len(e["loc"]))
    place = [str(part) for part in found["loc"] if not _is_type(part)]
    message = found["msg"][:1].lower() + found["msg"][1:]
    if found["type"] == "string_type" and place[0] in LISTS_OF_KEYS:
        message = "a key is a text or an integer of 64 bits"  # both readings failed
    elif place[:1] == ["rows"] and len(place) > 2:  # of a column, all readings failed
        message = "a value is a text, a finite number, true, false or null"
    where = f"{'.'.join(place)[:200]}: " if place else ""
    return Problem(400, f"{where}{message}", _HINTS.get(found["type"], "/docs tells what is taken"))


_HINTS = {
    "too_long": "ask in several requests",
    "json_invalid": "send a JSON object, in UTF-8",
    "model_type": "send a JSON object",
}


def _is_type(part: int | str) -> bool:
    """Whether it is a way to read a value, not a place: ``constrained-str``, ``list[...]``."""
    return isinstance(part, str) and (
        part in ("str", "int", "float", "bool") or "[" in part or part.startswith("constrained-")
    )


# ---------------------------------------------------------------------------------- answers


class ErrorAnswer(BaseModel):
    error: str
    hint: str


class Found(BaseModel):
    candidate: str | int
    score: float | None
    text: str | None = None


class ListAnswer(BaseModel):
    query: Any
    candidates: list[Found]


class SearchAnswer(BaseModel):
    results: list[ListAnswer]


class RowAnswer(BaseModel):
    score: float | None
    grade: str


class GradeAnswer(BaseModel):
    results: list[RowAnswer]


class Chosen(BaseModel):
    candidate: str | int
    text: str | None = None


class HistoryAnswer(BaseModel):
    query: str | int
    candidates: list[Chosen]


class KeyAnswer(BaseModel):
    key: str | int
    text: str | None = None


class KeysAnswer(BaseModel):
    keys: list[KeyAnswer]


class CardAnswer(BaseModel):
    name: str
    method: str
    data_kind: str
    asks: list[str]
    config: dict[str, Any]
    sizes: dict[str, int]
    metrics: dict[str, float | None]
    notes: dict[str, Any]
    limits: dict[str, int]
    index: dict[str, Any] | None
    versions: dict[str, str]
    written: str
    columns: list[dict[str, Any]] | None = None
    grades: list[str] | None = None


class ModelsAnswer(BaseModel):
    models: list[str]


class StateAnswer(BaseModel):
    status: str
