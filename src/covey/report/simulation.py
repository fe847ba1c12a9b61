"""Reports of a simulation: terminal table and page."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

from covey.replay.replay import ConfigLike
from covey.report import figures, page
from covey.report import text as report_text
from covey.report.text import NONE, number, shorten
from covey.simulation.comparison import Comparison, Score
from covey.types import Interval

_NAME = 24  # characters of a name in a table


def head(comparison: Comparison) -> str:
    """Return how much was simulated."""
    return f"{comparison.name}: {_extent(comparison)}"


def parts(comparison: Comparison) -> list[report_text.Part]:
    """Return the table, the meaning of its columns and a verdict on each policy."""
    columns = _shown(comparison)
    lines = [
        [_name(score, comparison), *(column(score) for column in columns.values())]
        for score in comparison.scores
    ]
    meanings = [f"{term}: {meaning}." for term, meaning in _meanings(comparison).items()]
    return [
        report_text.Section("policies", [["", *columns], *lines], longest=report_text.WIDTH),
        " ".join([*meanings, _certainty(comparison)]),
        *_verdicts(comparison),
    ]


def html(comparison: Comparison, *, config: ConfigLike | None = None) -> str:
    """Return one self-contained HTML page, which ends with the scenario's file.

    Raises `MissingExtra` if matplotlib or jinja2 is not installed.
    """
    page.check_extra()
    colours = figures.colours_of(comparison.policies, figures.LEARNER_COLOURS)
    causes = dict.fromkeys(cause for score in comparison.scores for cause in score.causes)
    cause_colours = figures.colours_of(causes, figures.CAUSE_COLOURS)
    columns, shown = min(2, len(comparison.environments)), _shown(comparison)
    return page.filled(
        "simulation",
        title=comparison.name,
        config=config,
        extent=_extent(comparison),
        verdicts=_verdicts(comparison),
        columns=columns,
        policy_keys=[page.Key(policy, colour) for policy, colour in colours.items()],
        growth=_growth(comparison, colours, page.width_of(columns)),
        lines=[
            ["environment", "policy", *shown],
            *(
                ["" if place else name, score.policy, *(column(score) for column in shown.values())]
                for name, scores in _by_environment(comparison)
                for place, score in enumerate(scores)
            ),
        ],
        colours=colours,
        meanings=_meanings(comparison),
        certainty=_certainty(comparison),
        cause_keys=[page.Key(cause, colour) for cause, colour in cause_colours.items()],
        cause_colours=cause_colours,
        by_environment=_by_environment(comparison),
        longest=max(sum(score.causes.values()) for score in comparison.scores) or 1.0,
        brief=figures.brief,
        descriptions=[*comparison.policies.items(), *comparison.environments.items()],
    )


def _name(score: Score, comparison: Comparison) -> str:
    width = max(len(shorten(name, _NAME)) for name in comparison.environments)
    return f"{shorten(score.environment, _NAME):<{width}}  {shorten(score.policy, _NAME)}"


def _shown(comparison: Comparison) -> "dict[str, Callable[[Score], str]]":
    """Return the columns of the table; some only if there is anything in them."""
    scores, first = comparison.scores, shorten(next(iter(comparison.policies)), 12)
    present = {
        "alarms": any(score.alarms.mean for score in scores),
        "utility": any(
            score.accounts and score.accounts["all"]["serving_cost"] for score in scores
        ),
        "ensemble %": any(score.ensemble for score in scores),
    }
    shown = {name: column for name, column in _COLUMNS.items() if present.get(name, True)}
    return {f"to {first}" if name == "to" else name: column for name, column in shown.items()}


def _with_reach(value: Interval | None, form: str, *, times: float = 1.0) -> str:
    if value is None:
        return NONE
    reach = "" if value.high is None else f" ± {times * (value.high - value.mean):{form}}"
    return f"{times * value.mean:{form}}{reach}"


def _with_ends(value: Interval | None) -> str:
    if value is None:
        return NONE
    ends = "" if value.high is None else f" ({value.low:.3g}{NONE}{value.high:.3g})"
    return f"{value.mean:.3g}{ends}"


_COLUMNS: dict[str, Callable[[Score], str]] = {
    "regret": lambda score: _with_reach(score.regret_per_slot, ".1f", times=1000),
    "exponent": lambda score: _with_reach(score.exponent, ".2f"),
    "to": lambda score: _with_ends(score.ratio),  # the first policy
    "error %": lambda score: number(score.error_percent, ".2f"),
    "cost": lambda score: number(score.cost_per_slot, ".4f"),
    "messages": lambda score: number(sum(score.messages.values()), ".0f"),
    "train %": lambda score: number(100 * score.phases.get("train", 0.0), ".1f"),
    "explore %": lambda score: number(100 * score.phases.get("explore", 0.0), ".1f"),
    "alarms": lambda score: number(score.alarms, ".1f"),
    "utility": lambda score: number(score.accounts["all"]["utility"] / score.slots[-1], ".3f"),
    "ensemble %": lambda score: f"{100 * score.ensemble.get('all', 0.0):.2f}",
}


def _extent(comparison: Comparison) -> str:
    counts = (
        report_text.count(comparison.policies, "policy", "policies"),
        report_text.count(comparison.environments, "environment"),
        report_text.count(comparison.seeds, "seed"),
    )
    return f"{', '.join(counts)}, {comparison.horizon_slots:,} slots each"


def _meanings(comparison: Comparison) -> dict[str, str]:
    first = next(iter(comparison.policies))
    meanings = report_text.meanings()
    meanings[f"to {shorten(first, 12)}"] = f"regret relative to that of {first}, paired by seed"
    return {name: meanings[name] for name in _shown(comparison) if name in meanings}


def _certainty(comparison: Comparison) -> str:
    if len(comparison.seeds) == 1:
        return "One seed gives no confidence interval; use several."
    return f"± and brackets: 95 % over {len(comparison.seeds)} seeds."


def _verdicts(comparison: Comparison) -> list[str]:
    """Return a sentence per policy but the first: less or more regret than the first."""
    first, *others = comparison.policies
    return [_verdict(policy, first, comparison.scores) for policy in others]


def _verdict(policy: str, first: str, scores: Sequence[Score]) -> str:
    ratios = [score.ratio for score in scores if score.policy == policy]
    less = sum(ratio is not None and ratio.high is not None and ratio.high < 1 for ratio in ratios)
    more = sum(ratio is not None and ratio.low is not None and ratio.low > 1 for ratio in ratios)
    undecided = len(ratios) - less - more
    ending = f"; {undecided} undecided." if undecided else "."
    return (
        f"{policy} had less regret than {first} in {less} of {len(ratios)} environments, more in "
        f"{more}{ending}"
    )


def _growth(comparison: Comparison, colours: Mapping[str, str], width: int) -> list[page.Panel]:
    limits = figures.regret_limits(comparison.scores)
    panels = []
    for name, scores in _by_environment(comparison):
        drawn = figures.draw_growth(scores, colours=colours, limits=limits, width=width)
        note = ", ".join(f"{escape(shorten(each.policy, 10))} {_power(each)}" for each in scores)
        panels.append(page.Panel(name, page.markup(drawn), page.markup(note)))
    return panels


def _power(score: Score) -> str:
    return NONE if score.exponent is None else f"t<sup>{score.exponent.mean:.2f}</sup>"


def _by_environment(comparison: Comparison) -> list[tuple[str, list[Score]]]:
    return [
        (name, [score for score in comparison.scores if score.environment == name])
        for name in comparison.environments
    ]
