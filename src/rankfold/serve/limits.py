"""How much a request may ask for, and how long it may take."""

import sys
from dataclasses import dataclass, replace

from rankfold.errors import UserError

_OTHER_FILES = 128  # open files other than connections, or connections that are being refused
_FILES_PER_MODEL = 32  # the files of a model and of the one that replaces it


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest requests that the server accepts, and its timeouts."""

    body: int = 2**20  # bytes
    batch: int = 256  # queries, histories, texts or candidates in a request
    rows: int = 2048  # rows to grade in a request
    k: int = 1000
    results: int = 50_000  # in a response: rankings times k
    explained: int = 1000  # results with explanations in a response
    explained_values: int = 50_000  # in a request: rows to explain times columns
    compared: int = 20_000_000  # for quotas and diversity: results times candidates they are from
    keys: int = 10_000  # in a history, in exclude, in allow
    excluded: int = 500_000  # in a request: rankings times keys in exclude
    text: int = 10_000  # characters in a text
    requests: int = 512  # at the same time
    waiting: int = 256  # of these, for one model
    connections: int = 1024
    headers: int = 2**15  # bytes of the request line and the headers
    timeout: float = 10.0  # seconds from the last byte of a request to its response
    receive_timeout: float = 10.0  # seconds for the headers, and again for the body
    idle_timeout: float = 15.0  # seconds between two requests on a connection


def fit_open_files(limits: Limits, n_models: int) -> Limits:
    """Limits whose connections fit into the number of files that the process may open.

    That number is raised if the system lets the process do it. Beyond it, connections would be
    reset instead of refused with an error.
    """
    if sys.platform == "win32":  # which has no such limit
        return limits
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = _OTHER_FILES + _FILES_PER_MODEL * n_models
    wanted = others + limits.connections
    if resource.RLIM_INFINITY != soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft <= others:
            raise UserError(
                f"a server of {n_models} models needs more than {others} open files, and "
                f"{soft} are allowed",
                hint=f"`ulimit -n {wanted}` allows enough",
            )
        return replace(limits, connections=min(limits.connections, soft - others))
    return limits
