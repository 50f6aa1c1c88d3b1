"""The endpoints. Each endpoint of a model exists twice: for the first model, and by name."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from rankfold import __version__
from rankfold.errors import UserError
from rankfold.models.explain.ranking import CONTRIBUTIONS
from rankfold.models.ranking import SearchSpec
from rankfold.models.reranking import Rules
from rankfold.models.search import ranks_by_text
from rankfold.serve import schema
from rankfold.serve.batching import Job
from rankfold.serve.errors import HttpError, error_body
from rankfold.serve.folders import NAME
from rankfold.serve.grade import check_explained, grade
from rankfold.serve.limits import Limits
from rankfold.serve.metrics import Counts, text_of
from rankfold.serve.middleware import Access, Endpoint, Middleware
from rankfold.serve.models import Models, Slot
from rankfold.serve.search import answer, check_size, find_keys, group_of, is_small, read_history
from rankfold.serve.static_files import add_static_files

JSON = "application/json"
_DESCRIPTION = "Learned rankings over HTTP. Every error has the fields `error` and `hint`."
_SUMMARIES = {
    "search": "Rank candidates for queries, histories or texts, or find similar candidates",
    "grade": "Score and grade rows",
    "history": "The candidates that a known query chose",
    "keys": "Find keys that start with a text or contain it",
    "card": "The model card: method, data, quality, and the inputs it accepts",
}
ERRORS = {
    400: "the request is invalid, or this model cannot answer it",
    401: "the token is missing or wrong",
    404: "unknown model, query or candidate",
    408: "the body did not arrive in time",
    413: "the body is too large",
    429: "too many requests at once",
    503: "not loaded yet, or shutting down",
    504: "the answer took too long",
}
Name = Annotated[str, Path(pattern=f"^{NAME.pattern}$", description="name of a model")]
_Post = Callable[[Slot, bytes, bytes], Awaitable[bytes]]  # content type, body
_Get = Callable[[Slot, Request], Awaitable[bytes]]
CountsOfAll = Callable[[], Awaitable[Counts]]


def build_app(
    models: Models,
    limits: Limits,
    access: Access | None = None,
    counts_of_all: CountsOfAll | None = None,
) -> Middleware:
    """The application inside its middleware; ``counts_of_all`` if there are more processes."""
    api = FastAPI(
        title="rankfold",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    direct = _add_model_endpoints(api, models, limits)
    _add_status_endpoints(api, models, counts_of_all)
    add_static_files(api)
    api.add_exception_handler(HttpError, _on_error)
    api.add_exception_handler(UserError, _on_error)
    api.add_exception_handler(HTTPException, _on_routing_error)
    api.add_exception_handler(RequestValidationError, _on_invalid_name)
    given = access or Access(), limits, models.log, models.metrics
    return Middleware(api, direct, _SUMMARIES, *given)


# ---------------------------------------------------------------------------------- models


def _add_model_endpoints(
    api: FastAPI, models: Models, limits: Limits
) -> dict[tuple[str, str], Endpoint]:
    """Add all of them; returns those with a body, by method and path."""
    search_body, grade_body = schema.search_request(limits), schema.grade_request(limits)
    search: _Post = partial(_search, search_body, limits)
    grade_rows: _Post = partial(_grade, grade_body, limits)
    post = partial(_add, api, models, "POST")
    get = partial(_add, api, models, "GET")
    post("search", _with_body(search), schema.SearchResponse, body=search_body)
    post("grade", _with_body(grade_rows), schema.GradeResponse, body=grade_body)
    get("history", partial(_history, models), schema.HistoryResponse, query=schema.HistoryRequest)
    get("keys", partial(_keys, models), schema.KeysResponse, query=schema.KeysRequest)
    get("card", _card, schema.CardResponse)
    direct: dict[tuple[str, str], Endpoint] = {}
    for endpoint, handler in (("search", search), ("grade", grade_rows)):
        for place, (name, slot) in enumerate(models.slots.items()):
            direct["POST", f"/models/{name}/{endpoint}"] = ask = partial(handler, slot)
            if place == 0:
                direct["POST", f"/{endpoint}"] = ask
    return direct


def _with_body(handler: _Post) -> _Get:
    """The same for a request that FastAPI routes: the name of its model is unknown."""

    async def handle(slot: Slot, request: Request) -> bytes:
        media_type = request.headers.get("content-type", "").encode("latin-1")
        return await handler(slot, media_type, await request.body())

    return handle


def _add(
    api: FastAPI,
    models: Models,
    method: str,
    endpoint: str,
    handler: _Get,
    response: type[BaseModel],
    *,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
) -> None:
    """Add an endpoint of the first model, and of each by its name."""

    async def first(request: Request) -> Response:
        return _json(await handler(models.slot(None), request))

    async def named(name: Name, request: Request) -> Response:
        return _json(await handler(models.slot(name), request))

    extra: dict[str, Any] = {}
    if body is not None:
        content = {JSON: {"schema": schema.json_schema(body)}}
        extra["requestBody"] = {"required": True, "content": content}
    if query is not None:
        extra["parameters"] = schema.query_parameters(query)
    for path, function in ((f"/{endpoint}", first), (f"/models/{{name}}/{endpoint}", named)):
        api.add_api_route(
            path,
            function,
            methods=[method],
            operation_id=f"{endpoint}_{function.__name__}",
            summary=_SUMMARIES[endpoint],
            response_class=Response,
            responses=_responses(response, *ERRORS),
            openapi_extra=extra,
        )


async def _search(
    kind: type[schema.SearchRequest], limits: Limits, slot: Slot, media_type: bytes, body: bytes
) -> bytes:
    given = _parse(kind, media_type, body)
    names = [name for name in schema.SEARCH_INPUTS if name in given.model_fields_set]
    if len(names) != 1:
        error = f"expected one of {', '.join(schema.SEARCH_INPUTS)}"
        hint = "see /docs for the accepted fields"
        raise HttpError(400, f"{error}; got {' and '.join(names) or 'none'}", hint)
    by = names[0]
    value = getattr(given, by)
    rules = Rules(
        pin=given.pin or (),
        boost=given.boost or {},
        at_most=given.at_most or {},
        diversity=given.diversity,
    )
    more: dict[str, Any] = {
        "explain": CONTRIBUTIONS if given.explain else 0,
        "with_features": given.with_features,
        "thresholds": given.thresholds,
    }
    others = (given.exclude or (), given.allow, given.include_seen, given.where, rules)
    is_flat = by == "history" and not any(isinstance(entry, list) for entry in value)
    is_flat |= isinstance(value, str | dict)
    inputs = [value] if is_flat else value  # one entry per ranking
    spec = SearchSpec(by, inputs, given.k, *others, **more)
    check_size(spec, limits)
    served = slot.now()
    ranker = served.ranker()
    if by == "history" and by not in served.accepts and ranks_by_text(ranker.model):
        error = f"{ranker.model.method} ranks by text, not by history"
        raise UserError(error, hint="send `text` instead")
    if given.with_features:
        _ = ranker.conditions.table  # an error if the model has none
    if by == "features":
        ranker.read_features(inputs)  # an error of one request is not one of its group
    group, ask = (id(ranker), group_of(spec)), partial(answer, ranker)
    return await _done(slot, Job(group, spec, len(spec.inputs), ask, is_small(spec)))


async def _grade(
    kind: type[schema.GradeRequest], limits: Limits, slot: Slot, media_type: bytes, body: bytes
) -> bytes:
    given = _parse(kind, media_type, body)
    served = slot.now()
    grader = served.grader()
    check_explained(grader, given, limits)
    small = len(given.rows) == 1 and not given.explain
    job = Job(id(served), given, len(given.rows), partial(grade, grader), small)
    return await _done(slot, job)


async def _done(slot: Slot, job: Job) -> bytes:
    document: bytes = await slot.worker.submit(job)
    return document


async def _history(models: Models, slot: Slot, request: Request) -> bytes:
    given = _parse_query(schema.HistoryRequest, request)
    return await _lookup(models, partial(read_history, slot.now().ranker(), given.query))


async def _keys(models: Models, slot: Slot, request: Request) -> bytes:
    given = _parse_query(schema.KeysRequest, request)
    ranker = slot.now().ranker()
    return await _lookup(models, partial(find_keys, ranker, given.side, given.like, given.limit))


async def _lookup(models: Models, look_up: Callable[[], bytes]) -> bytes:
    """Run a lookup on the thread for lookups: it must not delay searches."""
    job = Job(id(look_up), look_up, 1, lambda lookups: [each() for each in lookups])
    document: bytes = await models.side.submit(job)
    return document


async def _card(slot: Slot, _request: Request) -> bytes:
    return slot.now().document


def _parse(kind: type[schema.Body], media_type: bytes, body: bytes) -> schema.Body:
    """A body whose type is JSON: a page of another site cannot send that without CORS."""
    given = media_type.partition(b";")[0].strip().lower()
    if given != JSON.encode():
        error = f"the Content-Type must be {JSON}, got {given[:100].decode('latin-1') or 'none'}"
        raise HttpError(400, error, f"send the header `Content-Type: {JSON}`")
    return schema.parse_body(kind, body)


def _parse_query(kind: type[schema.Body], request: Request) -> schema.Body:
    try:
        return kind.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise schema.explain(error) from None


# ---------------------------------------------------------------------------------- status


def _add_status_endpoints(api: FastAPI, models: Models, counts_of_all: CountsOfAll | None) -> None:
    async def names() -> Response:
        return _json(to_json({"models": list(models.slots)}))

    async def health() -> Response:
        return _json(b'{"status":"running"}')

    async def ready() -> Response:
        if not models.ready:
            hint = "try again in a moment"
            raise HttpError(503, "not all models are loaded yet", hint, {"retry-after": "1"})
        return _json(b'{"status":"ready"}')

    async def metrics() -> Response:
        counts = models.counts() if counts_of_all is None else await counts_of_all()
        return Response(text_of(counts), media_type="text/plain; version=0.0.4; charset=utf-8")

    get = partial(api.add_api_route, methods=["GET"], response_class=Response)
    status, text = schema.StatusResponse, {"text/plain": {"schema": {"type": "string"}}}
    listed = _responses(schema.ModelsResponse, 400, 401, 429, 503)
    for path, endpoint, summary, responses in (
        ("/models", names, "The names of the models", listed),
        ("/health", health, "Whether the server runs", _responses(status, 400)),
        ("/ready", ready, "Whether all models are loaded", _responses(status, 400, 503)),
        ("/metrics", metrics, "Metrics for Prometheus", _responses(None, 400, 401)),
    ):
        if path == "/metrics":
            responses[200]["content"] = text
        get(path, endpoint, summary=summary, responses=responses)


# ---------------------------------------------------------------------------------- responses


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type=JSON)


def _responses(model: type[BaseModel] | None, *errors: int) -> dict[int | str, dict[str, Any]]:
    """Every status with its model, for the OpenAPI document."""
    good: dict[str, Any] = {} if model is None else {"model": model}
    responses: dict[int | str, dict[str, Any]] = {200: {"description": "success", **good}}
    for status in errors:
        responses[status] = {"model": schema.ErrorResponse, "description": ERRORS[status]}
    return responses


async def _on_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, UserError):
        error = HttpError(400, str(error), error.hint)
    assert isinstance(error, HttpError)
    return Response(error.body, error.status, headers=error.headers, media_type=JSON)


async def _on_routing_error(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    messages = {404: "there is no such path", 405: f"this path does not accept {request.method}"}
    message = messages.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if "GET" in headers.get("Allow", ""):
        headers["Allow"] += ", HEAD"  # the middleware answers it like GET
    content = error_body(message, "/docs lists the paths")
    return Response(content, error.status_code, headers=headers, media_type=JSON)


async def _on_invalid_name(_request: Request, error: Exception) -> Response:
    """FastAPI itself checks only the names of models."""
    assert isinstance(error, RequestValidationError)
    return _json(error_body("invalid model name", "GET /models lists the names"), 404)
