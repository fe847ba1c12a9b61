"""Runs of two policies in two environments, with known regret, to compare."""

from covey.report import simulation, text
from covey.simulation import scenario
from covey.simulation.comparison import Comparison
from covey.simulation.run import Run

SLOTS = [10, 100, 1000, 10_000]
CHOSEN = scenario.load(
    {
        "scenario": {"horizon-slots": SLOTS[-1], "seeds": 2, "checkpoints": SLOTS},
        "policy": [{"name": "grid", "preset": "cos"}, {"name": "zoom", "preset": "dcza"}],
        "environment": [{"name": "one", "case": "C1"}, {"name": "all", "case": "C2"}],
    }
)


def run(policy: str, environment: str, seed: int, *, scale: float = 1.0, power: float = 0.5) -> Run:
    learners = len(CHOSEN.environments[environment].receiving)
    law = [learners * scale * slot**power for slot in SLOTS]
    return Run(
        policy=policy,
        environment=environment,
        seed=seed,
        slots=SLOTS,
        regret={
            "exploration": [0.75 * value for value in law],
            "wrong choice": [0.25 * value for value in law],
        },
        learners=learners,
        errors=0.1 + 0.02 * seed,
        cost=0.3 * seed,
        phases={"train": 0.0, "explore": 0.2 * seed, "exploit": 1 - 0.2 * seed},
        messages={"requests": 100.0 * seed} if seed else {},
        seconds=1.0,
    )


def runs() -> list[Run]:
    """Of the grid scale 1 and 3, of the zoom twice as much in one environment and half in all."""
    found = []
    for seed, scale in ((1, 3.0), (0, 1.0)):
        for environment, factor in (("one", 2.0), ("all", 0.5)):
            found.append(run("grid", environment, seed, scale=scale))
            found.append(run("zoom", environment, seed, scale=scale * factor, power=0.75))
    return found


def printed(comparison: Comparison) -> str:
    """Return what `covey simulate` prints."""
    return text.printed(simulation.head(comparison), simulation.parts(comparison))
