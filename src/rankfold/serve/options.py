"""The options of ``rankfold serve``."""

from rankfold.config import Settings, setting
from rankfold.serve.limits import Limits

_LIMITS = Limits()


class ServeOptions(Settings):
    """Where the server listens, and what it gives to requests."""

    host: str = setting("127.0.0.1", help="address to listen on")
    port: int = setting(8080, at_least=0, at_most=65535, help="0 picks a free port")
    processes: int = setting(
        1, at_least=1, help="processes that answer on the port; they share the models"
    )
    threads: int | None = setting(
        None,
        at_least=1,
        help="threads of a search. Default: all cores but one; with several processes, each has "
        "its share of the cores",
    )
    grace: float = setting(10.0, at_least=0, help="seconds for open requests to finish at shutdown")
    timeout: float = setting(_LIMITS.timeout, at_least=0.1, help="seconds to answer a request")
    max_body: int = setting(_LIMITS.body, at_least=1, help="bytes in a request body")
    max_batch: int = setting(
        _LIMITS.batch, at_least=1, help="queries, histories, texts or candidates in a request"
    )
    max_k: int = setting(_LIMITS.k, at_least=1, help="candidates in a ranking")
    max_text: int = setting(_LIMITS.text, at_least=1, help="characters in a text")
    max_requests: int = setting(_LIMITS.requests, at_least=1, help="requests at the same time")
    memory: float | None = setting(
        None,
        at_least=0,
        help="models of up to this size in GiB are copied to memory, larger ones to disk (TMPDIR). "
        "Default: half of the free memory",
    )
    any_kind: bool = setting(False, help="let a model be replaced by one of another kind of data")

    def limits(self) -> Limits:
        """The limits of a server; those without an option have their defaults."""
        return Limits(
            body=self.max_body,
            batch=self.max_batch,
            k=self.max_k,
            text=self.max_text,
            requests=self.max_requests,
            timeout=self.timeout,
        )
