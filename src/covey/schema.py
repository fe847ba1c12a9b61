"""The tables of a store, and the statements that count labels in them."""

from functools import cache

APPLICATION = 0x636F7679  # "covy"
VERSION = 1
UNCOUNTED = ("train", "recall")  # phases whose labels move no counter of an arm

SCHEMA = """
CREATE TABLE site (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  name TEXT NOT NULL,
  shape TEXT NOT NULL,
  starts INTEGER NOT NULL CHECK (starts >= 0)
) STRICT;
CREATE TABLE desks (
  desk TEXT PRIMARY KEY,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  oldest INTEGER NOT NULL CHECK (oldest >= 1),
  following INTEGER NOT NULL CHECK (following >= oldest),
  doubts TEXT NOT NULL,
  latest TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE cells (
  desk TEXT NOT NULL,
  space TEXT NOT NULL,
  line INTEGER NOT NULL CHECK (line >= 0),
  name TEXT NOT NULL,
  counters TEXT NOT NULL,
  seen TEXT NOT NULL,
  PRIMARY KEY (desk, space, line)
) STRICT, WITHOUT ROWID;
CREATE TABLE tickets (
  desk TEXT NOT NULL,
  ticket INTEGER NOT NULL CHECK (ticket >= 1),
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  cell TEXT NOT NULL,
  code INTEGER NOT NULL CHECK (code >= 0),
  phase TEXT NOT NULL CHECK (phase IN ('train', 'explore', 'exploit', 'serve', 'recall')),
  arm TEXT NOT NULL,
  function TEXT NOT NULL,
  price REAL NOT NULL,
  space TEXT NOT NULL,
  context TEXT NOT NULL,
  prediction TEXT,
  answer TEXT,
  peer TEXT NOT NULL,
  peer_ticket TEXT,
  width INTEGER NOT NULL,
  truth TEXT,
  is_right INTEGER CHECK (is_right IN (0, 1)),
  CHECK ((truth IS NULL) = (is_right IS NULL)),
  PRIMARY KEY (desk, ticket),
  UNIQUE (source, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE lots (
  lot INTEGER PRIMARY KEY CHECK (lot >= 1),
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  rows INTEGER NOT NULL CHECK (rows >= 1),
  space TEXT NOT NULL,
  kinds TEXT NOT NULL,
  which BLOB NOT NULL CHECK (length(which) = 4 * rows),
  contexts BLOB NOT NULL CHECK (length(contexts) % (8 * rows) = 0),
  predictions TEXT NOT NULL,
  answers TEXT,
  helped TEXT,
  is_open INTEGER NOT NULL CHECK (is_open IN (0, 1)),
  UNIQUE (source, id)
) STRICT;
CREATE TABLE lot_labels (
  lot INTEGER NOT NULL REFERENCES lots,
  part INTEGER NOT NULL CHECK (part >= 0),
  labels INTEGER NOT NULL CHECK (labels >= 1),
  rows BLOB NOT NULL CHECK (length(rows) = 4 * labels),
  truths TEXT NOT NULL,
  right BLOB NOT NULL CHECK (length(right) = labels),
  PRIMARY KEY (lot, part)
) STRICT, WITHOUT ROWID;
CREATE TABLE counters (
  cell TEXT NOT NULL,
  source TEXT NOT NULL,
  arm TEXT NOT NULL,
  labels INTEGER NOT NULL CHECK (labels >= 1),
  right INTEGER NOT NULL CHECK (right BETWEEN 0 AND labels),
  PRIMARY KEY (cell, source, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE folded (
  cell TEXT NOT NULL,
  source TEXT NOT NULL,
  arm TEXT NOT NULL,
  labels INTEGER NOT NULL CHECK (labels >= 1),
  right INTEGER NOT NULL CHECK (right BETWEEN 0 AND labels),
  PRIMARY KEY (cell, source, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE folded_asked (
  cell TEXT NOT NULL,
  peer TEXT NOT NULL,
  answers INTEGER NOT NULL CHECK (answers >= 1),
  labels INTEGER NOT NULL CHECK (labels BETWEEN 0 AND answers),
  PRIMARY KEY (cell, peer)
) STRICT, WITHOUT ROWID;
CREATE TABLE outbox (
  peer TEXT NOT NULL,
  id TEXT NOT NULL,
  label TEXT NOT NULL,
  PRIMARY KEY (peer, id)
) STRICT, WITHOUT ROWID;
"""
FOLD = f"""
SELECT cell, source, arm, COUNT(*), SUM(is_right) FROM tickets
WHERE truth IS NOT NULL AND phase NOT IN {UNCOUNTED} GROUP BY cell, source, arm
"""  # noqa: S608 - phases are constants
COUNT_MANY = """
INSERT INTO counters VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET labels = labels + excluded.labels, right = right + excluded.right
"""
LABELS = """
(SELECT column1 AS desk, column2 AS ticket, column3 AS truth, column4 AS is_right
FROM (VALUES {rows})) AS told
"""
LABEL = f"""
UPDATE tickets SET truth = told.truth, is_right = told.is_right FROM {LABELS}
WHERE tickets.desk = told.desk AND tickets.ticket = told.ticket AND tickets.truth IS NULL
"""  # noqa: S608 - no value is in it
COUNT = f"""
INSERT INTO counters SELECT cell, source, arm, COUNT(*), SUM(told.is_right)
FROM {LABELS} CROSS JOIN tickets
WHERE tickets.desk = told.desk AND tickets.ticket = told.ticket AND phase NOT IN {UNCOUNTED}
GROUP BY cell, source, arm
ON CONFLICT DO UPDATE SET labels = labels + excluded.labels, right = right + excluded.right
"""  # noqa: S608 - no value is in it


@cache
def values(columns: int, rows: int) -> str:
    """Return the places of so many rows in a statement."""
    return ", ".join(["(" + ", ".join("?" * columns) + ")"] * rows)


@cache
def for_labels(statement: str, rows: int) -> str:
    """Return `LABEL` or `COUNT` for so many labels."""
    return statement.format(rows=values(4, rows))
