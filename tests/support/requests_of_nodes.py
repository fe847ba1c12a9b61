"""Requests and commits as a node would make them, for tests of its store."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.bandit.learner import UNKNOWN
from covey.site.requests import Commit, Request, RowGroup


def request(number: int = 1, *, rows: int = 1, **fields: Any) -> Request:
    """Return a request whose rows all have the prediction 1, if `fields` have no other."""
    phase, prediction = fields.pop("phase", "explore"), fields.pop("prediction", 1)
    predictions = fields.pop("predictions", [prediction] * rows)
    usual = {
        "number": number,
        "source": "",
        "id": f"t{number}",
        "slot": number,
        "groups": [RowGroup("g4:1", phase, "f", 0.0)],
        "group_of": [0] * rows,
        "contexts": [(0.3,)] * rows,
        "predictions": predictions,
        "answers": predictions,
        "truths": [UNKNOWN] * rows,
    }
    return Request(**(usual | fields))


def commit_of(
    requests: Sequence[Request], truths: Mapping[int, Sequence[Any]] | None = None
) -> Commit:
    """Return a commit of requests and of labels of their first rows; None: it has not arrived."""
    commit = Commit(requests=list(requests))
    numbered = {one.number: one for one in requests}
    for number, labels in (truths or {}).items():
        one = numbered[number]
        rows = [row for row, label in enumerate(labels) if label is not None]
        for row in rows:
            one.truths[row] = labels[row]
        right = [one.predictions[row] == labels[row] for row in rows]
        commit.add_labels(one, rows, right)
    return commit
