"""`covey status` prints the state of a node, or an error."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey import cli
from covey.cli import serve
from covey.errors import ConfigError, PeerError
from covey.report.text import NONE
from covey.server import keys, tokens
from support.ports import free_port
from support.served import FEEDBACK, INFER, SITE, Client, infer, run, serving

ARM = ("name", "kind", "price", "decisions", "served", "spent", "labels", "right")
FULL: dict[str, Any] = {
    "name": "north",
    "is_ready": True,
    "starts": 3,
    "uptime_s": 93784.2,
    "slot": 12345,
    "alarms": 2,
    "alarm_slot": 12001,
    "phases": {"exploit": 900, "train": 60, "explore": 40},
    "arms": [
        dict(zip(ARM, ("rules", "own", 0.0, 700, 1650, 0.0, 640, 512), strict=True)),
        dict(zip(ARM, ("west", "context_only", None, 300, 0, 15.0, 0, 0), strict=True)),
    ],
    "peers": [
        {"name": "south", "state": "open", "owed": 0, "asked": 12},
        {"name": "west", "state": "resting", "owed": 17, "asked": 1650},
        {"name": "east", "state": "not asked", "owed": 0, "asked": 0},
    ],
    "open_tickets": 42,
    "cells": 8,
    "owed": 17,
    "for_peers": {"open_tickets": 3, "labels": 1650, "cells": 2},
    "alarms_total": 5,
}
SHOWN = """\
site north, ready

slot                  12,345
starts                3
known cells           8
open tickets          42
undelivered labels    17
alarms*               2
alarms of all starts  5
slot of last alarm    12,001
labels from peers     1,650
open tickets of peers 3
extra cells for peers 2
up for                1 d 2 h 3 min 4 s

phase    decisions*  share %
----------------------------
train            60      6.0
explore          40      4.0
exploit         900     90.0

arm            kind  price  chosen*  for peers*  spent*  labels  right %
------------------------------------------------------------------------
rules           own      0      700       1,650    0.00     640     80.0
west   context only      ~      300           0   15.00       0        ~

peer       state  rows asked*  undelivered labels
-------------------------------------------------
south       open           12                   0
west     resting        1,650                  17
east   not asked            0                   0

* since the start; labels are of all starts""".replace("~", NONE)


def test_a_state_is_printed_as_tables() -> None:
    assert serve.status_text(json.dumps(FULL).encode()) == SHOWN


def test_peers_with_earned_trust_are_listed_with_the_reason() -> None:
    trust = {"source": "west", "state": "parted", "since": 412, "pairs": 1_200, "why": "it lies"}
    body = json.dumps({**FULL, "trust": [trust]}).encode()

    lines = [" ".join(line.split()) for line in serve.status_text(body).splitlines() if line]
    *_, head, _, line, _ = lines

    assert head == "labels of are since slot compared why"
    assert line == "west parted 412 1,200 it lies"


def test_facts_of_the_shadow_are_shown_where_rows_are_drawn_and_nothing_of_none() -> None:
    shadow = {"share": 0.05, "complete": 0, "incomplete": 0, "dropped": 3, "waiting": 0}
    shown = serve.status_text(json.dumps({**FULL, "alarm_slot": 0, "shadow": shadow}).encode())
    lines = shown.split("\n\n")[1].splitlines()

    assert [line[22:] for line in lines if "shadow" in line] == ["0.05"]
    assert [line[:22].strip() for line in lines[-2:]] == ["with all answers*", "dropped*"]
    assert "slot of last alarm" not in shown


def test_names_cannot_steer_the_terminal() -> None:
    peers = [{**FULL["peers"][0], "name": "a\nb"}]
    state = {**FULL, "name": "\x1b[2Jnorth", "peers": peers}
    shown = serve.status_text(json.dumps(state).encode())

    assert "\x1b" not in shown
    assert "a\ufffdb" in shown


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"name": "north"}', b'{"name": 3}', b"[" * 9999]
)
def test_an_invalid_state_is_an_error(body: bytes) -> None:
    with pytest.raises(PeerError, match="not the state of a covey node"):
        serve.status_text(body)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("north", "write http://host:port"),
        ("ftp://north/v2/models/north", "write http://host:port"),
        ("http://127.0.0.1:99999/v2/models/north", "write http://host:port"),
        ("http://me:word@127.0.0.1/v2/models/north", "contains a user name or a password"),
        ("http://127.0.0.1:8080", "is not the URL of a model"),
        ("http://127.0.0.1:8080/v2/models/north/infer", "is not the URL of a model"),
        ("http://north.example/v2/models/north", "token would be sent unencrypted"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_before_anything_is_sent(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        serve.client(url, token="covey_secret")  # noqa: S106


def test_an_unreachable_node_gives_a_message_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = free_port()

    code = cli.main(["status", f"http://127.0.0.1:{port}/v2/models/north"])

    assert code == 2
    assert capsys.readouterr().err == (
        f"covey: http://127.0.0.1:{port}/v2/models/north: no response: Connection refused\n"
    )


def test_the_state_of_a_node_is_requested_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))
        await client.post(FEEDBACK, {"id": "a", "truth": 0})
        url = f"{client.root}/v2/models/north"

        assert await asyncio.to_thread(cli.main, ["status", url]) == 0
        assert await asyncio.to_thread(cli.main, ["status", f"{url}/state/", "--json"]) == 0
        assert await asyncio.to_thread(cli.main, ["status", f"{url[:-5]}south"]) == 2

    run(tmp_path, story)

    shown, said = capsys.readouterr()
    assert "status 404; give the URL that `covey serve` prints" in said
    assert shown.startswith("site north")
    assert "slot                  1\n" in shown
    assert json.loads(shown.splitlines()[-1])["name"] == "north"


# -- with TLS and tokens ------------------------------------------------------------------------


def guarded(folder: Path, story: Callable[[str], None]) -> None:
    """Tell a story of a node with TLS and tokens, which is given the URL of its model."""
    keys.new("north", hosts=["127.0.0.1"], folder=folder)
    for name, scope in (("watch", "read"), ("camera", "infer")):
        secret, _ = tokens.new(folder / "tokens.json", name, scopes=[scope])
        (folder / f"{name}.token").write_text(f"{secret}\n")
    more = (
        'dimension = 1\ntls = true\ntokens = "tokens.json"\ncertificate = "north.crt"\n'
        'key = "north.key"'
    )

    async def main() -> None:
        text = SITE.replace("dimension = 1", more)
        async with serving(folder, text, ca=folder / "north.crt") as client:
            await asyncio.to_thread(story, f"{client.root}/v2/models/north")

    asyncio.run(main())


def test_a_token_comes_from_a_file_or_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = ["--ca", str(tmp_path / "north.crt")]

    def story(url: str) -> None:
        token = ["--token-file", str(tmp_path / "watch.token")]
        assert cli.main(["status", url, *trust, *token]) == 0
        monkeypatch.setenv("COVEY_TOKEN", (tmp_path / "watch.token").read_text().strip())
        assert cli.main(["status", url, *trust]) == 0

    guarded(tmp_path, story)

    assert capsys.readouterr().out.count("site north") == 2


def test_no_token_the_wrong_one_and_no_trust_are_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = ["--ca", str(tmp_path / "north.crt")]

    def story(url: str) -> None:
        wrong = ["--token-file", str(tmp_path / "camera.token")]
        for more in (trust, [*trust, *wrong], wrong, ["--ca", str(tmp_path / "tokens.json")]):
            assert cli.main(["status", url, *more]) == 2

    guarded(tmp_path, story)

    said = capsys.readouterr().err.splitlines()
    assert "refused (401); it needs a token with scope 'read'" in said[0]
    assert "refused (403); it needs a token with scope 'read'" in said[1]
    assert "certificate not trusted" in said[2]
    assert "no certificate in it" in said[3]
    assert len(said) == 4
    assert "covey_" not in "".join(said)
