"""What the tables come to, a line for each policy; it stands in docs/guide/policies.md."""

from collections.abc import Mapping, Sequence

import tables
from costs import Costs
from playing import Played
from tables import Entry

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
WORDS = {
    "auto": "The default: nothing needs to be known.",
    "cos": "The paper's algorithm, and one of the two references here.",
    "dcza": "The other reference; neither of the two is better throughout.",
    "share-ucb": "The one with a proof; it pays for that by trying more than `auto`.",
}


def block(found: Mapping[str, Sequence[Entry]], liars: Played, measured: Costs) -> str:
    """Return a line for each policy: the range of its ratios in each table, liars, and speed."""
    speeds = {line.what: 1e3 / line.nanoseconds for line in measured.by_policy}
    return "\n".join(
        f"- `{policy}`: {words} {_ratios(policy, found)}; a liar gets "
        f"{_to_liar(policy, liars)} of the decisions; {speeds[policy]:.1f} million learner-slots a "
        "second."
        for policy, words in WORDS.items()
    )


def _ratios(policy: str, found: Mapping[str, Sequence[Entry]]) -> str:
    return "Regret " + ", ".join(_range(policy, name, some) for name, some in found.items())


def _range(policy: str, name: str, some: Sequence[Entry]) -> str:
    ratios = [entry.ratio.mean for entry in some if entry.policy == policy]
    return f"{min(ratios):.2f} to {max(ratios):.2f} {name}"


def _to_liar(policy: str, liars: Played) -> str:
    shares = [
        tables.mean([run.to_liars["overall"] for run in liars.team(policy, f"{case} lies")])
        for case in tables.CASES
    ]
    return f"at most {100 * max(shares):.1f} %"


def splice(page: str, text: str) -> str:
    """Put `text` between the marks of a page."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
