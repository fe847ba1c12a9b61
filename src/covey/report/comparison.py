"""Policies side by side on one log: numbers, table, conclusion, plot and page.

`docs/reference/comparison.md` describes every field of the numbers.
"""

from collections.abc import Mapping
from functools import cached_property
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey.replay.gains import Gain, aligned, gain_of
from covey.replay.outcome import LearnerOutcome, Outcome
from covey.replay.replay import ConfigLike
from covey.report import figures, page, plots
from covey.report import text as report_text
from covey.report.replay import check_folder, write_files
from covey.report.results import Shown
from covey.report.summary import Points, points_of, total_of
from covey.report.text import number, percent, shorten
from covey.types import Array

_NAME = 30  # characters of a name in a table
_HOW = (
    "error + cost is in points of 100 slots; net gain is over the best own function of each site. "
    "against: points less than the reference on the same rows; \N{PLUS-MINUS SIGN} is half of the "
    "interval, and all intervals of this column hold together in 95 % of the cases."
)


class PolicyRun(msgspec.Struct, frozen=True):
    """One policy that was replayed."""

    settings: dict[str, Any]  # all keys of [policy], with defaults
    outcome: Outcome
    warnings: list[str] = []


class LearnerAgainst(msgspec.Struct, frozen=True):
    """One learner under one policy; None where unknown."""

    error_percent: float | None
    cost_points: float | None
    against_points: Points | None


class PolicySummary(msgspec.Struct, frozen=True):
    """One policy on the log; None where unknown."""

    policy: str
    settings: dict[str, Any]
    error_percent: float | None
    cost_points: float | None
    loss_points: float | None  # error and cost
    net_gain_points: Points | None
    against_points: Points | None  # None for the reference
    alone_percent: float | None
    train_percent: float | None
    explore_percent: float | None
    alarms: int
    learners: dict[str, LearnerAgainst]


class ComparisonSummary(msgspec.Struct, frozen=True):
    """The numbers of a comparison."""

    version: str
    slots: int
    reference: str
    best: str | None  # loses least on labelled rows; None without any
    conclusion: str
    policies: dict[str, PolicySummary]


class ReplayComparison(Shown):
    """Policies that were replayed on the same log; the first is the reference."""

    def __init__(
        self,
        runs: Mapping[str, PolicyRun],
        *,
        title: str = "Comparison",
        config: ConfigLike | None = None,
    ) -> None:
        self._config = config
        self._runs = dict(runs)
        self._title = title
        self._reference = next(iter(self._runs))

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """All counts of each policy, by its name."""
        return {name: run.outcome for name, run in self._runs.items()}

    @cached_property
    def _summary(self) -> ComparisonSummary:
        policies = {name: self._policy(name) for name in self._runs}
        leads = {
            name: 0.0 if each.against_points is None else each.against_points.mean
            for name, each in policies.items()
            if each.error_percent is not None
        }
        best = max(leads, key=lambda name: leads[name], default=None)
        return ComparisonSummary(
            version=version("covey"),
            slots=self._runs[self._reference].outcome.slots,
            reference=self._reference,
            best=best,
            conclusion=_conclusion(policies, self._reference, best),
            policies=policies,
        )

    def summary(self) -> ComparisonSummary:
        """Return the numbers of the comparison, as `covey compare --json` prints them."""
        return self._summary

    def table(self) -> str:
        """Return the table that `covey compare` prints, with its conclusion."""
        lines = [(shorten(name, _NAME), *_printed(each)) for name, each in self._listed()]
        parts = (
            f"{self._extent()}\n{report_text.fill(self._described())}",
            report_text.table([("policy", *_COLUMNS), *lines]),
            report_text.fill(self._summary.conclusion),
            report_text.fill(_HOW),
        )
        return "\n\n".join(parts) + "\n"

    def plot(self) -> Any:
        """Draw how far each policy is ahead of the reference over time; return matplotlib axes.

        Raises `MissingExtra` if matplotlib is not installed.
        """
        return plots.plot_leads(self._leads())

    def report(self, folder: str | Path) -> Path:
        """Write `comparison.html` and `comparison.json` into a folder; return the page's path.

        Raises `MissingExtra` if matplotlib is not installed; then nothing is written.
        """
        folder = Path(folder)
        check_folder(folder)
        return write_files(folder, self._page(), self.json(indent=2), name="comparison")

    def __repr__(self) -> str:
        best = "" if self._summary.best is None else f", least loss: {self._summary.best}"
        return f"<Comparison of {len(self._runs)} policies, {self._summary.slots:,} slots{best}>"

    def _listed(self) -> list[tuple[str, PolicySummary]]:
        return list(self._summary.policies.items())

    def _extent(self) -> str:
        learners = len(self._runs[self._reference].outcome.learners)
        sites = f"{learners} learner{'' if learners == 1 else 's'}"
        return f"{len(self._runs)} policies, {sites}, {self._summary.slots:,} slots"

    def _described(self) -> str:
        return f"{self._reference}: {self._runs[self._reference].outcome.policy}"

    def _policy(self, name: str) -> PolicySummary:
        run = self._runs[name]
        total = total_of(run.outcome)
        error, cost = total.error_percent, total.cost_points
        return PolicySummary(
            policy=run.outcome.policy,
            settings=run.settings,
            error_percent=error,
            cost_points=cost,
            loss_points=None if error is None or cost is None else error + cost,
            net_gain_points=total.net_gain_points,
            against_points=points_of(self._against(name)),
            alone_percent=total.alone_percent,
            train_percent=total.train_percent,
            explore_percent=total.explore_percent,
            alarms=total.alarms,
            learners={
                learner.name: LearnerAgainst(
                    error_percent=percent(learner.errors, learner.judged),
                    cost_points=percent(learner.cost_total, learner.slots),
                    against_points=points_of(self._against(name, place)),
                )
                for place, learner in enumerate(run.outcome.learners)
            },
        )

    def _against(self, name: str, place: int | None = None) -> Gain | None:
        """Return what a policy gains over the reference, for one learner or for all."""
        if name == self._reference:
            return None
        pairs = self._paired(name)
        chosen = pairs if place is None else [pairs[place]]
        return gain_of(*aligned(chosen), comparisons=len(self._runs) - 1)

    def _paired(self, name: str) -> list[tuple[int, Array, Array]]:
        """Return per learner the slots of a bucket, and per bucket the gain and labelled rows."""
        learners = self._runs[name].outcome.learners
        others = self._runs[self._reference].outcome.learners
        return [
            (one.timeline.slots_per_bucket, _losses(other) - _losses(one), _judged(one))
            for one, other in zip(learners, others, strict=True)
        ]

    def _leads(self) -> dict[str, tuple[Array, Array]]:
        """Return per policy the ends of the buckets, and the lead over the reference until then."""
        leads = {}
        for name in self._runs:
            pairs = self._paired(name)
            sums, _ = aligned(pairs)
            width = max(slots for slots, _, _ in pairs)
            leads[name] = (width * np.arange(1, len(sums) + 1), np.cumsum(sums))
        return leads

    def _page(self) -> str:
        names = [name for name in self._runs if name != self._reference]
        colours = figures.colours_of(names, figures.LEARNER_COLOURS)
        body = "".join(_row(name, each) for name, each in self._listed())
        drawn = figures.draw_leads(self._leads(), colours=colours, width=page.panel_width(1))
        keys = [page.key(colour, name) for name, colour in colours.items()]
        how = (
            f"Right answers less costs since the first slot, compared with {self._reference!r} on "
            "the same rows. A rising line gains on the reference."
        )
        described = "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(each.policy)}</dd>"
            for name, each in self._listed()
        )
        sections = (
            page.header(self._title, self._extent(), [self._summary.conclusion]),
            page.section("Results", page.table(("policy", *_COLUMNS), body), escape(_HOW)),
            page.section("Lead over the reference", page.legend(keys) + drawn, escape(how)),
            f'<section><h2>Policies</h2><dl class="field">{described}</dl></section>',
            *([] if self._config is None else [page.origin(self._config)]),
        )
        return page.document("\n".join(sections), title=self._title)


def _losses(learner: LearnerOutcome) -> Array:
    lost: Array = np.add(learner.timeline.errors, learner.timeline.spent)
    return lost


def _judged(learner: LearnerOutcome) -> Array:
    return np.asarray(learner.timeline.judged, float)


_COLUMNS = (
    *("error %", "cost", "error + cost", "net gain", "against", "\N{PLUS-MINUS SIGN}"),
    *("alone %", "explore %", "alarms"),
)


def _printed(found: PolicySummary) -> tuple[str, ...]:
    against = found.against_points
    width = None if against is None or against.high is None else against.high - against.mean
    gain = None if found.net_gain_points is None else found.net_gain_points.mean
    return (
        number(found.error_percent, ".2f"),
        number(found.cost_points, ".2f"),
        number(found.loss_points, ".2f"),
        number(gain, "+.2f"),
        number(None if against is None else against.mean, "+.2f"),
        number(width, ".2f"),
        number(found.alone_percent, ".2f"),
        number(found.explore_percent, ".1f"),
        number(found.alarms, ","),
    )


def _row(name: str, found: PolicySummary) -> str:
    cells = "".join(f"<td>{page.minus(cell)}</td>" for cell in _printed(found))
    shown = escape(shorten(name, _NAME))
    return f'<tr><th scope="row" title="{escape(name)}">{shown}</th>{cells}</tr>'


def _conclusion(policies: Mapping[str, PolicySummary], reference: str, best: str | None) -> str:
    """Return which policy has the smallest loss, by how much, and whether that may be chance."""
    if best is None:
        return "The policies cannot be compared: the log has no true labels."
    found = policies[best]
    does = f"{best!r} does best: {found.error_percent:.2f}% errors, {found.cost_points:.2f} points "
    ahead = {name: each.against_points for name, each in policies.items()}
    if best != reference:
        rival, lead = reference, ahead[best]
    else:
        leads = {name: _reversed(lead) for name, lead in ahead.items() if lead is not None}
        rival = min(leads, key=lambda name: leads[name].mean)
        lead = leads[rival]
    assert lead is not None
    return f"{does}of cost. That is {lead.mean:.2f} points less than {rival!r} ({_interval(lead)})."


def _reversed(lead: Points) -> Points:
    if lead.low is None or lead.high is None:
        return Points(0.0 - lead.mean, None, None)  # not -lead.mean, which can be -0.0
    return Points(0.0 - lead.mean, 0.0 - lead.high, 0.0 - lead.low)


def _interval(lead: Points) -> str:
    if lead.low is None or lead.high is None:
        return "too few rows for an interval"
    certain = "" if lead.low > 0 else ", so it may be chance"
    return f"95 % interval {lead.low:+.2f} to {lead.high:+.2f}{certain}"
