"""Static files: the page, the documentation and the OpenAPI document.

All are read once and served from memory, so that no part of a URL is ever used as a path.
"""

from collections.abc import Mapping
from importlib import resources
from itertools import chain

from fastapi import FastAPI, Request, Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException

_MEDIA_TYPES = {  # the system's own table may differ
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
}


def add_static_files(api: FastAPI) -> None:
    """Add ``/``, ``/page/...``, ``/docs`` and ``/openapi.json``, after all other endpoints."""
    files = {**_read_files("page", "/page/"), **_read_files("docs", "/docs/")}
    for path, source in (("/", "/page/index.html"), ("/docs", "/docs/index.html")):
        if source in files:
            files[path] = files[source]
    document = api.openapi()
    for operation in chain.from_iterable(one.values() for one in document["paths"].values()):
        operation["responses"].pop("422", None)  # FastAPI adds it, but this server never sends it
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    files["/openapi.json"] = (to_json(document), "application/json")

    async def respond(request: Request) -> Response:
        file = files.get(request.scope["path"])
        if file is None:
            raise HTTPException(404)
        return Response(file[0], media_type=file[1])

    for path in ("/", "/docs", "/openapi.json", "/page/{path:path}", "/docs/{path:path}"):
        api.add_api_route(path, respond, methods=["GET"], include_in_schema=False)


def _read_files(folder: str, prefix: str) -> Mapping[str, tuple[bytes, str]]:
    """Content and media type of the files in a folder of this package, by URL path."""
    files: dict[str, tuple[bytes, str]] = {}
    serve = resources.files("rankfold.serve")
    home, head = serve / folder, (serve / "head.html").read_bytes()  # every page begins with it
    for entry in home.iterdir() if home.is_dir() else ():
        media_type = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None and entry.is_file():
            start = head if entry.name.endswith(".html") else b""
            files[prefix + entry.name] = (start + entry.read_bytes(), media_type)
    return files
