"""Policies side by side on one log: numbers, table, conclusion, plot and page.

`docs/reference/summary.md` describes every field of the numbers.
"""

import contextlib
import hashlib
import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey.bandit.policies import PRESETS, RECORDS, Own, PolicyRecord, keys_of, policy_table
from covey.config import NetworkConfig, load, tables_in
from covey.data import tables
from covey.errors import ConfigError, CoveyError
from covey.jobs.running import claim, path_of, titled, worked
from covey.replay.outcome import LearnerOutcome, Outcome, TotalNumbers, aligned
from covey.replay.replay import ConfigLike, Progress, replay_file, used_columns
from covey.report import figures, page
from covey.report import text as report_text
from covey.report.contracts import Source, gain_between, gains_between
from covey.report.results import Shown
from covey.simulation.scenario import named_tables
from covey.toml import modules_beside, read_toml
from covey.types import Array, Interval


class PolicyRun(msgspec.Struct, frozen=True):
    """One policy that was replayed."""

    settings: dict[str, Any]  # keys of [policy] that are not the default, and the preset
    outcome: Outcome
    warnings: list[str] = []


class PolicySummary(msgspec.Struct, frozen=True):
    """One policy on the log; None where unknown."""

    policy: str
    settings: dict[str, Any]
    numbers: TotalNumbers
    loss_points: float | None  # error and cost
    against_points: Interval | None  # None for the reference
    learners_against: dict[str, Interval | None]


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

    _files = ("comparison.html", "comparison.json")
    _title = "Comparison"

    def __init__(self, runs: Mapping[str, PolicyRun], **shown: Any) -> None:
        super().__init__(runs, **shown)
        self._runs, self._reference = runs, next(iter(runs))

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
            if each.numbers.error_percent is not None
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

    def _head(self) -> str:
        described = f"{self._reference}: {self._runs[self._reference].outcome.policy}"
        return f"{self._extent()}\n{report_text.fill(described)}"

    def _parts(self) -> list[report_text.Part]:
        return [
            report_text.Section("policies", self._lines()),
            self._summary.conclusion,
            report_text.sentence("policies"),
        ]

    def plot(self) -> Any:
        """Draw how far each policy is ahead of the reference over time; return matplotlib axes."""
        return figures.plot_leads(self._leads())

    def __repr__(self) -> str:
        best = "" if self._summary.best is None else f", least loss: {self._summary.best}"
        return f"<Comparison of {len(self._runs)} policies, {self._summary.slots:,} slots{best}>"

    def _lines(self) -> report_text.Lines:
        return report_text.lines_of("policy", "policies", self._summary.policies)

    def _extent(self) -> str:
        sites = report_text.count(self._runs[self._reference].outcome.learners, "learner")
        return f"{len(self._runs)} policies, {sites}, {self._summary.slots:,} slots"

    def _policy(self, name: str) -> PolicySummary:
        run = self._runs[name]
        total, sites = run.outcome.total, self._names()
        error, cost = total.error_percent, total.cost_points
        return PolicySummary(
            policy=run.outcome.policy,
            settings=run.settings,
            numbers=total,
            loss_points=None if error is None or cost is None else error + cost,
            against_points=self._against(name, sites),
            learners_against={site: self._against(name, [site]) for site in sites},
        )

    def _names(self) -> list[str]:
        return [learner.name for learner in self._runs[self._reference].outcome.learners]

    def _pair(self, name: str) -> tuple[list[LearnerOutcome], list[LearnerOutcome]]:
        return self._runs[name].outcome.learners, self._runs[self._reference].outcome.learners

    def _against(self, name: str, sites: Sequence[str]) -> Interval | None:
        """Return what a policy gains over the reference."""
        if name == self._reference:
            return None
        others = len(self._runs) - 1
        return gain_between(*self._pair(name), sites, is_buyer=True, comparisons=others)

    def _leads(self) -> dict[str, tuple[Array, Array]]:
        """Return per policy the ends of the buckets, and the lead over the reference until then."""
        leads = {}
        for name in self._runs:
            parts = gains_between(*self._pair(name), self._names(), is_buyer=True)
            sums, _ = aligned(parts)
            width = max(slots for slots, _, _ in parts)
            leads[name] = (width * np.arange(1, len(sums) + 1), np.cumsum(sums))
        return leads

    def _page(self) -> str:
        names = [name for name in self._runs if name != self._reference]
        colours = figures.colours_of(names, figures.LEARNER_COLOURS)
        drawn = figures.draw_leads(self._leads(), colours=colours, width=page.WIDTH)
        policies = self._summary.policies
        return page.filled(
            "comparison",
            title=self._title,
            config=self._config,
            extent=self._extent(),
            conclusion=self._summary.conclusion,
            lines=self._lines(),
            how=report_text.sentence("policies"),
            keys=[page.Key(name, colour) for name, colour in colours.items()],
            leads=page.markup(drawn),
            reference=self._reference,
            policies=[(name, each.policy) for name, each in policies.items()],
        )


def _conclusion(policies: Mapping[str, PolicySummary], reference: str, best: str | None) -> str:
    """Return which policy has the smallest loss, by how much, and whether that may be chance."""
    if best is None:
        return "The policies cannot be compared: the log has no true labels."
    winner = policies[best]
    does = (
        f"{best!r} does best: {winner.numbers.error_percent:.2f}% errors, "
        f"{winner.numbers.cost_points:.2f} points "
    )
    ahead = {name: each.against_points or Interval(0.0) for name, each in policies.items()}
    rival, lead = reference, ahead[best]
    if best == reference:
        rival = max(ahead.keys() - {best}, key=lambda name: (ahead[name].mean, name))
        far = ahead[rival]
        lead = Interval(0.0 - far.mean)  # not -far.mean, which can be -0.0
        if far.low is not None and far.high is not None:
            lead = Interval(lead.mean, 0.0 - far.high, 0.0 - far.low)
    interval = report_text.interval(lead, doubt=", so it may be chance")
    return f"{does}of cost. That is {lead.mean:.2f} points less than {rival!r} ({interval})."


CONFIGURED = "as configured"

Policies = dict[str, Mapping[str, Any]]  # name -> [policy] table


def compare(
    config: ConfigLike,
    data: Any,
    *,
    presets: Sequence[str] = (),
    slices: Sequence[int] = (),
    policies: str | Path | Mapping[str, Any] | None = None,
    workers: int = 1,
    out: str | Path | None = None,
    progress: Progress = lambda share, slots: None,
    on: str | None = None,
) -> ReplayComparison:
    """Replay several policies on the same log, and return how they compare.

    The first policy, and the reference, is that of the configuration. Each of the `presets` is
    replayed with each of the `slices`; without presets, the configured policy is. `policies` are
    policies of your own: by name a `[policy]` table or settings such as `covey.CoS(slices=4)`, or
    the path of a TOML file with `[[policy]]` tables. Without any of the three, the usual presets
    are compared. `data` is as in `covey.replay`.

    `workers` is the number of processes; 1 replays in this one. The folder `out` keeps finished
    replays: a repeated call replays only what is missing. `on` is a Ray cluster, "ray" or
    "ray://host:port", in place of processes here; all its nodes must find the log by its path.
    """
    with modules_beside(config), modules_beside(policies):
        table = tables_in(config)
        chosen = _policies(table, presets, slices, policies)
        setups = _setups(table, chosen, is_lenient=not (presets or slices or policies))
        source = source_of(data, setups[CONFIGURED])
        folder = None if out is None else Path(out)
        if folder is not None:
            claim(folder, identity_of(table, source), file="comparison.json", what="comparison")
        played = itertools.count(1)
        calls = {name: partial(play, {**table, "policy": chosen[name]}) for name in setups}
        runs = worked(
            {name: partial(call, source) for name, call in calls.items()},
            kind=PolicyRun,
            paths={name: path_of(call, folder) for name, call in calls.items() if folder},
            workers=workers,
            on=on,
            is_importable=all(setup.settings.is_importable for setup in setups.values()),
            title=lambda name: f"policy {name!r}",
            progress=lambda share, run: progress(share, next(played) * run.outcome.slots),
        )
    for message in dict.fromkeys(message for run in runs.values() for message in run.warnings):
        warnings.warn(message, stacklevel=2)
    title = f"Policies on {source.name}" if isinstance(source, Path) else "Policies compared"
    return ReplayComparison(runs, title=title, config=config)


def _policies(
    table: Mapping[str, Any],
    presets: Sequence[str],
    slices: Sequence[int],
    own: str | Path | Mapping[str, Any] | None,
) -> Policies:
    """Return the `[policy]` tables to compare, by name; the configured one is first."""
    for name, given in (("presets", presets), ("slices", slices)):
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"{name} is {given!r}; give a list, such as [{given!r}]")
    base = policy_table(table.get("policy", {}))
    kept = (*keys_of(PolicyRecord), "slices")
    chosen: Policies = {CONFIGURED: base}
    is_free = not (presets or slices or own)
    for preset in PRESETS if is_free else presets:
        keys = keys_of(RECORDS.get(preset, Own))
        common = {key: base[key] for key in kept if key in base and key in keys}
        policy = {**common, "preset": preset}
        chosen |= {f"{preset} slices={n}": {**policy, "slices": n} for n in slices}
        if not slices:
            chosen[preset] = policy
    if not presets:
        chosen |= {f"slices={n}": {**base, "slices": n} for n in slices}
    return chosen | _own(own)


def _own(own: str | Path | Mapping[str, Any] | None) -> Policies:
    if own is None:
        return {}
    if not isinstance(own, Mapping):
        own = named_tables(read_toml(Path(own)), "policy")
        own = {
            name: {key: value for key, value in table.items() if key != "name"}
            for name, table in own.items()
        }
    named_tables({"policy": [{"name": name} for name in own]}, "policy")  # names of files
    return {name: policy_table(policy) for name, policy in own.items()}


def _setups(
    table: Mapping[str, Any], chosen: Policies, *, is_lenient: bool
) -> dict[str, NetworkConfig]:
    """Return the checked configurations, without those that decide as an earlier one does."""
    setups: dict[str, NetworkConfig] = {}
    for name, policy in chosen.items():
        is_optional = is_lenient and name != CONFIGURED
        with contextlib.suppress(CoveyError) if is_optional else titled(f"policy {name!r}"):
            setup = load({**table, "policy": policy})
            setup.policies(setup.context.dimension)
            if setup.settings not in [other.settings for other in setups.values()]:
                setups[name] = setup
    if len(setups) < 2:
        raise ConfigError("there is one policy only; name others in presets, slices or policies")
    if len({setup.shares_slots for setup in setups.values()}) > 1:
        raise ConfigError(
            "the policies count slots differently, so their rows cannot be paired; compare those "
            'with the same batch in [policy] only ("slots" or "slot")'
        )
    return setups


def source_of(data: Any, setup: NetworkConfig) -> Source:
    """Return what worker processes read: the path of a log, or the columns that are used."""
    if isinstance(data, str | Path):
        return Path(data)
    return next(tables.open_table(data, used_columns(setup)).chunks(), {})


def identity_of(table: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return all that a replay depends on besides its policy."""
    config = {key: value for key, value in table.items() if key != "policy"}
    return {
        "covey": version("covey"),
        "data": _digest(source),
        "config": msgspec.to_builtins(config, enc_hook=repr),
    }


def _digest(source: Source) -> str:
    digest = hashlib.sha256()
    if isinstance(source, Path):
        tables.open_log(source, [])  # it is there and has a known form
        with source.open("rb") as log:
            return hashlib.file_digest(log, "sha256").hexdigest()
    for name, column in sorted(source.items()):
        digest.update(name.encode())
        is_array = isinstance(column, np.ndarray)
        digest.update(column.tobytes() if is_array else msgspec.json.encode(list(column)))
    return digest.hexdigest()


def _settings(setup: NetworkConfig) -> dict[str, Any]:
    settings: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(policy_table(setup.settings), enc_hook=str)
    )
    return settings


def play(table: Mapping[str, Any], source: Source) -> PolicyRun:
    """Replay one policy; called in worker processes, whose warnings the caller repeats."""
    setup = load(table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = replay_file(source, setup)
    messages = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning))
    return PolicyRun(_settings(setup), outcome, list(messages))
