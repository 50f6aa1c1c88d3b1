"""The page, the documentation and the OpenAPI document, from memory: no address is ever a path."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException

KINDS = {  # not what the system may say of them
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
}


def add_files(api: FastAPI) -> None:
    """``/``, ``/page/...``, ``/docs`` and ``/openapi.json``, of what the application has by now."""
    files = {**read_files("page", "/page/"), **read_files("docs", "/docs/")}
    for address, source in (("/", "/page/index.html"), ("/docs", "/docs/index.html")):
        if source in files:
            files[address] = files[source]
    files["/openapi.json"] = (to_json(described(api)), "application/json")

    async def file(request: Request) -> Response:
        found = files.get(request.scope["path"])
        if found is None:
            raise HTTPException(404)
        return Response(found[0], media_type=found[1])

    for address in ("/", "/docs", "/openapi.json", "/page/{path:path}", "/docs/{path:path}"):
        api.add_api_route(address, file, methods=["GET"], include_in_schema=False)


def described(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, without the answer that FastAPI would give and this server does not."""
    document = api.openapi()
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return document


def read_files(folder: str, prefix: str) -> Mapping[str, tuple[bytes, str]]:
    """Content and type of the files of a folder of this package; of no other kinds than known."""
    found: dict[str, tuple[bytes, str]] = {}
    home = resources.files("rankfold.serve") / folder
    for entry in home.iterdir() if home.is_dir() else ():
        kind = KINDS.get(entry.name.rpartition(".")[2])
        if kind is not None and entry.is_file():
            found[prefix + entry.name] = (entry.read_bytes(), kind)
    return found
