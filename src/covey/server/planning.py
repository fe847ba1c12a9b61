"""What the file of a site would change in its store: found on a copy, also while it serves."""

from covey.node.change import Plan, adopt, wanted_arms
from covey.node.copies import opened_copy
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
    with opened_copy(site.store) as store:
        return _applied(store, site)


def _applied(store: Store, site: SiteConfig) -> tuple[Plan, Loaded]:
    trust = {name: one.trust for name, one in site.neighbours.items()}
    wanted = wanted_arms(site.learner, site.functions)
    loaded = store.load(site.serving.name, site.fingerprint)
    return adopt(store, loaded, site.learner, wanted, site.fingerprint, trust)
