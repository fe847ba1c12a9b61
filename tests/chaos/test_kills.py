"""Real processes, killed and with a failing disk: nothing that they acknowledged is lost."""

import signal
from pathlib import Path

import pytest

from chaos.kill import Load, Outcome, Process, compare, kill_often, sites, until
from support.required import program


def injected(call: str, what: str) -> list[str]:
    """Return what makes a system call of a process fail."""
    return [
        *(program("strace"), "-f", "-qq", "-o", "/dev/null"),
        *("-e", f"trace={call}", "-e", f"inject={call}:{what}"),
    ]


def alone(folder: Path, before: list[str]) -> Process:
    return Process(folder, "north", sites(folder, ["north"])["north"], before)


def test_killed_again_and_again_sites_lose_nothing() -> None:
    outcome = kill_often(3, clients=3)

    assert outcome.acknowledged > 20
    assert outcome.delivered > 0
    assert (outcome.lost, outcome.twice, outcome.disagreements) == (0, 0, [])


@pytest.mark.parametrize(
    ("call", "what", "code"),
    [
        ("fdatasync", "error=EIO:when=17", 74),  # it ends by itself
        ("pwrite64", "error=ENOSPC:when=150+", -signal.SIGKILL),  # it goes on to say so
    ],
)
def test_a_disk_that_fails_stops_the_site_and_nothing_is_lost(
    call: str, what: str, code: int, tmp_path: Path
) -> None:
    process = alone(tmp_path, injected(call, what))
    process.start()
    load = Load([process], 3)

    def has_stopped() -> bool:
        if code == 74:
            return not process.is_running
        return process.post("/feedback", {"id": "unknown", "truth": 1})[0] == 507

    try:
        until(has_stopped)
    finally:
        load.end()
        ended = process.end(signal.SIGKILL)

    assert ended == code
    outcome = Outcome()
    compare([process], load, outcome)
    assert outcome.acknowledged > 0
    assert (outcome.lost, outcome.twice, outcome.disagreements) == (0, 0, [])


@pytest.mark.parametrize("number", [20, 27])
def test_killed_at_a_sync_a_site_loses_nothing(number: int, tmp_path: Path) -> None:
    process = alone(tmp_path, injected("fdatasync", f"signal=SIGKILL:when={number}"))
    process.start()
    load = Load([process], 3)
    try:
        until(lambda: not process.is_running)
    finally:
        load.end()
    process.end(signal.SIGKILL)
    process.before = ()
    process.start()
    process.end(signal.SIGTERM)

    outcome = Outcome()
    compare([process], load, outcome)
    assert outcome.answered > 0
    assert (outcome.lost, outcome.twice, outcome.disagreements) == (0, 0, [])
