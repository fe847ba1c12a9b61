"""Draws docs/demo.svg, the picture of the README, from the demo's own outcome: `make picture`."""

import re
import tempfile
from pathlib import Path

from covey import config
from covey.cli import demo
from covey.replay import replay as replaying
from covey.replay.outcome import LearnerOutcome, Outcome
from covey.report import figures

WIDTH = 270
TOP, ERRORS, GAP = 34, 176, 18


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, toml = demo.write(Path(folder))
        outcome = replaying.replay_file(log, config.load(toml))
    Path(__file__).with_name("demo.svg").write_text(picture(outcome), encoding="utf-8")


def picture(outcome: Outcome) -> str:
    colours = figures.arm_colours(outcome.learners)
    panels = []
    for place, learner in enumerate(outcome.learners):
        x = place * (WIDTH + GAP)
        errors = figures.draw_errors(
            learner, colour=colours[learner.name], ceiling=45.0, width=WIDTH
        )
        cells = figures.draw_map(
            learner,
            colours=colours,
            contexts=outcome.context_names,
            width=WIDTH,
            ticks=outcome.context_ticks,
        )
        panels.append(_title(learner, colours[learner.name], x))
        panels.append(_placed(errors, x, TOP, ERRORS))
        panels.append(_placed(cells, x, TOP + ERRORS + GAP, WIDTH - 12))
    width = len(outcome.learners) * (WIDTH + GAP) - GAP
    height = TOP + ERRORS + GAP + WIDTH
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="Helvetica, Arial, sans-serif">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def _title(learner: LearnerOutcome, colour: str, x: int) -> str:
    together, best = learner.numbers.error_percent, learner.numbers.best_own_percent
    return (
        f'<rect x="{x}" y="8" width="12" height="12" fill="{colour}"/>'
        f'<text x="{x + 18}" y="19" font-size="15" font-weight="bold">{learner.name}</text>'
        f'<text x="{x + WIDTH}" y="19" font-size="12" fill="#555" text-anchor="end">'
        f"{together:.1f} %, best own {best:.1f} %</text>"
    )


def _placed(drawing: str, x: int, y: int, height: int) -> str:
    return re.sub(
        r"<svg ", f'<svg x="{x}" y="{y}" width="{WIDTH}" height="{height}" ', drawing, count=1
    )


if __name__ == "__main__":
    main()
