"""What the file of a site would change in its store: found on a copy, also while it serves."""

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from covey.errors import StoreError
from covey.node.change import Plan, adopt, wanted_arms
from covey.node.requests import Loaded
from covey.node.store import Store
from covey.server.config import SiteConfig

ATTEMPTS = 20  # to copy a store between two checkpoints of a running node


def planned(site: SiteConfig) -> tuple[Plan, Loaded]:
    """Return what a start would change in the store, and what the store would have then.

    Raises `StoreError` if the store could not be used.
    """
    with tempfile.TemporaryDirectory(prefix="covey-plan-") as folder:
        copy = snapshot(site.store, Path(folder))
        try:
            with closing(Store(copy)) as store:
                return _applied(store, site)
        except StoreError as error:
            raise StoreError(str(error).replace(str(copy), str(site.store))) from None


def _applied(store: Store, site: SiteConfig) -> tuple[Plan, Loaded]:
    trust = {name: one.trust for name, one in site.neighbours.items()}
    wanted = wanted_arms(site.learner, site.functions)
    loaded = store.load(site.serving.name, site.fingerprint)
    return adopt(store, loaded, site.learner, wanted, site.fingerprint, trust)


def snapshot(store: Path, folder: Path) -> Path:
    """Copy a store and its log; return the copy.

    A node only appends to the log, and writes the store itself at a checkpoint: a copy is whole if
    there was none meanwhile. Raises `StoreError` if there is no such moment, or no room.
    """
    copy = folder / store.name
    try:
        for _ in range(ATTEMPTS):
            before = _version(store)
            shutil.copyfile(store, copy)
            log = Path(f"{store}-wal")
            if log.exists():
                shutil.copyfile(log, f"{copy}-wal")
            if _version(store) == before:
                return copy
    except OSError as error:
        raise StoreError(f"{store} cannot be copied to {folder}: {error.strerror}") from None
    raise StoreError(f"{store} is being written too fast to be copied; try again later")


def _version(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
