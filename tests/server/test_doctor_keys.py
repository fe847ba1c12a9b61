"""Certificates, keys and tokens are looked at before a site serves."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from covey.errors import ConfigError
from covey.server import app, config, keys, tokens
from covey.server.doctor import Finding
from support.examined import FEATURES, FUNCTION, examine, states
from support.served import serving
from support.site_processes import Offices, table

pytestmark = pytest.mark.beside_the_kernel


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south"])


def lasting(folder: Path, days: int) -> None:
    """Give north a certificate that ends in so many days."""
    for end in ("crt", "key"):
        (folder / f"north.{end}").unlink()
    keys.new_site(
        "north", hosts=["127.0.0.1"], authority=folder / "office", folder=folder, days=days
    )


def alone(offices: Offices, **more: Any) -> str:
    return "\n".join(
        [
            offices.node("north", features=FEATURES, dimension=1, **more),
            table("[[learner]]", {"name": "north", "functions": ["zero"]}),
            FUNCTION,
        ]
    )


def test_a_certificate_that_ends_soon_is_a_warning(offices: Offices) -> None:
    lasting(offices.folder, 15)
    assert states(examine(offices.folder, alone(offices))) == {}

    lasting(offices.folder, 14)
    found = examine(offices.folder, alone(offices))
    assert states(found) == {"certificate": "warning"}
    assert "covey keys renew" in found["certificate"].message


def test_keys_that_do_not_belong_together_are_a_failure(offices: Offices) -> None:
    found = examine(offices.folder, alone(offices, key="south.key"))
    assert "is not the key of" in found["certificate"].message

    keys.new_authority(offices.folder / "other")
    found = examine(offices.folder, alone(offices, authority="other/ca.crt"))
    assert "was not signed by" in found["certificate"].message


def test_a_certificate_of_another_site_is_a_failure(offices: Offices) -> None:
    text = alone(offices, key="south.key", certificate="south.crt")

    found = examine(offices.folder, text)

    assert states(found) == {"certificate": "failure"}
    assert "is of site 'south'" in found["certificate"].message


def test_a_site_does_not_serve_with_the_certificate_of_another(offices: Offices) -> None:
    text = alone(offices, key="south.key", certificate="south.crt")
    (offices.folder / "site.toml").write_text(text)
    site = config.load(offices.folder / "site.toml")

    with pytest.raises(
        ConfigError, match=r"south\.crt is of site 'south', and this one is 'north'"
    ):
        asyncio.run(app.serve(site, is_up=lambda *_: None))

    assert not (offices.folder / "north.store").exists()


def test_a_clock_before_the_start_of_the_certificate_is_a_failure(offices: Offices) -> None:
    for end in ("crt", "key"):
        (offices.folder / f"north.{end}").unlink()
    later = datetime.now(UTC) + timedelta(days=2)
    keys.new_site("north", authority=offices.folder / "office", folder=offices.folder, now=later)

    assert "check the clock" in examine(offices.folder, alone(offices))["certificate"].message


def test_a_certificate_that_expired_while_the_site_serves_is_said_once(offices: Offices) -> None:
    port = offices.ports["north"]
    text = "\n".join(
        [
            alone(
                offices, address=f"127.0.0.1:{port}", tls=True, **{"peer-address": "127.0.0.1:0"}
            ),
            offices.peer("south"),
        ]
    )

    async def main() -> dict[str, Finding]:
        async with serving(offices.folder, text, authority=offices.folder / "office" / "ca.crt"):
            before = datetime.now(UTC) - timedelta(days=9)
            office, own = offices.folder / "office", offices.folder / "north.crt"
            keys.renew(own, authority=office, days=2, now=before)
            return await asyncio.to_thread(examine, offices.folder, text)

    found = asyncio.run(main())

    assert states(found) == {"certificate": "failure", "peer south": "warning"}
    assert "expired on" in found["certificate"].message
    assert "covey keys renew" in found["certificate"].message
    assert found["address"].message == f"127.0.0.1:{port} is served by this site already"
    assert found["peer south"].message.startswith("not asked, as the certificate of this site")


def test_what_an_invalid_peer_leaves_is_looked_at_in_the_same_run(offices: Offices) -> None:
    lasting(offices.folder, 3)
    asked = {"name": "north", "functions": ["zero"], "peers": {"south": 0.1, "east": 0.1}}
    text = "\n".join(
        [
            offices.node("north", features=FEATURES, dimension=1, tokens="none.json"),
            table("[[learner]]", asked),
            FUNCTION,
            offices.peer("south", share="data"),
            table("[[peer]]", {"name": "east", "key": "sha256:0", "share": "data"}),
        ]
    )

    found = examine(offices.folder, text)

    assert states(found) == {
        "peer east": "failure",  # its key
        "peer south": "warning",  # it is down
        "certificate": "warning",
        "tokens": "failure",
    }


def test_files_that_others_can_read_are_reported(offices: Offices) -> None:
    tokens.new(offices.folder / "tokens.json", "camera", scopes=["infer"])
    text = alone(offices, tokens="tokens.json")
    assert states(examine(offices.folder, text)) == {}

    (offices.folder / "tokens.json").chmod(0o644)
    (offices.folder / "north.key").chmod(0o640)
    assert states(examine(offices.folder, text)) == {"tokens": "warning", "key": "warning"}

    (offices.folder / "north.key").chmod(0o644)
    assert states(examine(offices.folder, text))["certificate"] == "failure"


def test_tokens_that_admit_no_client_are_reported(offices: Offices) -> None:
    text = alone(offices, tokens="tokens.json")
    assert states(examine(offices.folder, text)) == {"tokens": "failure"}

    before = datetime.now(UTC) - timedelta(days=9)
    tokens.new(offices.folder / "tokens.json", "camera", scopes=["infer"], days=3, now=before)
    assert states(examine(offices.folder, text)) == {"tokens": "warning"}
