"""The paths for clients: scopes, request and response types, problems."""

from typing import Any, NamedTuple

from covey import messages
from covey.node.status import State

LIVE, READY = "/v2/health/live", "/v2/health/ready"
OPEN_PATHS = frozenset([LIVE, READY])  # that need no token
TEXT = str  # what a path gives that gives no JSON object
DOCUMENT = dict[str, Any]
# Codes of problems that any request may get.
EVERYWHERE = frozenset(
    [
        "bad_http",
        "broken_body",
        "no_token",
        "not_allowed",
        "too_slow",
        "too_large",
        "media_type",
        "too_often",
        "head_too_large",
        "unexpected",
        "busy",
    ]
)
# Problems of unknown paths.
NOWHERE = {"not_found": 404, "model_unknown": 404, "method": 405}
CODES = {
    "bad_http": 400,
    "bad_json": 400,
    "broken_body": 400,
    "no_token": 401,
    "not_allowed": 403,
    "ticket_unknown": 404,
    "too_slow": 408,
    "conflict": 409,
    "label_too_late": 410,
    "too_large": 413,
    "too_many_rows": 413,
    "media_type": 415,
    "invalid": 422,
    "too_often": 429,
    "head_too_large": 431,
    "unexpected": 500,
    "function_failed": 500,
    "busy": 503,
    "store_failed": 503,
    "store_full": 507,
    **NOWHERE,
}
STORE = frozenset(["store_failed", "store_full"])


class Route(NamedTuple):
    """One path."""

    name: str
    method: str
    path: str  # in which {model} stands for the name of the site
    says: str
    gives: dict[int, Any]
    takes: Any = None
    takes_bytes: bool = False  # tensors in bytes after the JSON
    gives_bytes: bool = False
    scopes: frozenset[str] = frozenset()  # one of which a client must have; none: any client
    problems: frozenset[str] = frozenset()  # beyond those that are possible everywhere

    def at(self, model: str) -> str:
        """Return the path at a site."""
        return self.path.replace("{model}", model)

    def codes(self) -> frozenset[str]:
        """Return the codes of the problems that it may give."""
        if self.path in OPEN_PATHS:
            return EVERYWHERE - {"no_token"}
        return EVERYWHERE | self.problems


ROUTES = (
    Route("live", "GET", LIVE, "Whether the server runs.", {200: messages.Live}),
    Route(
        "ready", "GET", READY, "Whether it can serve.", dict.fromkeys((200, 503), messages.Ready)
    ),
    Route("server", "GET", "/v2", "What the server is.", {200: messages.Server}),
    Route("server", "GET", "/v2/", "What the server is.", {200: messages.Server}),
    Route("openapi", "GET", "/v2/openapi.json", "This document.", {200: DOCUMENT}),
    Route("model", "GET", "/v2/models/{model}", "What the model takes.", {200: messages.Model}),
    Route(
        "ready",
        "GET",
        "/v2/models/{model}/ready",
        "Whether the model can serve.",
        dict.fromkeys((200, 503), messages.Ready),
    ),
    Route(
        "state",
        "GET",
        "/v2/models/{model}/state",
        "The state of the site.",
        {200: State},
        scopes=frozenset(["read"]),
    ),
    Route(
        "infer",
        "POST",
        "/v2/models/{model}/infer",
        "Labels for instances, with the tickets under which true labels are sent.",
        {200: messages.Answer},
        takes=messages.Inference,
        takes_bytes=True,
        gives_bytes=True,
        scopes=frozenset(["infer"]),
        problems=STORE | {"bad_json", "conflict", "function_failed", "invalid", "too_many_rows"},
    ),
    Route(
        "feedback",
        "POST",
        "/v2/models/{model}/feedback",
        "True labels of a ticket, or of rows: 202 if any is new, 200 if all were known.",
        dict.fromkeys((200, 202), messages.Settled),
        takes=messages.Feedback,
        takes_bytes=True,
        scopes=frozenset(["feedback", "feedback-any"]),
        problems=STORE
        | {
            "bad_json",
            "conflict",
            "function_failed",
            "invalid",
            "label_too_late",
            "ticket_unknown",
            "too_many_rows",
        },
    ),
    Route(
        "metrics",
        "GET",
        "/metrics",
        "Counters and times for Prometheus.",
        {200: TEXT},
        scopes=frozenset(["metrics"]),
    ),
)
