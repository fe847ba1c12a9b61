"""How often somebody may call, and how often something is said."""

import math


class Bucket:
    """How often somebody may call: so often a second, after a pause a second's worth at once."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._most = max(1.0, rate_per_s)
        self._tokens = self._most
        self._at_s = -math.inf

    def take(self, now_s: float) -> float:
        """Return 0 if one more call is fine; else for how many seconds it is not."""
        if self._at_s > -math.inf:
            gained = (now_s - self._at_s) * self._rate_per_s
            self._tokens = min(self._most, self._tokens + gained)
        self._at_s = now_s
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate_per_s


class Seldom:
    """Keeps what happens often from being said as often: a line a minute is enough."""

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._next_s = -math.inf

    def is_due(self, now_s: float) -> bool:
        """Say whether it is to be said now; then it is not, for a while."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True
