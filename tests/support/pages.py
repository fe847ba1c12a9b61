"""Pages as readers see them: of a state with everything in it, and with nasty names."""

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from covey.node.status import ArmState, PeerState, ServedState, State
from covey.server import page

NASTY = "</title><script>alert('1')</script>\"'&<img src=x onerror=alert(2)>\u202e\x00"
MOMENT = datetime(2026, 11, 17, 12, 30, 5, tzinfo=UTC)


class Reading(HTMLParser):
    """Collects the elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value or "" for _, key, value in self.attributes if key == name]


def state(name: str = "north", **changes: Any) -> State:
    fields: dict[str, Any] = {
        "name": name,
        "is_ready": True,
        "starts": 3,
        "uptime_s": 93_784.0,
        "slot": 12_345,
        "alarms": 1,
        "alarm_slot": 900,
        "alarms_total": 2,
        "alarm_slots": [40, 900],
        "phases": {"explore": 25, "exploit": 75},
        "arms": [
            ArmState("tree", "own", 0.0, 60, 7, 0.0, 50, 40),
            ArmState("forest", "own", 0.25, 10, 0, 2.5, 10, 9),
            ArmState("east", "peer", 0.1, 30, 0, 3.0, 40, 39),
        ],
        "peers": [
            PeerState("east", "resting", 4, 11, 1.5, 20.0),
            PeerState("west", "not asked", 0, 2),
        ],
        "open_tickets": 17,
        "cells": 8,
        "owed": 4,
        "for_peers": ServedState(0, 0, 0),
    }
    return State(**fields | changes)


def shown(given: State, **changes: Any) -> Reading:
    content = page.PageContent(given, MOMENT, **changes)
    return Reading(page.page(content).body.decode())
