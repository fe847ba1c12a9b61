"""Whatever bytes come: no answer of 5xx, nothing learnt from what is refused, and memory flat."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.corpus import CORPUS, counts, fingerprint, mutated, post, site, statuses
from support.served import FEEDBACK, infer

KEPT = [
    post(json.dumps(infer("kept")).encode()),
    post(b'{"id": "kept", "truth": 0}', path=FEEDBACK),
]
MOST_GROWTH_KIB = 8 * 1_024  # of a process of some 60 MiB, once everything has been tried before


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a site that has a ticket and its label."""
    folder = tmp_path_factory.mktemp("site")
    with site(folder) as served:
        assert [statuses(served.exchange(one)) for one in KEPT] == [[200], [202]]
    return folder / "north.store"


def test_what_is_malformed_is_4xx_or_cut_off_and_moves_nothing(store: Path) -> None:
    before = fingerprint(store)
    with site(store.parent) as served:
        answers = served.exchange_all(CORPUS.values())
        for name, answer in zip(CORPUS, answers, strict=True):
            assert all(400 <= status < 500 for status in statuses(answer)), (name, answer)
            assert b"Traceback" not in answer
        assert statuses(served.exchange(KEPT[1])) == [200]  # as before: it still serves

    assert len(CORPUS) > 70
    assert fingerprint(store) == before


def test_closing_the_site_takes_no_longer_than_the_limits(store: Path) -> None:
    with site(store.parent) as served, ThreadPoolExecutor(64) as pool:
        for name, answer in zip(CORPUS, pool.map(served.linger, CORPUS.values()), strict=True):
            assert all(400 <= status < 500 for status in statuses(answer)), (name, answer)


def test_mutated_requests_are_never_5xx_and_only_those_served_leave_a_trace(store: Path) -> None:
    rows, labels = counts(store)
    with site(store.parent) as served:
        answers = [statuses(one) for one in served.exchange_all(mutated(seed=1, count=600))]

    served_ones = sum(status == 200 for answer in answers for status in answer)
    assert max((status for answer in answers for status in answer), default=0) < 500
    assert sum(map(bool, answers)) > 300
    assert rows <= counts(store)[0] <= rows + served_ones
    assert counts(store)[1] == labels


def test_requests_on_one_connection_are_answered_one_by_one(store: Path) -> None:
    good = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with site(store.parent) as served:
        assert statuses(served.linger(good * 50)) == [200] * 50
        smuggled = post(good, more=b"Transfer-Encoding: chunked\r\n")
        assert statuses(served.linger(smuggled + good)) in ([400], [])


def test_memory_stays_flat(store: Path) -> None:
    with site(store.parent) as served:
        grown = []
        for _ in range(3):
            served.exchange_all([*CORPUS.values(), *mutated(seed=2, count=200)])
            grown.append(served.memory_kib())

    assert grown[2] - grown[0] < MOST_GROWTH_KIB


def test_a_flood_of_silent_connections_leaves_room_for_others_soon(store: Path) -> None:
    with site(store.parent) as served, ExitStack() as stack:
        for _ in range(600):
            way = socket.create_connection(("127.0.0.1", served.port), timeout=20)
            stack.enter_context(way)
        while statuses(served.exchange(KEPT[1])) != [200]:
            pass  # until silent ones have been cut off
