"""Which keys were never seen: small, quick, and never wrong about that."""

BITS = 25  # of which there are 2**25 for a million keys: about 3 in 1,000 are taken for seen
_MASK = (1 << BITS) - 1


class Sieve:
    """Remembers keys without keeping them; some that it never saw it takes for seen."""

    def __init__(self) -> None:
        self._bits = bytearray(1 << BITS - 3)

    def add(self, key: tuple[str, str]) -> None:
        """Remember a key."""
        # Differs from process to process, so nobody can choose keys that look like others.
        number = hash(key)
        one, other = number & _MASK, number >> 32 & _MASK
        self._bits[one >> 3] |= 1 << (one & 7)
        self._bits[other >> 3] |= 1 << (other & 7)

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Return whether the key may have been seen; if not, it was not."""
        number = hash(key)
        one, other = number & _MASK, number >> 32 & _MASK
        bits = self._bits
        return bool(bits[one >> 3] >> (one & 7) & 1 and bits[other >> 3] >> (other & 7) & 1)
