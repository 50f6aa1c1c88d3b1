"""The endpoints. Everything that is about a model exists twice: of the first, and by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from rankfold import __version__
from rankfold.errors import UserError
from rankfold.models.search import SearchRequest
from rankfold.models.searcher import ranks_by_text
from rankfold.serve import schema
from rankfold.serve.batching import Job
from rankfold.serve.files import add_files
from rankfold.serve.grade import GradeRequest, grade
from rankfold.serve.keys import history_of, keys_like
from rankfold.serve.limits import Limits, Problem, error_json
from rankfold.serve.metrics import Labels
from rankfold.serve.middleware import Access, App, Guard, Receive, Scope, Send
from rankfold.serve.models import NAME, Models, Slot
from rankfold.serve.search import answer, check_size, group_of

JSON = "application/json"
REFUSALS = {
    400: "what was asked cannot be answered",
    401: "the token is missing or wrong",
    404: "no such model, query or candidate",
    408: "the body did not arrive in time",
    413: "the body is too large",
    429: "too much at once",
    503: "not loaded yet, or shutting down",
    504: "it took too long",
}
ABOUT = "Ranks a few candidates out of very many. Errors have an error and a hint."
Name = Annotated[str, Path(pattern=f"^{NAME.pattern}$", description="of a model")]
Handler = Callable[[Slot, Request], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def build(models: Models, limits: Limits, access: Access | None = None) -> Guard:
    """The application, guarded."""
    api = FastAPI(
        title="rankfold",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    direct = _add_questions(api, models, limits)
    _add_state(api, models)
    add_files(api)
    api.add_exception_handler(Problem, _on_problem)
    api.add_exception_handler(UserError, _on_user_error)
    api.add_exception_handler(HTTPException, _on_http)
    api.add_exception_handler(RequestValidationError, _on_invalid)
    return Guard(Direct(api, direct), access or Access(), limits, models.log, models.metrics)


class Direct:
    """An API, some of whose endpoints are reached without its routes and layers.

    These cost as much as a search; what they do for an endpoint that checks its own body is little.
    """

    def __init__(self, api: App, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        """``endpoints`` by method and path."""
        self.api, self.endpoints = api, endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.endpoints.get((scope.get("method", ""), scope.get("path", "")))
        if endpoint is None:
            await self.api(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except Problem as problem:
            response = await _on_problem(request, problem)
        except UserError as error:
            response = await _on_user_error(request, error)
        await response(scope, receive, send)


# ---------------------------------------------------------------------------------- questions


def _add_questions(api: FastAPI, models: Models, limits: Limits) -> dict[tuple[str, str], Endpoint]:
    """All of them; returns those with a body, by method and path."""
    search_body, grade_body = schema.search_body(limits), schema.grade_body(limits)
    searching, grading = partial(_search, search_body, limits), partial(_grade, grade_body)
    post = partial(_add, api, models, "POST")
    get = partial(_add, api, models, "GET")
    post("search", searching, schema.SearchAnswer, body=search_body)
    post("grade", grading, schema.GradeAnswer, body=grade_body)
    get("history", partial(_history, models), schema.HistoryAnswer, query=schema.HistoryOf)
    get("keys", partial(_keys, models), schema.KeysAnswer, query=schema.Keys)
    get("card", _card, schema.CardAnswer)
    found: dict[tuple[str, str], Endpoint] = {}
    for name, handler in (("search", searching), ("grade", grading)):
        found["POST", f"/{name}"] = partial(_of, models, None, handler)
        for each in models.slots:
            found["POST", f"/models/{each}/{name}"] = partial(_of, models, each, handler)
    return found


async def _of(models: Models, name: str | None, handler: Handler, request: Request) -> Response:
    """What a model answers; None: the first one."""
    return await handler(models.slot(name), request)


def _add(
    api: FastAPI,
    models: Models,
    method: str,
    name: str,
    handler: Handler,
    answers: type[BaseModel],
    *,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
) -> None:
    """An endpoint of the first model, and of each by its name."""

    async def of_first(request: Request) -> Response:
        return await _of(models, None, handler, request)

    async def of_named(name: Name, request: Request) -> Response:
        return await _of(models, name, handler, request)

    more: dict[str, Any] = {}
    if body is not None:
        content = {JSON: {"schema": schema.document(body)}}
        more["requestBody"] = {"required": True, "content": content}
    if query is not None:
        more["parameters"] = schema.parameters(query)
    for path, endpoint, which in (
        (f"/{name}", of_first, "first"),
        (f"/models/{{name}}/{name}", of_named, "named"),
    ):
        api.add_api_route(
            path,
            endpoint,
            methods=[method],
            operation_id=f"{name}_{which}",
            summary=_SUMMARIES[name],
            response_class=Response,
            responses=_answers(answers, *REFUSALS),
            openapi_extra=more,
        )


_SUMMARIES = {
    "search": "The best candidates for queries, histories or texts, or like candidates",
    "grade": "The score and the grade of rows",
    "history": "What a known query chose",
    "keys": "Keys that begin with a text or contain it",
    "card": "What the model is and what can be asked of it",
}


async def _search(
    body: type[schema.Search], limits: Limits, slot: Slot, request: Request
) -> Response:
    asked = schema.checked(body, await _content(request))
    named = [name for name in schema.ASKS if name in asked.model_fields_set]
    if len(named) != 1:
        raise Problem(
            400,
            f"the body has {' and '.join(named) or 'no question'}",
            f"give one of {', '.join(schema.ASKS)}",
        )
    about = named[0]
    wanted = SearchRequest(
        about,  # type: ignore[arg-type]
        _listed(about, getattr(asked, about)),
        asked.k,
        asked.exclude or (),
        asked.allow,
        asked.include_seen,
    )
    check_size(wanted, limits)
    served = slot.now()
    ranker = served.ranker()
    if about == "history" and about not in served.asks and ranks_by_text(ranker.model):
        error = f"{ranker.model.method} ranks by text, not by history"
        raise UserError(error, hint="give it as `text`")
    group = (id(ranker), group_of(wanted))
    job = Job(group, wanted, len(wanted.inputs), partial(answer, ranker))
    return _json(await slot.worker.ask(job))


def _listed(about: str, asked: Any) -> list[Any]:
    """A question for each list that is wanted: one history or one text stands for a list of it."""
    if about == "text" and isinstance(asked, str):
        return [asked]
    if about == "history" and not any(isinstance(entry, list) for entry in asked):
        return [asked]
    return list(asked)


async def _grade(body: type[schema.Grade], slot: Slot, request: Request) -> Response:
    asked = schema.checked(body, await _content(request))
    served = slot.now()
    grader = served.grader()
    wanted = GradeRequest(asked.rows, asked.fpr)
    job = Job(id(served), wanted, len(asked.rows), partial(grade, grader, served.card["grades"]))
    return _json(await slot.worker.ask(job))


async def _history(models: Models, slot: Slot, request: Request) -> Response:
    asked = _query(schema.HistoryOf, request)
    return await _aside(models, partial(history_of, slot.now().ranker(), asked.query))


async def _keys(models: Models, slot: Slot, request: Request) -> Response:
    asked = _query(schema.Keys, request)
    ranker = slot.now().ranker()
    return await _aside(models, partial(keys_like, ranker, asked.side, asked.like, asked.limit))


async def _aside(models: Models, look: Callable[[], bytes]) -> Response:
    """What is not a search, done by the thread for that."""
    job = Job(id(look), look, 1, lambda looks: [each() for each in looks])
    return _json(await models.side.ask(job))


async def _card(slot: Slot, _request: Request) -> Response:
    return _json(slot.now().document)


async def _content(request: Request) -> bytes:
    """The body, if it is said to be JSON: a page of another site cannot send that unasked."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Problem(400, f"the body is of type {kind[:100] or 'unknown'}", f"send {JSON}")
    return await request.body()


def _query(kind: type[schema.Body], request: Request) -> schema.Body:
    try:
        return kind.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise schema.explained(error) from None


# ---------------------------------------------------------------------------------- state


def _add_state(api: FastAPI, models: Models) -> None:
    async def names() -> Response:
        return _json(to_json({"models": list(models.slots)}))

    async def health() -> Response:
        return _json(b'{"status":"running"}')

    async def ready() -> Response:
        if not models.ready:
            raise Problem(503, "not all models are loaded", "wait", {"retry-after": "1"})
        return _json(b'{"status":"ready"}')

    async def metrics() -> Response:
        slots = models.slots.items()
        loaded: dict[Labels, int] = {(name,): int(slot.served is not None) for name, slot in slots}
        waiting: dict[Labels, int] = {(name,): len(slot.worker) for name, slot in slots}
        text = models.metrics.text(loaded, waiting)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    get = partial(api.add_api_route, methods=["GET"], response_class=Response)
    state, text = schema.StateAnswer, {"text/plain": {"schema": {"type": "string"}}}
    for path, endpoint, summary, responses in (
        ("/models", names, "Their names", _answers(schema.ModelsAnswer, 400, 401, 429, 503)),
        ("/health", health, "Whether the server runs", _answers(state, 400)),
        ("/ready", ready, "Whether all models are loaded", _answers(state, 400, 503)),
        ("/metrics", metrics, "Counts, for Prometheus", _answers(None, 400, 401)),
    ):
        if path == "/metrics":
            responses[200]["content"] = text
        get(path, endpoint, summary=summary, responses=responses)


# ---------------------------------------------------------------------------------- answers


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type=JSON)


def _answers(good: type[BaseModel] | None, *refusals: int) -> dict[int | str, dict[str, Any]]:
    """For the document: every status with what comes with it."""
    told: dict[int | str, dict[str, Any]] = {
        status: {"model": schema.ErrorAnswer, "description": REFUSALS[status]}
        for status in refusals
    }
    answer: dict[str, Any] = {"description": "the answer"}
    return {200: answer if good is None else {**answer, "model": good}, **told}


async def _on_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    content = error_json(error.error, error.hint)
    return Response(content, error.status, headers=error.headers, media_type=JSON)


async def _on_user_error(_request: Request, error: Exception) -> Response:
    return _json(error_json(str(error), getattr(error, "hint", "")), 400)


async def _on_http(request: Request, error: Exception) -> Response:
    """No such address, or not with this method."""
    assert isinstance(error, HTTPException)
    told = {404: "there is nothing at this address", 405: f"this address takes no {request.method}"}
    content = error_json(
        told.get(error.status_code, str(error.detail)), "/docs lists the addresses"
    )
    headers = dict(error.headers or {})
    if "GET" in headers.get("Allow", ""):
        headers["Allow"] += ", HEAD"  # the guard answers it as GET
    return Response(content, error.status_code, headers=headers, media_type=JSON)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    """What FastAPI itself checks: the names of models."""
    assert isinstance(error, RequestValidationError)
    return _json(error_json("that is no name of a model", "GET /models lists the names"), 404)
