"""Reports of a simulation: terminal table, HTML page."""

from collections.abc import Callable, Sequence
from html import escape

from covey.replay.replay import ConfigLike
from covey.report import figures, page
from covey.report import text as report_text
from covey.report.text import NONE, number, shorten
from covey.simulation.comparison import Comparison, Score
from covey.types import Interval

_NAME = 24  # characters of a name in a table


def text(found: Comparison) -> str:
    """Return `found` as a terminal table, with the meaning of its columns and a verdict."""
    lines = [[_name(score, found), *_printed(score, found)] for score in found.scores]
    meanings = [f"{term}: {meaning}." for term, meaning in _meanings(found).items()]
    parts = (
        f"{found.name}: {_extent(found)}",
        report_text.table([["", *_headings(found)], *lines]),
        report_text.fill(" ".join([*meanings, _certainty(found)])),
        *map(report_text.fill, _verdicts(found)),
    )
    return "\n\n".join(parts) + "\n"


def html(found: Comparison, *, config: ConfigLike | None = None) -> str:
    """Return `found` as one self-contained HTML page, which ends with the scenario's file.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    sections = (
        page.header(found.name, _extent(found), _verdicts(found)),
        _growth(found),
        _numbers(found),
        _causes(found),
        page.descriptions(
            "Policies and environments", [*found.policies.items(), *found.environments.items()]
        ),
    )
    return page.document(sections, title=found.name, config=config)


def _headings(found: Comparison) -> list[str]:
    first = shorten(next(iter(found.policies)), 12)
    return [f"to {first}" if heading == "to" else heading for heading in _shown(found)]


def _name(score: Score, found: Comparison) -> str:
    width = max(len(shorten(name, _NAME)) for name in found.environments)
    return f"{shorten(score.environment, _NAME):<{width}}  {shorten(score.policy, _NAME)}"


def _printed(score: Score, found: Comparison) -> list[str]:
    return [column(score) for column in _shown(found).values()]


def _shown(found: Comparison) -> "dict[str, Callable[[Score], str]]":
    """Return the columns of the table; some only if there is anything in them."""
    scores = found.scores
    absent = set()
    if not any(score.alarms.mean for score in scores):
        absent.add("alarms")
    if not any(score.utility for score in scores):
        absent.add("utility")
    if not any(score.ensemble for score in scores):
        absent.add("ensemble %")
    return {name: column for name, column in _COLUMNS.items() if name not in absent}


def _slot(slot: int | None) -> str:
    return number(slot, "," if slot is None or slot < 10**7 else ".2e")


def _with_reach(value: Interval | None, form: str, *, times: float = 1.0) -> str:
    if value is None:
        return NONE
    reach = "" if value.half_width is None else f" ± {times * value.half_width:{form}}"
    return f"{times * value.mean:{form}}{reach}"


def _with_ends(value: Interval | None) -> str:
    if value is None:
        return NONE
    ends = "" if value.high is None else f" ({value.low:.3g}{NONE}{value.high:.3g})"
    return f"{value.mean:.3g}{ends}"


def _percent(share: float | None) -> str:
    return number(None if share is None else 100 * share, ".2f")


_COLUMNS: dict[str, Callable[[Score], str]] = {
    "regret": lambda score: _with_reach(score.regret_per_slot, ".1f", times=1000),
    "exponent": lambda score: _with_reach(score.exponent, ".2f"),
    "to": lambda score: _with_ends(score.ratio),  # the first policy
    "error %": lambda score: number(score.error_percent.mean, ".2f"),
    "cost": lambda score: number(score.cost_per_slot.mean, ".4f"),
    "messages": lambda score: number(sum(score.messages.values()), ".0f"),
    "train %": lambda score: number(100 * score.phases.get("train", 0.0), ".1f"),
    "explore %": lambda score: number(100 * score.phases.get("explore", 0.0), ".1f"),
    "alarms": lambda score: number(score.alarms.mean, ".1f"),
    "utility": lambda score: number(score.utility.get("system"), ".3f"),
    "ensemble %": lambda score: _percent(score.ensemble.get("all")),
    "exploits": lambda score: _slot(score.exploits_from),
}


_RARE = {
    "alarms": "of the change detection, in a run",
    "ensemble %": "errors of the weighted vote of all learners",
    "utility": "right answers less costs of all learners together, per slot",
}


def _extent(found: Comparison) -> str:
    counts = (
        report_text.count(found.policies, "policy", "policies"),
        report_text.count(found.environments, "environment"),
        report_text.count(found.seeds, "seed"),
    )
    return f"{', '.join(counts)}, {found.horizon_slots:,} slots each"


def _meanings(found: Comparison) -> dict[str, str]:
    first = next(iter(found.policies))
    return {
        "regret": "loss against the paid oracle per 1,000 slots of a learner",
        "exponent": "of the power law fitted to the later half of the regret; 1 is linear",
        f"to {first}": f"regret relative to that of {first}, paired by seed",
        "cost": "paid per slot",
        "messages": "sent per 1,000 decisions",
        **{name: text for name, text in _RARE.items() if name in _shown(found)},
        "exploits": "from this slot on, if all cells were visited evenly",
    }


def _certainty(found: Comparison) -> str:
    if len(found.seeds) == 1:
        return "One seed gives no confidence interval; use several."
    return f"± and brackets: 95 % over {len(found.seeds)} seeds."


def _verdicts(found: Comparison) -> list[str]:
    """Return a sentence per policy but the first: less or more regret than the first."""
    first, *others = found.policies
    return [_verdict(policy, first, found.scores) for policy in others]


def _verdict(policy: str, first: str, scores: Sequence[Score]) -> str:
    ratios = [score.ratio for score in scores if score.policy == policy]
    known = [ratio for ratio in ratios if ratio is not None and ratio.low is not None]
    less = sum(ratio.high is not None and ratio.high < 1 for ratio in known)
    more = sum(ratio.low is not None and ratio.low > 1 for ratio in known)
    open_ = len(ratios) - less - more
    ending = f"; {open_} undecided." if open_ else "."
    return (
        f"{policy} had less regret than {first} in {less} of {len(ratios)} environments, more in "
        f"{more}{ending}"
    )


def _growth(found: Comparison) -> str:
    colours = figures.colours_of(found.policies, figures.LEARNER_COLOURS)
    limits = figures.regret_limits(found.scores)
    width = page.panel_width(_columns(found))
    panels = []
    for name, scores in _by_environment(found):
        drawn = figures.draw_growth(scores, colours=colours, limits=limits, width=width)
        note = ", ".join(f"{escape(shorten(each.policy, 10))} {_power(each)}" for each in scores)
        panels.append(page.panel(name, drawn, note=note))
    has_bounds = any(score.bound for score in found.scores)
    keys = [page.key(colour, policy) for policy, colour in colours.items()]
    signs = [page.sign("dotted", "slope of linear regret")]
    signs += [page.sign("dashed", "bound")] if has_bounds else []
    bounds = (
        "Dashed: the theoretical bound, where it is below one per slot. "
        if has_bounds
        else "No bound is drawn: none applies, or all are above one per slot. "
    )
    how = (
        "Cumulative regret of one learner against the paid oracle, mean over seeds with its 95 % "
        "band. Both axes are logarithmic, so a power law is a straight line; panels share one "
        "scale. The number beside a policy is the exponent fitted to the later half: below 1 the "
        "regret per slot tends to zero. A band that reaches the axis has no positive lower limit. "
        + bounds
    )
    body = page.legend([*keys, *signs]) + page.grid(panels, columns=_columns(found))
    return page.section("Growth of regret", body, how)


def _power(score: Score) -> str:
    return NONE if score.exponent is None else f"t<sup>{score.exponent.mean:.2f}</sup>"


def _numbers(found: Comparison) -> str:
    colours = figures.colours_of(found.policies, figures.LEARNER_COLOURS)
    body = [
        _line(score, found, colours[score.policy], opens=index == 0)
        for _, scores in _by_environment(found)
        for index, score in enumerate(scores)
    ]
    titles, kind = ["environment", "policy", *_headings(found)], ' class="grouped"'
    table = page.table(titles, body, words=["policy"], kind=kind)
    terms = [f"<b>{escape(term)}</b>: {escape(line)}." for term, line in _meanings(found).items()]
    return page.section("Results", table, " ".join([*terms, _certainty(found)]))


def _line(score: Score, found: Comparison, colour: str, *, opens: bool) -> page.TableRow:
    environment = escape(shorten(score.environment, _NAME)) if opens else ""
    cells = [page.key(colour, score.policy), *_printed(score, found)]
    return page.TableRow(environment, cells, kind=' class="opens"' if opens else "")


def _causes(found: Comparison) -> str:
    names = dict.fromkeys(cause for score in found.scores for cause in score.causes)
    colours = figures.colours_of(names, figures.CAUSE_COLOURS)
    ceiling = max(sum(score.causes.values()) for score in found.scores) or 1.0
    width = page.panel_width(_columns(found))
    panels = [
        page.panel(name, figures.draw_causes(scores, colours=colours, ceiling=ceiling, width=width))
        for name, scores in _by_environment(found)
    ]
    keys = [page.key(colour, cause) for cause, colour in colours.items()]
    how = (
        "The causes of the final regret. <b>training</b> and <b>exploration</b> are the cost of "
        "learning. In all other slots the arm with the best estimate was used: <b>near-optimal</b> "
        "is loss within the resolution of a cell, <b>wrong choice</b> the loss of a worse arm, and "
        "<b>helper's mistake</b> the loss because the asked learner did not run its best function."
    )
    body = page.legend(keys) + page.grid(panels, columns=_columns(found))
    return page.section("Causes of regret", body, how)


def _by_environment(found: Comparison) -> list[tuple[str, list[Score]]]:
    return [
        (name, [score for score in found.scores if score.environment == name])
        for name in found.environments
    ]


def _columns(found: Comparison) -> int:
    return min(2, len(found.environments))
