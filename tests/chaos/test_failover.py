"""Two nodes and two PostgreSQL servers: whichever fails, nothing that was acknowledged is lost."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from chaos.failover import Pair, fail_often, pair, site
from chaos.kill import until
from covey import cli
from covey.errors import StoreError
from covey.site.requests import Commit
from covey.store.store import Store
from support.requests_of_nodes import commit_of, request


@pytest.fixture(scope="module")
def base() -> Iterator[Pair]:
    with pair() as made:
        yield made


def test_connections_nodes_and_servers_fail_under_load_and_no_label_is_lost() -> None:
    outcome = fail_often(1)

    assert outcome.acknowledged > 20
    assert (outcome.connections_ended, outcome.nodes_killed, outcome.servers_killed) == (1, 1, 1)
    assert set(outcome.exits) <= {74, -9}
    assert (outcome.lost, outcome.twice, outcome.disagreements) == (0, 0, [])


def test_the_doctor_says_whether_a_synchronous_standby_follows(
    base: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "site.toml"
    path.write_text(site(base.url))
    codes = [cli.main(["doctor", str(path)])]
    with psycopg.connect(base.primary.url(), autocommit=True) as primary:
        primary.execute("CREATE ROLE plain LOGIN")
    path.write_text(site(base.url.replace("postgres@", "plain@")))
    codes.append(cli.main(["doctor", str(path)]))
    base.standby.end()
    until(lambda: base.ask("SELECT COUNT(*) FROM pg_stat_replication") == 0)
    path.write_text(site(base.url))
    codes.append(cli.main(["doctor", str(path)]))
    base.standby.start()
    told = [line for line in capsys.readouterr().out.splitlines() if " standby " in line]

    assert codes == [0, 0, 1]
    assert "1 synchronous, of 'other'" in told[0]
    assert "the role may not see (GRANT pg_monitor TO it)" in told[1]
    assert "commits wait for 'other', and no such standby follows; start it" in told[2]


def test_a_commit_that_stops_waiting_for_the_standby_is_not_acknowledged(base: Pair) -> None:
    with closing(Store(base.url)) as store:
        store.load("north", "fingerprint")
        store.commit(commit_of([request(1)]))
        base.standby.end()
        failed: list[StoreError] = []
        thread = Thread(target=_commit, args=(store, failed))
        thread.start()
        waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: base.ask(waiting) == 1)
        base.ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        thread.join()

    (error,) = failed
    assert "canceling wait for synchronous replication" in str(error)


def _commit(store: Store, failed: list[StoreError]) -> None:
    try:
        store.commit(commit_of([request(2)]))
    except StoreError as error:
        failed.append(error)


def test_a_url_of_two_servers_finds_the_one_that_can_be_written(base: Pair) -> None:
    first, second = base.url.split("@")[1].split("/")[0].split(",")
    turned = base.url.replace(f"{first},{second}", f"{second},{first}")
    if not base.standby.is_running:
        base.standby.start()

    with closing(Store(turned)) as store:
        store.load("north", "fingerprint")
        store.commit(Commit())

        with psycopg.connect(turned, target_session_attrs="read-write") as found:
            assert found.info.port == base.primary.port
