"""What needs a person now: when each condition begins and ends, and where it is shown."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from test_browser import state
from test_reload import WITH_TOKENS
from test_reload import told as with_an_operator

from covey.server import keys, tokens
from covey.server.conditions import FAILED_S, REMEDIES, WAITED_S, Conditions
from covey.site.earned import TrustState
from covey.site.status import PeerState, State
from support.required import ROOT
from support.served import Client

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALM = state(peers=[PeerState("east", "open", 0, 0)], failures={"f": 0}, free_bytes=1 << 40)


def of(**changes: Any) -> State:
    return msgspec.structs.replace(CALM, **changes)


def kinds(conditions: Conditions) -> list[tuple[str, str, str]]:
    return [(one.kind, one.subject, one.level) for one in conditions.latest()]


@pytest.mark.parametrize(
    ("given", "kind", "subject", "level"),
    [
        (of(is_ready=False, why="the disk is full"), "store", "", "error"),
        (of(free_bytes=(1 << 30) - 1), "disk", "", "warning"),
        (of(peers=[PeerState("east", "resting", 0, 0)]), "peer", "east", "warning"),
        (of(peers=[PeerState("east", "over_budget", 0, 0)]), "budget", "east", "warning"),
        (of(spent_today=2.0, budget=2.0), "budget", "", "warning"),
        (
            of(trust=[TrustState("east", "parted", 9, 50, "why")]),
            "trust",
            "east",
            "warning",
        ),
        (of(failures={"f": 1}), "function", "f", "warning"),
    ],
)
def test_each_condition_begins_when_it_holds_and_ends_when_it_holds_no_more(
    given: State, kind: str, subject: str, level: str
) -> None:
    conditions = Conditions()
    for now_s, seen in ((0.0, CALM), (10.0, given), (20.0, given)):
        conditions.look(seen, now_s)

    assert kinds(conditions) == [(kind, subject, level)]
    (one,) = conditions.latest()
    assert (one.since, one.remedy) == (10.0, REMEDIES[kind])
    conditions.look(of(failures=given.failures), 10.0 + FAILED_S)
    assert kinds(conditions) == []


def test_labels_that_wait_are_one_after_ten_minutes(tmp_path: Path) -> None:
    conditions, owing = Conditions(), of(peers=[PeerState("east", "not asked", 3, 0)])
    told = []
    for now_s in (0.0, WAITED_S - 1, WAITED_S):
        conditions.look(owing, now_s)
        told.append(kinds(conditions))
    conditions.look(CALM, WAITED_S + 1)
    conditions.look(owing, WAITED_S + 2)

    assert told == [[], [], [("labels", "east", "warning")]]
    assert kinds(conditions) == []  # others than before


def test_a_certificate_and_tokens_are_warnings_before_their_end_and_errors_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.json"
    for name, days in (("soon", 13), ("later", 15), ("over", 1)):
        made = NOW - timedelta(days=2) if name == "over" else NOW
        tokens.new(path, name, scopes=["read"], days=days, now=made)
    keys.new("north", folder=tmp_path, days=20, now=NOW - timedelta(days=7))
    moment = [NOW]
    own = keys.OwnCertificate(tmp_path / "north.crt", tmp_path / "north.key", now=lambda: moment[0])
    conditions = Conditions()
    conditions.certificate, conditions.tokens = own, path
    with caplog.at_level(logging.INFO):
        conditions.look(CALM, NOW.timestamp())
        before = kinds(conditions)
        moment[0] += timedelta(days=14)
        conditions.look(CALM, moment[0].timestamp())
        after = kinds(conditions)
        path.write_text("{}{")
        conditions.certificate = None
        conditions.look(CALM, moment[0].timestamp())

    assert before == [
        ("tokens", "over", "error"),
        ("certificate", "", "warning"),
        ("tokens", "soon", "warning"),
    ]
    assert ("certificate", "", "error") in after
    assert {("tokens", "soon", "error"), ("tokens", "later", "warning")} < set(after)
    assert kinds(conditions) == [("tokens", "", "error")]
    levels = [
        (record.levelname, record.getMessage().partition(" ")[0]) for record in caplog.records
    ]
    assert levels.count(("WARNING", "certificate")) == levels.count(("ERROR", "certificate")) == 1
    assert ("INFO", "over:") in levels


def test_a_site_shows_its_conditions_in_its_state_and_its_metrics(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        (tmp_path / "site.toml").write_text(WITH_TOKENS.replace("[node]", "[node"))
        assert (await client.post("/admin/reload", b""))[0] == 409
        while not (shown := (await client.get("/v2/models/north/state"))[1]["conditions"]):
            pass  # it looks every few moments

        assert [(one["kind"], one["level"]) for one in shown] == [("file", "error")]
        assert "not valid TOML" in shown[0]["text"]
        async with client.session.get(
            f"{client.root}/metrics", headers=client._headers
        ) as response:
            text = await response.text()
        assert 'covey_condition{kind="file"} 1.0' in text
        assert all(f'covey_condition{{kind="{kind}"}}' in text for kind in REMEDIES)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("covey.server.app.NOTED_S", 0.05)
        with_an_operator(tmp_path, story)


def test_there_is_one_alert_for_each_kind_with_its_remedy() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    rules = {
        rule["expr"]: rule["annotations"]["action"].removesuffix(".")
        for group in groups
        for rule in group["rules"]
        if "covey_condition" in rule["expr"]
    }

    assert rules == {
        f'covey_condition{{kind="{kind}"}} > 0': remedy for kind, remedy in REMEDIES.items()
    }
