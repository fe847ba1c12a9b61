"""Commits of requests that are labelled in parts and closed, for tests of stores that fold them."""

import random

from covey.site.requests import Commit, PeerAnswer, Request, RowGroup
from support.requests_of_nodes import request

PHASES = ("train", "explore", "exploit", "serve", "recall")


def some_commits(seed: int) -> list[Commit]:
    """Return commits of requests of one and many rows, labelled in parts and closed in order."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    commits, opened = [], list[Request]()
    number = 0
    for _ in range(12):
        commit = Commit()
        for _ in range(chance.randrange(4)):
            number += 1
            opened.append(some_request(number, chance))
            commit.requests.append(opened[-1])
        for one in chance.sample(opened, len(opened) // 2):
            rows = chance.sample(one.pending, len(one.pending) // 2 + 1) if one.pending else []
            labels = [chance.randrange(2) for _ in rows]
            for row, label in zip(rows, labels, strict=True):
                one.truths[row] = label
            if rows:
                commit.add_labels(one, rows, [bool(label) for label in labels])
        while len(opened) > 5:
            commit.closed.append(opened.pop(chance.randrange(3)).number)
        commits.append(commit)
    return commits


def some_request(number: int, chance: random.Random) -> Request:
    rows = chance.choice([1, 1, 1, 2, 7])
    cells, arms = [f"g4:{k}" for k in range(3)], ["a", "b", "south"]
    source = chance.choice(["", "client/a", "east"])
    ids = [f"{number}:{row}" for row in range(rows)]
    has_row_ids = source == "east" and rows > 1
    asked = {row: chance.choice(["", f"p{number}:{row}"]) for row in range(0, rows, 2)}
    return request(
        number,
        rows=rows,
        source=source,
        id=ids[0],
        row_ids=ids if has_row_ids else None,
        slots=[number] * rows if has_row_ids else None,
        groups=[
            RowGroup(chance.choice(cells), chance.choice(PHASES), chance.choice(arms), 0.0, "south")
            for _ in range(min(rows, 3))
        ],
        group_of=[row % 3 for row in range(rows)],
        peer_answers={row: PeerAnswer("f", id_) for row, id_ in asked.items()},
    )
