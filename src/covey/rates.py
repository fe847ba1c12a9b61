"""Token bucket: how often a client or a peer may call."""

import math


class Bucket:
    """Token bucket: `rate_per_s`, burst of one second."""

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
