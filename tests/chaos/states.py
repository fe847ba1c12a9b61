"""The state of a node as it is compared: before and after a message, in memory and in a store."""

from typing import Any

from covey.kernel import doubts_of
from covey.site.requests import OWN
from covey.site.state import StoredState
from support.tables import rows_of


def picture(state: StoredState) -> dict[str, Any]:
    """Return all that decides how a node continues, by name."""
    overlays, earned = state.sources._overlays, state.sources.earned
    tables = {OWN: state.learner.tables} | {name: one.tables for name, one in overlays.items()}
    slots = {OWN: state.learner.slot} | {name: one.slot for name, one in overlays.items()}
    return {
        "slots": slots,
        "cells": {
            (source, space): rows_of(table)
            for source, spaces in tables.items()
            for space, table in spaces.items()
        },
        "changes": {source: doubts_of(spaces) for source, spaces in tables.items()},
        "open requests": {
            request.number: list(request.truths)
            for queue in state.open.queues.values()
            for request in queue
        },
        "answers of peers": dict(state.changes.answers),
        "pending rows": state.open.pending_rows,
        "latest label": state.latest_label,
        "trust": {} if earned is None else earned._relations,
    }
