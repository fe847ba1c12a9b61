"""What the file of a site would change in its store: found on a copy, also while it serves."""

import tempfile
from contextlib import closing
from pathlib import Path

from covey.errors import StoreError
from covey.node.change import Plan, adopt, wanted_arms
from covey.node.copies import snapshot
from covey.node.database import DatabaseUrl
from covey.node.requests import Loaded
from covey.node.store import Store
from covey.server.config import SiteConfig


def has_store(site: SiteConfig) -> bool:
    """Return whether the site has been started before; raise `StoreError` if that is not known."""
    if isinstance(site.store, DatabaseUrl):
        from covey.node import postgres  # needs an optional package

        return postgres.look(site.store).has_store
    return site.store.exists()


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
