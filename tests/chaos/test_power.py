"""Without power at any moment: the store is as it was acknowledged, and the test would notice."""

import pytest

from chaos import bugs
from chaos.disk import Disk
from chaos.power import FINGERPRINT, NAME, cut_everywhere, dump, script
from covey.errors import StoreError
from covey.store.store import Store
from support.effort import effort

COMMITS = 5
EVERY = effort(4, long=1)
TOO_MANY = 11  # losses, to be no chance


def test_wherever_the_power_goes_every_acknowledged_commit_is_whole() -> None:
    losses = cut_everywhere(COMMITS, every=EVERY)

    assert losses.cuts * EVERY > 800
    assert losses.bad == 0


@pytest.mark.parametrize("bug", [bugs.syncs_now_and_then, bugs.never_syncs])
def test_a_store_that_syncs_less_is_caught(bug: bugs.Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    assert cut_everywhere(3, most_bad=TOO_MANY).bad == TOO_MANY


def test_a_disk_that_lies_about_syncs_is_caught() -> None:
    assert cut_everywhere(3, lies=True, most_bad=TOO_MANY).bad == TOO_MANY


@pytest.mark.parametrize("trouble", ["fails_sync", "room"])
def test_after_a_write_that_failed_a_new_start_is_sound(trouble: str) -> None:
    first, second, third = script(3)
    disk = Disk()
    store = Store("a", connect=disk.connect)
    store.load(NAME, FINGERPRINT)
    store.commit(first)
    setattr(disk, trouble, 1)
    with pytest.raises(StoreError):
        store.commit(second)
    disk.kill()
    store.close()
    disk.fails_sync, disk.room = False, None

    store = Store("a", connect=disk.connect)
    store.load(NAME, FINGERPRINT)
    if not store.find("south", "t4"):  # a client without an answer sends it again
        store.commit(second)
    store.commit(third)
    kept = dump(store)
    disk.lose_power(lambda number: False)
    store.close()

    store = Store("a", connect=disk.connect)
    store.load(NAME, FINGERPRINT)
    assert dump(store) == kept
    assert store.check() == []


def test_a_log_that_was_not_synced_is_not_built_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without the start's writing anew: the test above would fail."""
    bugs.builds_on_a_log_that_was_not_synced(monkeypatch)

    with pytest.raises(AssertionError):
        test_after_a_write_that_failed_a_new_start_is_sound("fails_sync")
