"""Advice on contracts: who should buy from whom at which price, and what each part is worth.

Every answer compares replays of the same rows with and without something. docs/reference/advice.md
says what is compared, and describes every field of the numbers.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import msgspec

from covey import files
from covey.config import changed, load, tables_in, without_function
from covey.errors import ConfigError
from covey.jobs.running import claim, path_of, worked
from covey.replay.replay import ConfigLike, Progress
from covey.report import figures, page
from covey.report import text as report_text
from covey.report.comparison import identity_of, source_of
from covey.report.contracts import (
    BreakEven,
    PricePoint,
    Sites,
    Table,
    Verdict,
    among,
    break_even,
    gain_between,
    more_labels,
    play,
    sweep,
    verdict_of,
)
from covey.report.results import Shown
from covey.report.text import shorten, signed
from covey.toml import modules_beside
from covey.types import Interval, Value

PRICES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MOST_SITES = 6  # of which all networks, and contracts of all pairs, are tried
PER_JOB = 8  # networks


class PairAdvice(msgspec.Struct, frozen=True):
    """Whether one site should buy from another."""

    buyer: str
    seller: str
    price: float | None  # as configured; None: there is no contract
    gain_points: Interval | None  # at that price
    break_even: BreakEven
    verdict: Verdict
    more_labels: int | None  # of the buyer, that would make an undecided answer certain
    curve: list[PricePoint]


class Worth(msgspec.Struct, frozen=True):
    """What something is worth: what is lost without it."""

    name: str
    gain_points: Interval | None
    verdict: Verdict
    more_labels: int | None


class AdviceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of an advice."""

    version: str
    slots: int
    conclusions: list[str] = []
    contracts: list[PairAdvice]
    sites: list[Worth]  # what each gains by taking part, with income
    peers: list[Worth]  # to the other sites
    functions: list[Worth]  # to their sites, with income
    contexts: list[Worth]  # to all sites
    networks: list[Worth]  # over working alone, the best first
    best: list[str]  # the members of the best network
    leaving: list[str]  # its members who would gain by leaving
    value: Value | None


def advise(
    config: ConfigLike,
    data: Any,
    *,
    prices: Sequence[float] = PRICES,
    workers: int = 1,
    out: str | Path | None = None,
    progress: Progress = lambda share, jobs: None,
    on: str | None = None,
) -> "Advice":
    """Replay a log with other prices, peers, functions and contexts; return what to agree on.

    Of up to six sites every pair and every network is tried, above only the contracts of the
    configuration, and networks by leaving out one site after the other. `workers`, `out` and `on`
    are as in `covey.compare`.
    """
    with modules_beside(config):
        table = tables_in(config)
        setup = load(table)
        if setup.wiring is not None or setup.ensemble is not None or len(setup.sites) < 2:
            raise ConfigError(
                "advice varies the prices in peers of two learners or more; remove [[link]] "
                "tables, relays and [ensemble], and list the learners that could trade"
            )
        peers = {site["name"]: dict(site.get("peers") or {}) for site in table["learner"]}
        base = changed(table, {name: {"peers": own} for name, own in peers.items()})
        source = source_of(data, setup)
        folder = None if out is None else Path(out)
        if folder is not None:
            own = {**identity_of(base, source), "policy": repr(setup.settings)}
            claim(folder, own, file="advice.json", what="advice")
        done = itertools.count(1)

        def run(calls: Mapping[str, partial[Any]], kind: Any) -> dict[str, Any]:
            paths = {name: path_of(call, folder) for name, call in calls.items() if folder}
            return worked(
                {name: partial(call, source) for name, call in calls.items()},
                kind=kind,
                paths=paths,
                workers=workers,
                on=on,
                is_importable=setup.settings.is_importable,
                progress=lambda share, _: progress(share, next(done)),
            )

        summary = _Questions(base, sorted({float(price) for price in prices}), run).summary()
    title = f"Advice on {source.name}" if isinstance(source, Path) else "Advice"
    return Advice(summary, title=title, config=config)


class _Questions:
    """What is asked about a log, and the answers."""

    def __init__(self, base: Table, prices: list[float], run: Callable[..., Any]) -> None:
        self._base, self._prices, self._run = base, prices, run
        self._sites = {site["name"]: site for site in base["learner"]}
        self._setup = load(base)
        self._receivers = [site.name for site in self._setup.sites if site.receives]
        self._is_small = len(self._sites) <= MOST_SITES
        self._whole, self._alone = self._played({"all": [base, among(base, ())]})["all"]
        self._networks: dict[tuple[str, ...], Sites] = {tuple(self._sites): self._whole}

    def summary(self) -> AdviceSummary:
        """Answer all questions."""
        best, names = self._best_network(), tuple(self._sites)
        without = {left: tuple(name for name in names if name != left) for left in names}
        self._try(without.values())
        parts = self._leave_one_out()
        networks = [
            self._worth(", ".join(members), sites, self._alone, self._receivers)
            for members, sites in self._networks.items()
            if len(members) > 1
        ]
        summary = AdviceSummary(
            version=version("covey"),
            slots=sum(site.numbers.slots for site in self._whole),
            contracts=self._contracts(),
            sites=[self._worth(name, self._whole, self._alone, [name]) for name in self._receivers],
            peers=[
                self._worth(left, self._whole, self._networks[rest], rest)
                for left, rest in without.items()
            ],
            functions=parts["function"],
            contexts=parts["context"],
            networks=sorted(networks, key=lambda network: -_mean(network.gain_points)),
            best=[*best],
            leaving=[
                name
                for name in best
                if self._worth(name, self._networks[best], self._alone, [name]).verdict == "no"
            ],
            value=self._setup.data.value,
        )
        return msgspec.structs.replace(summary, conclusions=conclusions(summary))

    def _played(self, jobs: Mapping[str, Sequence[Table]]) -> dict[str, list[Sites]]:
        """Replay configurations, by name those of one pass over the log."""
        calls = {name: partial(play, variants) for name, variants in jobs.items()}
        played: dict[str, list[Sites]] = self._run(calls, kind=list[Sites])
        return played

    def _contracts(self) -> list[PairAdvice]:
        pairs = [
            (buyer, seller, self._sites[buyer]["peers"].get(seller))
            for buyer in self._receivers
            for seller in self._sites
            if seller != buyer and (self._is_small or seller in self._sites[buyer]["peers"])
        ]
        calls = {}
        for buyer, seller, price in pairs:
            prices = sorted({*self._prices, *([] if price is None else [float(price)])})
            calls[f"{buyer} buys from {seller}"] = partial(sweep, self._base, buyer, seller, prices)
        curves = self._run(calls, kind=list[PricePoint])
        return [
            self._contract(*pair, curve) for pair, curve in zip(pairs, curves.values(), strict=True)
        ]

    def _contract(
        self, buyer: str, seller: str, price: float | None, curve: list[PricePoint]
    ) -> PairAdvice:
        now = next((point.gain_points for point in curve if point.price == price), None)
        even = break_even(curve)
        verdict = verdict_of(now)
        if price is None:
            cost = self._sites[seller].get("serving-cost", 0.0)
            if even.low is not None and even.low > cost:
                verdict = "yes"
            elif even.high is not None and even.high <= cost:
                verdict = "no"
        decisive = curve[0].gain_points if now is None else now
        more = more_labels(decisive, self._labelled([buyer])) if verdict == "undecided" else None
        return PairAdvice(buyer, seller, price, now, even, verdict, more, curve)

    def _best_network(self) -> tuple[str, ...]:
        """Return the members of the best network: of all, or after leaving out one by one."""
        names = tuple(self._sites)
        if self._is_small:
            sizes = range(2, len(names))
            self._try([own for size in sizes for own in itertools.combinations(names, size)])
            return max(self._networks, key=self._gained)
        best = names
        while len(best) > 2:
            smaller = [tuple(name for name in best if name != left) for left in best]
            self._try(smaller)
            following = max(smaller, key=self._gained)
            if self._gained(following) <= self._gained(best):
                break
            best = following
        return best

    def _try(self, networks: Collection[tuple[str, ...]]) -> None:
        """Replay the networks in which only these sites trade."""
        self._networks |= {members: self._alone for members in networks if len(members) < 2}
        left = [members for members in networks if members not in self._networks]
        groups = [left[k : k + PER_JOB] for k in range(0, len(left), PER_JOB)]
        jobs = {
            " ".join(group[0]): [among(self._base, members) for members in group]
            for group in groups
        }
        for group, played in zip(groups, self._played(jobs).values(), strict=True):
            self._networks |= zip(group, played, strict=True)

    def _gained(self, members: tuple[str, ...]) -> float:
        return _mean(gain_between(self._networks[members], self._alone, self._receivers))

    def _leave_one_out(self) -> dict[str, list[Worth]]:
        """Return what each function is worth to its site, and each context to all."""
        left = {
            ("function", function): ([site["name"]], without_function(self._base, site, function))
            for site in self._base["learner"]
            for function in site["functions"]
            if len(site["functions"]) > 1
        }
        data = self._base.get("data", {})
        context = data.get("context", [])
        entries = [context] if isinstance(context, Mapping) else context
        for place, entry in enumerate(entries):
            title = entry if isinstance(entry, str) else _title(entry)
            others = [*entries[:place], *entries[place + 1 :]]
            variant = {**self._base, "data": {**data, "context": others}}
            left["context", title] = (self._receivers, variant)
        runs = self._played({" ".join(key): [variant] for key, (_, variant) in left.items()})
        worths: dict[str, list[Worth]] = {"function": [], "context": []}
        for (kind, name), (sites, _) in left.items():
            (others,) = runs[f"{kind} {name}"]
            worths[kind].append(self._worth(name, self._whole, others, sites))
        return worths

    def _worth(self, name: str, sites: Sites, others: Sites, names: Collection[str]) -> Worth:
        gain = gain_between(sites, others, names)
        verdict = verdict_of(gain)
        more = more_labels(gain, self._labelled(names)) if verdict == "undecided" else None
        return Worth(name, gain, verdict, more)

    def _labelled(self, names: Collection[str]) -> int:
        return sum(site.judged for site in self._whole if site.name in names)


def _title(entry: Table) -> str:
    column = entry.get("column", entry.get("vector", ""))
    return f"{column} ({entry['scale']})" if "scale" in entry else str(column)


def _mean(gain: Interval | None) -> float:
    return 0.0 if gain is None else gain.mean


# -- what is said and shown ---------------------------------------------------------------------

_MOST_LISTED = 8  # networks
LONGEST = 60  # characters of a name in a table


def _sections(summary: AdviceSummary) -> list[report_text.Section]:
    """Return the tables that have lines."""
    pairs = {f"{each.buyer} from {each.seller}": each for each in summary.contracts}
    tables: list[tuple[str, str, str, str, Mapping[str, Any]]] = [
        ("contracts", "Contracts", "buyer from seller", "contracts", pairs)
    ]
    for name, title, heading, worths in (
        ("sites", "Who gains by taking part", "site", summary.sites),
        ("peers", "What each site is worth to the others", "site", summary.peers),
        ("functions", "What each function is worth to its site", "function", summary.functions),
        ("contexts", "What each context is worth", "context", summary.contexts),
        ("networks", "Networks", "members", summary.networks[:_MOST_LISTED]),
    ):
        tables.append((name, title, heading, "parts", {each.name: each for each in worths}))
    return [
        report_text.Section(name, report_text.lines_of(heading, columns, rows), title, LONGEST)
        for name, title, heading, columns, rows in tables
        if rows
    ]


def conclusions(summary: AdviceSummary) -> list[str]:
    """Return what follows, in sentences."""
    members = ", ".join(map(shorten, summary.best))
    gain = summary.networks[0].gain_points
    money = report_text.money_of(summary.value, gain, summary.slots, ", ")
    lines = [
        f"Of the networks that were tried, {members} gain most together: {signed(gain)} points "
        f"over sites that work alone{money}."
    ]
    if summary.leaving:
        lines.append(f"Of these, {', '.join(map(shorten, summary.leaving))} would gain by leaving.")
    for site in summary.sites:
        pairs = [pair for pair in summary.contracts if pair.buyer == site.name]
        own = f"{shorten(site.name)} gains {signed(site.gain_points)} points by taking part."
        lines.append(f"{own}{''.join(map(_contract, pairs))}")
    return lines


def _contract(pair: PairAdvice) -> str:
    """Return what to do about one contract; nothing about one that nobody needs."""
    seller, even = shorten(pair.seller), pair.break_even
    if pair.price is None:
        return f" It could buy from {seller}: break-even {even}." if pair.verdict == "yes" else ""
    gain = "" if pair.gain_points is None else f": {signed(pair.gain_points)}"
    if pair.verdict == "undecided":
        more = pair.more_labels
        labels = "" if more is None else f"; some {more:,} more labels would tell"
        return f" Whether to buy from {seller} at {pair.price:g} is undecided{gain}{labels}."
    does = "Buy" if pair.verdict == "yes" else "Do not buy"
    return f" {does} from {seller} at {pair.price:g}{gain}; break-even {even}."


class Advice(Shown):
    """What to agree on, and why."""

    _files = ("advice.html", "numbers.json")
    _title = "Advice"

    def summary(self) -> AdviceSummary:
        """Return the numbers, as `covey advise --json` prints them."""
        return cast("AdviceSummary", self._found)

    def _head(self) -> str:
        return f"{report_text.count(self._found.peers, 'site')}, {self._found.slots:,} slots"

    def _parts(self) -> list[report_text.Part]:
        return [*_sections(self._found), *self._found.conclusions, report_text.sentence("advice")]

    def plot(self) -> Any:
        """Draw the gain of each contract over its price, and return matplotlib axes."""
        return figures.plot_prices({_name(pair): pair.curve for pair in self._found.contracts})

    def report(self, folder: str | Path, *, has_slide: bool = False) -> Path:
        """Write what every result writes, and a slide."""
        path = super().report(folder)
        if has_slide:
            files.replace(path.parent / "slide.html", self.slide().encode())
        return path

    def slide(self) -> str:
        """Return one page of 16:9: the conclusion, three numbers, and the curve that matters most.

        Raises `MissingExtra` if matplotlib or jinja2 is not installed.
        """
        pairs = sorted(self._found.contracts, key=lambda pair: -_mean(pair.gain_points))
        return page.filled(
            "slide",
            title=self._title,
            summary=self._found,
            curve=_panel(pairs[0], width=620, height=430),
        )

    def _page(self) -> str:
        return page.filled(
            "advice",
            title=self._title,
            config=self._config,
            extent=self._head(),
            conclusions=self._found.conclusions,
            sections=_sections(self._found),
            curves=[
                _panel(pair, width=page.width_of(2), height=230) for pair in self._found.contracts
            ],
            how=report_text.sentence("advice"),
        )

    def __repr__(self) -> str:
        paying = sum(pair.verdict == "yes" for pair in self._found.contracts)
        return f"<Advice on {len(self._found.contracts)} contracts: {paying} pay>"


def _name(pair: PairAdvice) -> str:
    return f"{pair.buyer} buys from {pair.seller}"


def _panel(pair: PairAdvice, *, width: int, height: int) -> page.Panel:
    even = pair.break_even
    drawn = figures.draw_prices(
        pair.curve,
        name=_name(pair),
        now=pair.price,
        even=None if even.high is None else even.price,
        size=(width, height),
    )
    return page.Panel(_name(pair), page.markup(drawn), f"break-even {even}")
