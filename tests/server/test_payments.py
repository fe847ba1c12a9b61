"""Sites pay each other for answers: budgets in their files, and statements of their own stores."""

import itertools
import json
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from covey import cli
from covey.cli.stores import Line, month_of, statement_of
from covey.site.requests import Commit, DayPayments
from covey.store.store import Store
from support.coroutines import looped
from support.hanging import gate
from support.served import FEEDBACK, INFER, Client, infer, serving_all
from support.site_processes import Offices, table

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


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south"])


def north(offices: Offices, *, price: float = 0.1, node: Any = None, **peer: Any) -> str:
    """Return the file of north, whose own function is wrong: it asks south."""
    known, learner = offices.peer("south", share="data", **peer), {"peers": {"south": price}}
    return offices.file("north", POLICY, known, learner=learner, **NODE, **(node or {}))


def south(offices: Offices, *, may_ask: bool = True) -> str:
    function = {"name": "late", "kind": "python", "entry": "support.hanging:gate"}
    return "\n".join(
        [
            offices.node("south", **NODE),
            POLICY,
            table("[[learner]]", {"name": "south", "functions": ["late"], "peers": {}}),
            table("[[function]]", function),
            offices.peer("north", **{"may-ask": may_ask}),
        ]
    )


def row(*sizes: float) -> list[dict[str, Any]]:
    count = len(sizes)
    return [
        {"name": "size", "shape": [count], "datatype": "FP64", "data": list(sizes)},
        {"name": "context", "shape": [count, 1], "datatype": "FP64", "data": [0.5] * count},
    ]


async def ask(client: Client, ids: Iterable[str]) -> None:
    for id_ in ids:
        assert (await client.post(INFER, infer(id_, inputs=row(1.0))))[0] == 200
        assert (await client.post(FEEDBACK, {"id": id_, "truth": 1}))[0] == 202


async def ask_late(client: Client) -> None:
    """Ask until south works on a request, which it answers when north has given up."""
    gate.shut()
    try:
        for number in itertools.count():
            await client.post(INFER, infer(f"late{number}", inputs=row(1.0)))
            if gate.is_called.is_set():
                return
    finally:
        gate.open()


def lines_of(folder: Path, name: str, months: Iterable[str]) -> tuple[list[Line], list[Line]]:
    """Return what a site has paid and earned."""
    found = [statement_of(folder / name / f"{name}.store", month_of(month)) for month in months]
    return [line for one in found for line in one.paid], [
        line for one in found for line in one.earned
    ]


def this_month() -> str:
    return datetime.now(UTC).strftime("%Y-%m")


@looped
async def test_the_statements_of_two_sites_agree_but_for_answers_that_came_too_late(
    offices: Offices,
) -> None:
    folder, months = offices.folder, {this_month()}
    usual = {"south": south(offices), "north": north(offices)}
    hasty = {"south": south(offices), "north": north(offices, node={"timeout-s": 1.0})}
    refused = {"south": south(offices, may_ask=False), "north": north(offices)}

    async with serving_all(folder, usual) as clients:
        await ask(clients["north"], (f"a{k}" for k in range(20)))
        await clients["north"].post(INFER, infer("batch", inputs=row(1.0, 2.0, 3.0)))
    async with serving_all(folder, hasty) as clients:
        await ask_late(clients["north"])
    async with serving_all(folder, refused) as clients:
        await ask(clients["north"], (f"c{k}" for k in range(5)))
        _, state = await clients["north"].get("/v2/models/north/state")
        spent = float(state["peers"][0]["spent_today"])
    months.add(this_month())
    paid, _ = lines_of(folder, "north", sorted(months))
    _, earned = lines_of(folder, "south", sorted(months))
    with closing(Store(folder / "north" / "north.store")) as store:
        asked = [answer for request in store.requests() for answer in request.peer_answers.values()]
    ids = [answer.id for answer in asked if answer.id]
    with closing(Store(folder / "south" / "south.store")) as store:
        found = store.find_many("north", ids)

    assert sum(line.rows for line in paid) == len(ids) >= 15
    assert sum(line.amount for line in paid) == pytest.approx(0.1 * len(ids))
    assert [found[id_][0].price for id_ in ids] == [100_000] * len(ids)
    assert sum(line.rows for line in earned) > len(ids)  # an answer that came too late
    assert spent == pytest.approx(0.1 * len(ids))


# -- the command --------------------------------------------------------------------------------

NOVEMBER = 20_758  # days since the epoch


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = Store(tmp_path / "north.store")
    made.load("north", "arm: f")
    made.commit(
        Commit(
            [
                DayPayments(True, NOVEMBER, "south", 1, 1, 100_000),
                DayPayments(True, NOVEMBER + 1, "south", 1, 3, 300_000),
                DayPayments(False, NOVEMBER + 1, "west", 1, 2, 20_000),
                DayPayments(True, NOVEMBER - 1, "south", 1, 1, 100_000),
                DayPayments(True, NOVEMBER + 30, "south", 1, 1, 100_000),
            ]
        )
    )
    made.close()
    return tmp_path / "north.store"


def test_a_statement_has_the_days_of_its_month(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["statement", str(store), "--month", "2026-11"])
    shown = capsys.readouterr().out

    assert code == 0
    assert shown.splitlines() == [
        "site north, 2026-11 (UTC)",
        "",
        "paid to peers",
        "day          peer  requests  rows    amount",
        "-------------------------------------------",
        "2026-11-01  south         1     1  0.100000",
        "2026-11-02  south         1     3  0.300000",
        "south: 2 requests, 4 rows, 0.400000",
        "",
        "earned from peers",
        "day         peer  requests  rows    amount",
        "------------------------------------------",
        "2026-11-02  west         1     2  0.020000",
        "west: 1 requests, 2 rows, 0.020000",
    ]


def test_a_statement_can_be_read_by_programs(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["statement", str(store), "--month", "2026-11", "--json"])
    told = json.loads(capsys.readouterr().out)
    cli.main(["statement", str(store), "--month", "2026-12", "--csv"])
    rows = capsys.readouterr().out.splitlines()

    assert (told["site"], told["month"]) == ("north", "2026-11")
    assert [one["amount"] for one in told["paid"]] == [0.1, 0.3]
    assert told["earned"][0]["peer"] == "west"
    assert rows == ["direction,day,peer,requests,rows,amount", "paid,2026-12-01,south,1,1,0.1"]


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
