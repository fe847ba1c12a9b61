"""A site says itself that its certificate ends, before its peers see it."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from covey.server import keys
from support import virtual
from support.coroutines import looped
from support.examined import FEATURES, FUNCTION
from support.served import metrics_of, serving
from support.site_processes import Offices, table

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an authority for 100 days and a certificate for 20."""
    keys.new_authority(tmp_path, days=100, now=BEGIN)
    keys.new_site("north", authority=tmp_path, folder=tmp_path, days=20, now=BEGIN)
    return tmp_path


def files(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "north.crt", folder / "north.key", folder / "ca.crt"


def watched(
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    days: float,
    on_day: dict[float, Callable[[keys.OwnCertificate], None]] | None = None,
) -> list[tuple[float, str, str]]:
    """Return the day, the level and the message of each line of so many days."""

    async def main() -> list[tuple[float, str, str]]:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()

        def now() -> datetime:
            return BEGIN + timedelta(seconds=loop.time() - begun_s)

        lines: list[tuple[float, str, str]] = []

        class Lines(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                day = round((loop.time() - begun_s) / DAY_S, 2)
                lines.append((day, record.levelname, record.getMessage()))

        handler = Lines()
        keys.log.addHandler(handler)
        try:
            own = keys.OwnCertificate(*files(folder), now=now)
            watching = asyncio.ensure_future(own.watch())
            for day, act in (on_day or {}).items():
                loop.call_later(day * DAY_S, act, own)
            await asyncio.sleep(days * DAY_S)
            watching.cancel()
        finally:
            keys.log.removeHandler(handler)
        return lines

    with caplog.at_level(logging.INFO):
        return virtual.run(main())


def test_the_end_is_logged_every_day_from_two_weeks_before_and_when_it_comes(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = watched(folder, caplog, days=22.5)

    assert [(day, level) for day, level, _ in lines] == [
        *((float(day), "WARNING") for day in range(6, 20)),
        (20.0, "ERROR"),
        (21.0, "ERROR"),
        (22.0, "ERROR"),
    ]
    assert lines[0][2] == (
        f"the certificate {folder / 'north.crt'} expires in 13 days, on 2026-03-21 00:00 UTC; "
        "peers refuse this site then: run `covey keys renew` where the authority is, then send "
        "SIGHUP"
    )
    assert "expired on 2026-03-21 00:00 UTC; peers refuse this site now" in lines[-1][2]


def test_a_renewed_file_that_is_not_in_use_is_named_and_a_reload_ends_the_lines(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def renew(_: keys.OwnCertificate) -> None:
        later = BEGIN + timedelta(days=9.5)
        keys.renew(folder / "north.crt", authority=folder, days=60, now=later)

    def reload(own: keys.OwnCertificate) -> None:
        own.reload()

    lines = watched(folder, caplog, days=15, on_day={9.5: renew, 10.5: reload})

    assert [day for day, _, _ in lines] == [6.0, 7.0, 8.0, 9.0, 10.0, 10.5]
    assert "the file is renewed, but not in use; send SIGHUP" in lines[4][2]
    assert lines[5][1:] == ("INFO", "certificate in use until 2026-05-09 12:00 UTC")


def test_of_two_authorities_in_a_file_the_one_that_signed_counts(folder: Path) -> None:
    keys.new_authority(folder / "old", days=2, now=BEGIN)
    both = folder / "both.crt"
    both.write_bytes((folder / "old" / "ca.crt").read_bytes() + (folder / "ca.crt").read_bytes())
    certificate, key, _ = files(folder)

    own = keys.OwnCertificate(certificate, key, both, now=lambda: BEGIN)

    assert own.ends()["authority"] == BEGIN + timedelta(days=100)


@looped
async def test_a_served_site_has_the_end_in_its_metrics_and_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offices = Offices(tmp_path, ["south"])
    keys.new_site("north", authority=tmp_path / "office", folder=tmp_path, days=5)
    offices.ports["north"] = 0
    text = "\n".join(
        [
            offices.node("north", features=FEATURES, dimension=1),
            table("[[learner]]", {"name": "north", "functions": ["zero"]}),
            FUNCTION,
        ]
    )

    async with serving(tmp_path, text) as client:
        told = await metrics_of(client)
    until = keys.show(tmp_path / "north.crt").valid_until
    assert until is not None
    assert told["covey_certificate_expiry_timestamp_seconds", "site"] == until.timestamp()
    assert told["covey_certificate_expiry_timestamp_seconds", "authority"] > until.timestamp()
    assert "north.crt expires in 4 days" in caplog.text
