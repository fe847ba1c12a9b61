"""Plots for notebooks: matplotlib axes of replays, comparisons and simulations."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.replay.outcome import LearnerOutcome
from covey.report.figures import (
    LEARNER_COLOURS,
    add_leads,
    arm_colours,
    colours_of,
    figure_type,
    smoothed_errors,
)
from covey.report.text import percent, shorten
from covey.simulation.comparison import Score
from covey.types import Array


def _axes() -> Any:
    """Return axes of a new figure of pyplot, so that a notebook shows it."""
    figure_type()  # says which extra is missing
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(9, 4), layout="constrained")[1]


def plot_errors(learners: Sequence[LearnerOutcome]) -> Any:
    """Return axes with the error of each learner over time, and its error alone as dots.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    axes = _axes()
    colours = arm_colours(learners)
    for learner in learners:
        if not learner.judged:
            continue
        width, colour = learner.timeline.slots_per_bucket, colours[learner.name]
        values = smoothed_errors(learner.timeline)
        middles = [(bucket + 0.5) * width for bucket in range(len(values))]
        axes.plot(middles, values, color=colour, label=shorten(learner.name, 24))
        alone = percent(learner.alone_errors, learner.judged)
        if alone is not None:
            axes.axhline(alone, color=colour, linewidth=0.8, linestyle=":")
    axes.set(xlabel="slot", ylabel="error in percent (dotted: alone)", ylim=(0, None))
    if axes.lines:
        axes.legend()
    return axes


def plot_leads(leads: Mapping[str, tuple[Array, Array]]) -> Any:
    """Return axes with what each policy is ahead of the first one, over time.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    axes = _axes()
    colours = colours_of(list(leads)[1:], LEARNER_COLOURS)
    add_leads(axes, leads, colours)
    axes.set(xlabel="slot", ylabel=f"right answers net of costs, ahead of {next(iter(leads))}")
    axes.legend()
    return axes


def plot_growth(scores: Sequence[Score]) -> Any:
    """Return axes with the mean regret of each policy in each environment, both logarithmic.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    axes = _axes()
    for score in scores:
        label = f"{shorten(score.policy, 24)}, {shorten(score.environment, 24)}"
        axes.plot(score.slots, score.regret.mean, label=label)
    axes.set(xlabel="slot", ylabel="regret of a learner", xscale="log", yscale="log")
    axes.legend()
    return axes
