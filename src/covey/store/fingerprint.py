"""What the counters of a site mean, as a text that its store keeps; and for how many slots."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from covey.bandit.partitions import Dyadic, EpochCells, Uniform, Zooming
from covey.bandit.policies import Policy
from covey.data.contexts import SCALES, VECTOR_SCALES, Scale

NOT_NAMED = ("column", "vector", "clip")  # fields of a scale; the column is its name


def schema_fingerprint(
    arms: Sequence[str],
    policies: Mapping[str, Policy],
    scales: Sequence[Scale] = (),
    more: Sequence[tuple[str, str]] = (),
) -> str:
    """Return what the counters of a site mean: if this changes, what is stored does not fit.

    It has lines `part: value`. `policies` are by context space; `scales` are the coordinates of
    contexts, where the site makes these of features.
    """
    parts = [*_parts(arms, policies, scales), *more]
    return "\n".join(f"{part}: {' '.join(value.split())}" for part, value in parts)


def differences(old: str, new: str) -> list[str]:
    """Return which parts of two fingerprints differ, and how: only what one of them has alone."""
    before, now = _values(old), _values(new)
    if before.keys().isdisjoint(now):
        return ["the earlier ones cannot be read from it"]
    return [
        f"{part}: {_change(before.get(part, []), now.get(part, []))}"
        for part in dict.fromkeys([*before, *now])
        if before.get(part) != now.get(part)
    ]


def describe_cells(policy: Policy) -> str:
    """Return how a policy divides contexts into cells."""
    partition = policy.partition
    if isinstance(partition, EpochCells):
        first = describe_cells(partition.policy_of(0))
        slots, alpha = partition.doubling
        return f"in epochs of {slots} slots, doubled, alpha {alpha}: at first {first}"
    if isinstance(partition, Uniform):
        return f"{partition.slices} slices per dimension"
    if isinstance(partition, Zooming):
        limit = f"{partition.scale:g} * 2^({partition.power:g} * (level + {partition.offset}))"
        return f"halved at {limit} arrivals, down to level {partition.max_level}"
    assert isinstance(partition, Dyadic)
    return f"of {len(partition.levels(policy.dimension))} sizes at once"


def preset_of(policies: Mapping[str, Policy]) -> str:
    """Return the preset of a site, which is the same in all its context spaces."""
    return next(iter(policies.values())).settings.preset


def preset_in(fingerprint: str) -> str:
    (preset,) = _values(fingerprint)["preset"]
    return preset


def _parts(
    arms: Sequence[str], policies: Mapping[str, Policy], scales: Sequence[Scale]
) -> Iterator[tuple[str, str]]:
    for arm in arms:
        yield "arm", arm
    for space, policy in policies.items():
        where = f" of {space}" if space else ""
        yield f"cells{where}", describe_cells(policy)
        yield f"dimensions{where}", str(policy.dimension)
    yield "preset", preset_of(policies)
    settings = next(iter(policies.values())).settings
    if settings.rules.keeps_predictions:  # counted otherwise than labels
        yield "history", "own predictions, and how often each was right"
    kernel = settings.kernel()
    if kernel.get("floors_training"):  # which needs counters of its own
        yield "reports", "checked against own records"
    if settings.harm is not None:  # which has counts of its own
        yield "harm", "limited"
    yield "forgets", _describe_forgetting(kernel)
    for scale in scales:
        yield "context", describe_scale(scale)


def _describe_forgetting(kernel: Mapping[str, Any]) -> str:
    if kernel.get("window"):
        return f"all but the latest {kernel['window']} labels of a cell"
    discount = kernel.get("discount", 1.0)
    return "nothing" if discount == 1 else f"by a discount of {discount}"


def describe_scale(scale: Scale) -> str:
    """Return the name of a coordinate, its scale and the bounds of that."""
    kinds = [*SCALES.items(), *VECTOR_SCALES.items()]
    kind = next(name for name, scale_type in kinds if type(scale) is scale_type)
    options: Any = scale
    named = [
        f"{field.encode_name} {_describe_value(getattr(options, field.name))}"
        for field in msgspec.structs.fields(options)
        if field.name not in NOT_NAMED and getattr(options, field.name) is not None
    ]
    return f"{scale.name} ({', '.join([kind, *named])})"


def _describe_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value, "<f8").tobytes()).hexdigest()
        return f"of {value.size} numbers ({digest[:12]})"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _values(fingerprint: str) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for line in fingerprint.splitlines():
        part, _, value = line.partition(": ")
        parts.setdefault(part, []).append(value)
    return parts


def _change(before: list[str], now: list[str]) -> str:
    removed = [line for line in before if line not in now]
    added = [line for line in now if line not in before]
    if not removed and not added:
        return "the same in another order"
    return f"{_listed(removed)} before, {_listed(added)} now"


def _listed(values: list[str]) -> str:
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return ", ".join(values[:3]) + more if values else "nothing"


def after_horizon(slots: int) -> str:
    """Return what holds after the horizon."""
    return (
        f"[policy] horizon is {slots} slots; after them cells and thresholds stay as they are, and "
        "the bounds no longer hold; raise it (what is stored is counted again)"
    )
