"""Check that the cells and features of two sites are compatible."""

from collections.abc import Iterator, Sequence

from covey.letters import Feature, Greeting, Space
from covey.node.requests import describe_cells, preset_of
from covey.sites import ServedSite

MOST_SHOWN = 40  # characters of a name that a peer has sent


def differences(site: ServedSite, greeting: Greeting, *, by_data: bool) -> list[str]:
    """Return the settings of a site and a peer that keep one from asking the other.

    Missing fields are not compared; presets and instances matter only if data is sent.
    """
    found = list(_of_cells(site, greeting.spaces)) if greeting.spaces else []
    if not by_data:
        return found
    preset = preset_of(site.learner.policies)
    if greeting.preset and greeting.preset != preset:
        found.append(f"the preset is {preset!r} here and {_shown(greeting.preset)} there")
    if greeting.features and not site.site.views:  # views show each arm something else
        found += _of_instances(site, greeting)
    return found


def _of_cells(site: ServedSite, spaces: Sequence[Space]) -> Iterator[str]:
    space = site.learner.space
    policy = site.learner.policies[space]
    there = {one.name: one for one in spaces}.get(space)
    if there is None:
        yield f"contexts are {space or 'the same for all'} here, and it knows none of these"
        return
    if there.dimension != policy.dimension:
        yield f"contexts have {policy.dimension} dimensions here and {there.dimension} there"
    if there.cells != describe_cells(policy):
        yield f"cells are {describe_cells(policy)} here and {_shown(there.cells, 120)} there"


def _of_instances(site: ServedSite, greeting: Greeting) -> Iterator[str]:
    if greeting.instance != site.serving.instance:
        there = _shown(greeting.instance)
        yield f"functions are given a {site.serving.instance!r} here and a {there} there"
    ours = [Feature(*one) for one in site.serving.features.items()]
    if ours == greeting.features:
        return
    kinds = {one.name: one.datatype for one in greeting.features}
    for one in ours:
        if kinds.get(one.name) != one.datatype:
            there = f"{_shown(kinds[one.name])} there" if one.name in kinds else "is not there"
            yield f"feature {one.name!r} is {one.datatype!r} here and {there}"
            return
    if len(ours) < len(greeting.features):
        more = next(one.name for one in greeting.features if one not in ours)
        yield f"it takes a feature {_shown(more)} that is not here"
    elif site.serving.instance == "row":
        yield "features are in another order there, and rows go by that"


def _shown(text: str, most: int = MOST_SHOWN) -> str:
    return repr(text[:most])
