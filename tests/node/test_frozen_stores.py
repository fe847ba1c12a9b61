"""A store that 0.1.0 wrote is migrated, holds what it held, and the site continues from it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.bandit.learner import UNKNOWN
from covey.node.requests import Request
from covey.node.store import Store
from frozen.reopened import answers_from, decisions_from

STORES = sorted((Path(__file__).parents[1] / "frozen" / "stores").glob("*.store"))
EVERY_STORE = pytest.mark.parametrize("frozen", STORES, ids=lambda path: path.stem)
EVERY_CONTINUED = pytest.mark.parametrize(
    "frozen",
    [path for path in STORES if path.stem not in ("taught", "previous-label")],
    ids=lambda path: path.stem,
)
pytestmark = pytest.mark.beside_the_kernel


def copied(frozen: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return a copy of a store that may be changed, and what is known of it."""
    return Path(shutil.copy(frozen, folder)), json.loads(frozen.with_suffix(".json").read_text())


def request_of(store: Store, source: str, id_: str) -> Request:
    found = store.find(source, id_)
    assert found is not None
    assert found[1] is None
    return found[0]


def row_of(request: Request, row: int) -> list[Any]:
    group, truth = request.group(row), request.truths[row]
    known = None if truth is UNKNOWN else truth
    return [group.cell, group.phase, group.arm, request.function(row), request.answers[row], known]


def test_there_are_stores_and_they_are_small() -> None:
    assert len(STORES) == 12
    assert max(path.stat().st_size for path in STORES) < 200_000


@EVERY_STORE
def test_a_store_of_0_1_0_is_consistent_and_a_copy_of_it_is_kept(
    frozen: Path, tmp_path: Path
) -> None:
    path, _ = copied(frozen, tmp_path)
    store = Store(path, is_new_allowed=False)

    assert store.check() == []
    store.close()
    assert path.with_name(f"{path.name}.v1.bak").exists()


@EVERY_STORE
def test_a_store_of_0_1_0_is_loaded_for_its_site_and_holds_what_it_held(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)
    store = Store(path, is_new_allowed=False)
    loaded = store.load(told["site"], told["shape"])
    counters = [[*key, *counts] for key, counts in sorted(loaded.counters.items())]
    deliveries = [[one.peer, one.id, json.dumps(one.label)] for one in loaded.deliveries]
    states = [[one.source, one.slot] for _, one in sorted(loaded.sources.items())]
    size = store.size()

    assert counters == told["counters"]
    assert deliveries == told["outbox"]
    assert states == [desk[:2] for desk in told["desks"]]
    assert loaded.sources[""].latest == (_pair(told["desks"][0][2]))
    assert {"tickets": size["rows"], "labels": size["labels"], "owed": size["deliveries"]} == told[
        "size"
    ]
    assert size["requests"] == told["tables"]["tickets"] + told["tables"]["lots"]
    assert loaded.starts == told["starts"] + 1
    store.close()


def _pair(text: str) -> tuple[int, Any] | None:
    found = json.loads(text)
    return None if found is None else (found[0], found[1])


@EVERY_STORE
def test_every_id_of_a_store_of_0_1_0_has_its_answers_and_its_labels(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)
    store = Store(path, is_new_allowed=False)
    for source, id_, cell, phase, arm, function, answer, truth, is_right in told["single rows"]:
        request = request_of(store, source, id_)
        expected = [cell, phase, arm, function, _label(answer), _label(truth)]
        row = row_of(request, 0)
        if answer is None:  # no label had been seen
            row[4] = None
        assert (len(request), row) == (1, expected)
        if is_right is not None:
            assert (request.predictions[0] == request.truths[0]) == bool(is_right)
    for source, id_, rows in told["batches"]:
        request = request_of(store, source, id_)
        assert [row_of(request, row) for row in range(len(request))] == rows
    open_ = [
        [source, id_]
        for source, id_, *_ in told["single rows"]
        if request_of(store, source, id_).pending
    ]

    assert open_ == told["open"]
    store.close()


def _label(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@EVERY_CONTINUED
def test_a_site_continues_to_decide_from_its_store_as_0_1_0_did(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)

    assert decisions_from(path, told) == told["next"]


@EVERY_CONTINUED
def test_a_site_continues_to_serve_its_peers_as_0_1_0_did(frozen: Path, tmp_path: Path) -> None:
    """These answers agree for every store.

    Only pooled peers are sure of that. What an isolated peer caused is rebuilt from its rows, so
    its answers may differ where rows were folded (`pruned`: arrivals without a label are not
    counted), where labels are forgotten (windows and discounts start anew), and where the site had
    labels of its own clients in cells that only the peer had named.
    """
    path, told = copied(frozen, tmp_path)

    assert answers_from(path, told) == told["next served"]


@EVERY_CONTINUED
def test_a_site_that_continues_writes_a_store_that_it_loads_again(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)
    decisions_from(path, told)
    store = Store(path)
    loaded = store.load(told["site"], told["shape"])

    assert store.check() == []
    assert loaded.starts == told["starts"] + 2
    assert all(one.migrated is None for one in loaded.sources.values())
    store.close()
