"""A store of an earlier version becomes one of this version: see UPGRADING.md, "The store".

Version 2 lacks checksums, and the table of arms, which its fingerprint names. From version 1,
tickets become requests of one row, lots become requests, and labels become parts. Counters and
folded sums stay as they are. What an isolated source caused is rebuilt from its tickets and folded
sums in a form that depends on no kernel (`MigratedCell`), as version 1 added it to a copy of the
site's statistics; a node makes its counters of it when it loads the store. Beyond what is said
there, labels that were folded are not among those seen, labels of own clients in cells that only
the source named start anew, and what was folded while the source was pooled counts as its own.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from covey.kernel import CHOICE
from covey.node import tables
from covey.node.database import Database
from covey.node.requests import MigratedCell, PeerAnswer, add_counts
from covey.node.tables import as_text
from covey.types import MEMORY

AT_ONCE = 4096
# Tables and columns of version 1: `desks` has the statistics per source, `lots` the requests of
# many rows, `tickets` those of one row. A ticket is as old as the latest slot of its source; peers
# may name any.
NUMBERS = """
CREATE TABLE numbers (number INTEGER PRIMARY KEY, desk TEXT, ticket INTEGER, lot INTEGER) STRICT;
INSERT INTO numbers (desk, ticket, lot)
SELECT desk, ticket, lot FROM (
  SELECT desk, ticket, NULL AS lot, MAX(slot) OVER (PARTITION BY desk ORDER BY ticket) AS age
  FROM tickets UNION ALL SELECT '', NULL, lot, slot FROM lots
) ORDER BY age, desk, ticket IS NULL, ticket, lot
"""
TICKETS = """
SELECT number, tickets.*, ticket >= oldest FROM numbers CROSS JOIN tickets USING (desk, ticket)
JOIN desks USING (desk) WHERE number BETWEEN ? AND ? ORDER BY number
"""
LOTS = """
INSERT INTO requests SELECT number, source, id, digest, slot, rows, space, kinds, which, NULL,
contexts, predictions, answers, helped, NULL, is_open FROM numbers JOIN lots USING (lot);
INSERT INTO labels SELECT number, part, labels, rows, truths, right
FROM numbers JOIN lot_labels USING (lot)
"""
BEFORE = """
ALTER TABLE site RENAME COLUMN shape TO fingerprint;
ALTER TABLE cells RENAME COLUMN desk TO source;
DELETE FROM cells WHERE source <> ''
"""
AFTER = """
INSERT INTO sources SELECT desk, slot, doubts, latest, NULL FROM desks WHERE desk = '';
DROP TABLE lot_labels; DROP TABLE lots; DROP TABLE tickets; DROP TABLE desks; DROP TABLE numbers
"""
REQUEST = "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LABELS = "INSERT INTO labels VALUES (?, ?, ?, ?, ?, ?)"
SERVED = """
SELECT cell, arm, phase, truth, is_right FROM tickets WHERE desk = ? ORDER BY ticket
"""


def migrate(base: Database, version: int) -> None:
    """Migrate what a connection has open, within its transaction.

    A store of the present version may lack a table that came later. Earlier ones are of SQLite.
    """
    if version == tables.VERSION:
        base.create()
        return
    if version == 1:
        _migrate_tickets(base)
    _add_arms(base)
    _seal(base)


def _add_arms(base: Database) -> None:
    """Fill the table of arms from the fingerprint, which has them in their order."""
    _run(base, tables.BARE)
    for (fingerprint,) in base.execute("SELECT fingerprint FROM site").fetchall():
        lines = [line.partition(": ") for line in fingerprint.splitlines()]
        names = [value for part, _, value in lines if part == "arm"]
        arms = [(name, name, place) for place, name in enumerate(names)]
        base.executemany("INSERT INTO arms VALUES (?, ?, '', NULL, ?, 0, NULL)", arms)


def _seal(base: Database) -> None:
    """Write all tables again, with checksums."""
    known = {name for (name,) in base.execute("SELECT name FROM sqlite_schema")}
    earlier = [name for name in tables.NAMES if name in known]
    for name in earlier:
        base.execute(f"ALTER TABLE {name} RENAME TO earlier_{name}")
    indices = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    for (name,) in base.execute(indices).fetchall():  # they would keep their names
        base.execute(f"DROP INDEX {name}")
    base.create()
    for name in earlier:
        seal = tables.SEALS.get(name, tuple)
        rows = map(seal, base.execute(f"SELECT * FROM earlier_{name}"))
        places = ", ".join("?" for _ in base.execute(f"PRAGMA table_info({name})"))
        base.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
    for name in reversed(earlier):  # labels refer to requests
        base.execute(f"DROP TABLE earlier_{name}")


def _migrate_tickets(base: Database) -> None:
    """Make version 2 of version 1."""
    _run(base, BEFORE)
    _run(base, tables.BARE)
    _run(base, NUMBERS)
    _run(base, LOTS)
    (count,) = base.execute("SELECT COUNT(*) FROM numbers").fetchone()
    for first in range(1, count + 1, AT_ONCE):
        tickets = base.execute(TICKETS, (first, first + AT_ONCE - 1)).fetchall()
        base.executemany(REQUEST, map(_request, tickets))
        labels = [
            (number, 0, 1, bytes(4), _list(truth), bytes([is_right]))
            for number, *_, truth, is_right, _ in tickets
            if truth is not None
        ]
        base.executemany(LABELS, labels)
    isolated = base.execute("SELECT desk, slot FROM desks WHERE desk <> ''").fetchall()
    states = [(source, slot, as_text(_caused_by(base, source))) for source, slot in isolated]
    base.executemany("INSERT INTO sources VALUES (?, ?, '{}', 'null', ?)", states)
    _run(base, AFTER)


def _request(ticket: Sequence[Any]) -> tuple[Any, ...]:
    """Return a ticket with its number as the columns of a request with one row."""
    number, of_peer, _, source, id_, digest, slot, cell, code, phase, arm, function = ticket[:12]
    price, space, context, prediction, answer, peer, peer_ticket, width, *_, is_open = ticket[12:]
    group = (-1 - (code & CHOICE) if of_peer else code, cell, phase, arm, price, peer)
    has_answer = peer_ticket is not None or width or function != (arm or MEMORY)
    answers = as_text({0: PeerAnswer(function, peer_ticket or "", width)}) if has_answer else None
    return (
        number,
        source,
        id_,
        digest,
        slot,
        1,
        space,
        as_text([group]),
        None,
        None,
        array("d", msgspec.json.decode(context)).tobytes(),
        _list(prediction),
        None if answer == prediction else _list(answer),
        answers,
        None,
        is_open,
    )


def _caused_by(base: Database, source: str) -> dict[str, MigratedCell]:
    """Return what an isolated source has caused, by cell."""
    arrivals: Counter[str] = Counter()
    labels: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for cell, arm, phase, truth, is_right in base.execute(SERVED, (source,)):
        arrivals[cell] += phase == "serve"
        if truth is not None:
            seen[cell][truth] += 1
            if phase == "serve":
                add_counts(labels[cell], {arm: (1, is_right)})
    folded = "SELECT cell, arm, labels, right FROM folded WHERE source = ?"
    for cell, arm, count, right in base.execute(folded, (source,)):
        arrivals[cell] += count
        add_counts(labels[cell], {arm: (count, right)})
    decode = msgspec.json.decode
    return {
        cell: MigratedCell(count, labels[cell], [(decode(one), n) for one, n in seen[cell].items()])
        for cell, count in arrivals.items()
    }


def _run(base: Database, statements: str) -> None:
    for statement in statements.split(";"):
        base.execute(statement)


def _list(label: str | None) -> str:
    """Return the JSON list of one label, from its JSON; None: there was no answer."""
    return f"[{'null' if label is None else label}]"
