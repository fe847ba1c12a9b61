"""Sites pay each other for answers: budgets in their files, and statements that agree."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from covey import cli
from covey.cli.statement import MonthlyStatement, month_of, statement_of
from covey.errors import ConfigError
from covey.node.requests import Commit, Payment
from covey.node.store import Store
from covey.server import config
from support.site_processes import SRC, TESTS, Client, Offices, table

pytestmark = pytest.mark.beside_the_kernel

NODE = {"features": {"size": "FP64"}, "dimension": 1}
POLICY = table(
    "[policy]",
    {
        "preset": "cos",
        "slices": 1,
        "explore": {"scale": 0.5, "power": 0.0},
        "train": {"scale": 0.5, "power": 0.0},
        "explore-peers": {"scale": 0.5, "power": 0.0},
    },
)
# It waits for the pipe, where an instance is to be answered too late.
LATE = """
def answer(instance):
    if instance["size"] == 99.0:
        open({pipe!r}).read()
    return 1
"""


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south"])


def north(offices: Offices, *, price: float = 0.1, node: Any = None, **peer: Any) -> str:
    """Return the file of north, whose own function is wrong: it asks south."""
    learner = {"name": "north", "functions": ["zero"], "peers": {"south": price}}
    return "\n".join(
        [
            offices.node("north", **NODE, **(node or {})),
            POLICY,
            table("[[learner]]", learner),
            table("[[function]]", {"name": "zero", "kind": "constant", "label": 0}),
            offices.peer("south", share="data", **peer),
        ]
    )


def south(offices: Offices, *, may_ask: bool = True) -> str:
    function = {"name": "late", "kind": "python", "entry": "late_answers:answer"}
    return "\n".join(
        [
            offices.node("south", **NODE),
            POLICY,
            table("[[learner]]", {"name": "south", "functions": ["late"], "peers": {}}),
            table("[[function]]", function),
            offices.peer("north", **{"may-ask": may_ask}),
        ]
    )


@contextmanager
def running(folder: Path, name: str, text: str, *, end: int = signal.SIGTERM) -> Iterator[Client]:
    """Serve a site in a process; end it with a signal."""
    (folder / f"{name}.toml").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "covey", "serve", str(folder / f"{name}.toml")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SRC, TESTS, folder)))},
    )
    assert process.stderr is not None
    client = Client(process.stderr.readline().strip(), process)
    try:
        yield client
    finally:
        client.close()
        process.send_signal(end)
        process.communicate(timeout=60)


def inputs(*sizes: float) -> list[dict[str, Any]]:
    return [
        {"name": "size", "shape": [len(sizes)], "datatype": "FP64", "data": list(sizes)},
        {
            "name": "context",
            "shape": [len(sizes), 1],
            "datatype": "FP64",
            "data": [0.5] * len(sizes),
        },
    ]


def ask(client: Client, id_: str, *sizes: float, is_labelled: bool = True) -> None:
    client.infer(id_, inputs(*sizes))
    if is_labelled:
        client.label(id_, 1) if len(sizes) == 1 else [
            client.label(f"{id_}:{row}", 1) for row in range(len(sizes))
        ]


def ask_late(client: Client, pipe: Path) -> None:
    """Ask until south works on a request, and let it answer when north has given up."""
    with ThreadPoolExecutor(1) as pool:
        for k in range(50):
            answer = pool.submit(client.infer, f"late{k}", inputs(99.0))
            way = opened(pipe, answer)
            answer.result()
            if way is not None:
                os.close(way)
                return
    raise AssertionError("south was never asked")


def opened(pipe: Path, answer: "Future[Any]") -> int | None:
    while not answer.done():
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nothing reads it yet
            continue
    return None


def statement(folder: Path, name: str, months: set[str]) -> MonthlyStatement:
    parts = [statement_of(folder / f"{name}.store", month_of(month)) for month in sorted(months)]
    return MonthlyStatement(
        parts[0].site,
        "",
        [line for one in parts for line in one.paid],
        [line for one in parts for line in one.received],
        parts[0].unstated,
    )


def lines(found: list[Any]) -> list[tuple[Any, ...]]:
    return [(one.time, one.id, one.rows, one.amount) for one in found]


def this_month() -> str:
    return datetime.now(UTC).strftime("%Y-%m")


def test_the_statements_of_two_sites_agree_line_by_line(offices: Offices) -> None:
    folder, months, pipe = offices.folder, {this_month()}, offices.folder / "pipe"
    os.mkfifo(pipe)
    (folder / "late_answers.py").write_text(LATE.format(pipe=str(pipe)))
    with running(folder, "south", south(offices)):
        with running(folder, "north", north(offices), end=signal.SIGKILL) as client:
            for k in range(20):
                ask(client, f"a{k}", 1.0, is_labelled=k % 4 < 3)
            ask(client, "batch", 1.0, 2.0, 3.0)
        with running(folder, "north", north(offices)) as client:
            ask_late(client, pipe)
            for k in range(10):
                ask(client, f"b{k}", 1.0)
    with (
        running(folder, "south", south(offices, may_ask=False)),  # so every question is refused
        running(folder, "north", north(offices)) as client,
    ):
        before = len(statement(folder, "north", months).paid)
        for k in range(5):
            ask(client, f"c{k}", 1.0)
        while statement(folder, "north", months | {this_month()}).unstated:
            pass  # it takes its time
        shown = client.state()
    months.add(this_month())
    paid, received = (statement(folder, name, months) for name in ("north", "south"))
    with closing(sqlite3.connect(folder / "south.store")) as base:
        ((answered,),) = base.execute("SELECT COUNT(*) FROM requests WHERE source = 'north'")

    assert lines(paid.paid) == lines(received.received)
    assert (len(paid.paid), paid.received, received.paid) == (before, [], [])
    assert before >= 20
    assert max(one.rows for one in paid.paid) == 3
    assert answered > before  # an answer that came too late
    assert shown["peers"][0]["spent_today"] == pytest.approx(sum(one.amount for one in paid.paid))


# -- the file of a site -------------------------------------------------------------------------


def refused(offices: Offices, text: str) -> str:
    (offices.folder / "site.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        config.load(offices.folder / "site.toml")
    return str(error.value)


def test_budgets_are_read_in_millionths(offices: Offices) -> None:
    budget = {"budget": {"per-day": 5.0}}
    text = north(offices, node={"budget": {"per-day": 7.5}}, **budget)
    (offices.folder / "site.toml").write_text(text)

    found = config.load(offices.folder / "site.toml").budgets

    assert (found.peers, found.total) == ({"south": 5_000_000}, 7_500_000)


@pytest.mark.parametrize(
    ("price", "peer", "node", "says"),
    [
        (0.1, {"per-day": 0}, None, "[[peer]] 'south' budget per-day is 0; it must be above 0"),
        (0.1, {"per-day": -1.5}, None, "budget per-day is -1.5; it must be above 0, at most 1e9"),
        (0.1, {"per-week": 5}, None, "per-week"),
        (0.1, 5, None, "budget"),
        (0.1, {"per-day": 0.05}, None, "less than the price 0.1 of one answer"),
        (0.0, {"per-day": 5}, None, "[[peer]] 'south' has a budget, but its answers are free"),
        (0.0, None, {"per-day": 5}, "[node] has a budget, and no peer has a price"),
        (0.1, None, {"per-day": 1e12}, "[node] budget per-day is 1e+12"),
        (0.1, None, {"per-day": "5"}, "[node] budget"),
    ],
)
def test_a_budget_that_cannot_work_is_refused_in_words(
    offices: Offices, price: float, peer: Any, node: Any, says: str
) -> None:
    peers = {} if peer is None else {"budget": peer}
    nodes = {} if node is None else {"budget": node}

    assert says in refused(offices, north(offices, price=price, node=nodes, **peers))


def test_a_budget_for_a_peer_that_is_never_asked_is_refused(offices: Offices) -> None:
    text = north(offices, budget={"per-day": 5}).replace("peers = { south = 0.1 }", "peers = { }")

    assert "has a budget, but it is never asked" in refused(offices, text)


# -- the command --------------------------------------------------------------------------------

NOVEMBER_MS = 1_793_491_200_000  # 2026-11-01
AT_MS = NOVEMBER_MS + 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = Store(tmp_path / "north.store")
    made.load("north", "arm: f")
    made.commit(
        Commit(
            payments=[
                Payment("south", True, "a1", NOVEMBER_MS, 1, 100_000),
                Payment("south", True, "a2:0", AT_MS, 3, 300_000),
                Payment("west", False, "w\x1b1", AT_MS, 2, 20_000),
                Payment("south", True, "early", NOVEMBER_MS - 1, 1, 100_000),
                Payment("south", True, "late", NOVEMBER_MS + 30 * 86_400_000, 1, 100_000),
            ]
        )
    )
    made.close()
    return tmp_path / "north.store"


def test_a_statement_has_the_lines_of_its_month(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["statement", str(store), "--month", "2026-11"])
    shown = capsys.readouterr().out

    assert code == 0
    assert shown.splitlines() == [
        "site north, 2026-11 (UTC)",
        "",
        "paid to peers",
        "time                       peer    id  rows    amount",
        "-----------------------------------------------------",
        "2026-11-01T00:00:00.000Z  south    a1     1  0.100000",
        "2026-11-01T01:00:00.000Z  south  a2:0     3  0.300000",
        "south: 2 requests, 4 rows, 0.400000",
        "",
        "owed by peers",
        "time                      peer   id  rows    amount",
        "---------------------------------------------------",
        "2026-11-01T01:00:00.000Z  west  w?1     2  0.020000",
        "west: 1 requests, 2 rows, 0.020000",
        "",
        "4 payments are not known to the peer yet",
    ]


def test_a_statement_can_be_read_by_programs(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["statement", str(store), "--month", "2026-11", "--json"])
    told = json.loads(capsys.readouterr().out)
    cli.main(["statement", str(store), "--month", "2026-12", "--csv"])
    rows = capsys.readouterr().out.splitlines()

    assert (told["site"], told["month"], told["unstated"]) == ("north", "2026-11", 4)
    assert [one["amount"] for one in told["paid"]] == [0.1, 0.3]
    assert told["received"][0]["peer"] == "west"
    assert rows == [
        "direction,time,peer,id,rows,amount",
        "paid,2026-12-01T00:00:00.000Z,south,late,1,0.1",
    ]


def test_a_statement_of_a_store_in_use_leaves_it_as_it_is(store: Path) -> None:
    with closing(Store(store)) as in_use:
        in_use.load("north", "arm: f")
        in_use.commit(Commit(payments=[Payment("south", True, "new", AT_MS + 1, 1, 100_000)]))

        found = statement_of(store, month_of("2026-11"))

    assert [one.id for one in found.paid] == ["a1", "a2:0", "new"]
    assert sorted(one.name for one in store.parent.iterdir()) == ["north.store"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.store", "--month", "2026-11"], "there is no store missing.store"),
        (["north.store", "--month", "2026-11", "--csv", "--json"], "exclude each other"),
    ],
)
def test_a_wrong_call_is_a_sentence(
    arguments: list[str],
    says: str,
    store: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(store.parent)

    assert cli.main(["statement", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("month", ["2026-13", "2026", "11-2026", "1969-12", "2026-1"])
def test_a_month_that_is_none_is_refused(month: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["statement", "a", "--month", month]) == 2
    assert f"'{month}' is not a month; write it like 2026-11" in capsys.readouterr().err
