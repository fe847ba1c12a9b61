"""What a row of counters holds, and where: computed from a rule, so that policies share no memory.

A row is a number of integers of 64 bits. First come those of the cell, then its coordinates, then
what is counted per arm. What a rule does not need takes no space.
"""

import math
from functools import lru_cache

import msgspec

from covey.kernel.rules import Rule

COORDINATES = 6  # where they begin, after what every row has (see `cells`)
FUNCTION_STAMPS = 1  # of the most promising own function, where a policy has an index


class Layout:
    """Where the counters of a row begin."""

    def __init__(self, rule: Rule) -> None:
        arms, functions = len(rule.costs), rule.functions
        self.arms, self.functions = arms, functions
        self.asked = arms - rule.context_peers  # arms before this one receive the data
        self.window = rule.window
        self.is_pending = rule.is_pending
        self.weighs = rule.is_pending and rule.weighs_pending
        self.learns_costs = rule.learns_costs
        self.forgets = rule.window > 0 or rule.discount < 1.0
        self.has_tree, has_index = rule.tree is not None, rule.index is not None
        peers = self.asked - functions
        self.stride = COORDINATES + (0 if rule.is_wide else rule.dimension)
        self.labels = self._take(arms)
        self.right = self._take(arms)
        self.untrained = self._take(peers)
        self.spent = self._take(arms if self.learns_costs else 0)
        self.times = self._take(arms if self.learns_costs else 0)
        self.recent = self._take(arms if self.forgets else 0)
        self.recent_right = self._take(arms if self.forgets else 0)
        # The slot of the latest label of each function, where one slot must count once.
        self.dates_labels = has_index
        self.last = self._take(functions if has_index else 0)
        self.floors_training = rule.floors_training
        self.trained = self._take(peers if rule.floors_training else 0)  # with a label
        # The latest labels of the cell: how many there were, then `arm << 32 | gain` of each.
        self.ring = self._take(1 + rule.window if rule.window else 0)
        # Five sums of the beliefs about an arm, where its labels are judged: not of peers that
        # report, unless their claims are checked.
        self.unjudged = 0 if rule.floors_training else peers
        judged = arms - self.unjudged if self.has_tree else 0
        self.beliefs = self._take(5 * judged)
        # What each peer reported: the slot, then the bits of the floats.
        self.replied = 4 if self.has_tree else 2 if has_index else 0
        self.reports = self._take(peers * self.replied)
        self.kept = self.stride  # before this place is what a store has of a row
        self.underway = self._take(arms if self.is_pending else 0)
        self.underway_served = self._take(functions if self.weighs else 0)
        self.cached = self.stride  # from here on is what can be computed again
        # What follows from the sums of an arm, as floats.
        self.derived = self._take(5 * judged)
        # What was computed: of which state, and the index.
        stamped = self.asked + FUNCTION_STAMPS if has_index else 0
        self.values = self._take(2 * stamped)
        # Where counts of own functions begin that tables of one rule can add up.
        self.summed = [self.labels, self.right]
        self.summed += [self.underway] if self.is_pending else []
        self.summed += [self.underway_served] if self.weighs else []
        self.summed += [self.spent, self.times] if self.learns_costs else []
        self.summed += [self.recent, self.recent_right] if self.forgets else []
        self.arm_places = [self.of_arm(arm) for arm in range(arms)]

    def _take(self, count: int) -> int:
        first = self.stride
        self.stride += count
        return first

    def seat(self, arm: int) -> int:
        """Return the place of an arm among those whose labels are judged; -1: it has none."""
        if arm < self.functions or not self.unjudged:
            return arm
        return arm - self.unjudged if arm >= self.asked else -1

    def of_arm(self, arm: int) -> list[int]:
        """Return where the counters of an arm are that depend on no other; -1: not counted.

        Labels, correct ones, costs, their number and two discounted counts come first. The report
        of a peer comes last.
        """
        peer = arm - self.functions
        is_asked = 0 <= peer < self.asked - self.functions
        is_discounted = self.forgets and not self.window  # counts of a window are those of its ring
        report, seat = self.reports + self.replied * peer, self.seat(arm)
        has_beliefs = self.has_tree and seat >= 0
        return [
            self.labels + arm,
            self.right + arm,
            self.spent + arm if self.learns_costs else -1,
            self.times + arm if self.learns_costs else -1,
            self.recent + arm if is_discounted else -1,
            self.recent_right + arm if is_discounted else -1,
            self.last + arm if self.dates_labels and peer < 0 else -1,
            self.untrained + peer if is_asked else -1,
            self.trained + peer if is_asked and self.floors_training else -1,
            *(self.beliefs + 5 * seat + k if has_beliefs else -1 for k in range(5)),
            *(report + k if is_asked and k < self.replied else -1 for k in range(4)),
        ]


_LAYOUTS = lru_cache(maxsize=256)(Layout)


def layout_of(rule: Rule) -> Layout:
    """Return the layout of a rule: one object for all sites of a network that are alike."""
    costs = (0.0,) * len(rule.costs)
    return _LAYOUTS(msgspec.structs.replace(rule, costs=costs, levels=(), offset=0, rewards=()))


def is_flat(rule: Rule) -> bool:
    """Return whether the cells of a rule are one grid, which is never divided further."""
    return len(rule.levels) == 1 and rule.levels[0].split_at == math.inf
