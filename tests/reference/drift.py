"""The test for changes, worked out again from all labels: each start of a change is one product."""

from collections.abc import Collection, Sequence
from math import prod

Said = tuple[str, str, str, float]  # source ("" is the site), function, region, right or not
BLOCK, STARTS = 128, 16


def likelihoods(labels: Sequence[Said]) -> list[float]:
    """Return how much more likely each label is by what was said lately than by the past."""
    pasts: list[float | None] = []
    for place, (source, function, region, _) in enumerate(labels):
        mine = [label[3] for label in labels[:place] if label[:3] == (source, function, region)]
        pasts.append((sum(mine) + 1 / 2) / (len(mine) + 1) if len(mine) >= 16 else None)
    found = []
    for place, (said, past) in enumerate(zip(labels, pasts, strict=True)):
        moves = [
            one[3] - then
            for one, then in zip(labels[:place], pasts, strict=False)
            if then is not None and one[1:3] == said[1:3]
        ]
        weights = [(31 / 32) ** age for age in reversed(range(len(moves)))]
        move = sum(weight * one for weight, one in zip(weights, moves, strict=True))
        move /= sum(weights) + 4
        if past is None or abs(move) <= 0.01:
            found.append(1.0)
            continue
        before, now = past + (0.01 if move > 0 else -0.01), past + move
        before, now = (sorted((0.02, one, 0.98))[1] for one in (before, now))
        found.append((now / before) ** said[3] * ((1 - now) / (1 - before)) ** (1 - said[3]))
    return found


def capital(labels: Sequence[Said], pooled: Collection[str], first: int = 1) -> float:
    """Return the capital of all starts together; the first one has the number `first`."""
    factors, total = likelihoods(labels), 0.0
    starts = range(0, len(labels), BLOCK)
    for begin in list(starts)[-STARTS:]:
        number = first + begin // BLOCK
        later = list(zip(labels, factors, strict=True))[begin:]
        by_source = {
            source: prod(factor for said, factor in later if said[0] == source)
            for source in ("", *pooled)
        }
        known = [one for one in pooled if any(said[0] == one for said in labels)]
        least = sorted(by_source[one] for one in known)
        dropped = max(1, (len(least) - 1) // 2)
        kept = least[: max(0, len(least) - dropped)]
        total += by_source[""] * prod(kept) / (number * (number + 1))
    return total
