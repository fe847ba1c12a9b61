"""Policies and baselines in many kinds of worlds -> their runs; finished ones are kept.

A run is kept under a name of what its player decides and a fingerprint of its world. So another
`auto` leaves the runs of all other policies, and another world those of all other worlds.
"""

import hashlib
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import baselines
import linear
import msgspec
import playing
import streams

from covey import files
from covey.bandit.policies import Auto, PolicyRecord, policy_from
from covey.jobs.running import finished
from covey.simulation import run as simulation_run
from covey.simulation import scenario as simulation_scenario
from covey.simulation.comparison import total
from covey.simulation.environment import Environment
from covey.simulation.run import Run, network
from covey.simulation.world import World

Runs = dict[tuple[str, str], list[Run]]  # policy, environment -> seed by seed
DEFAULT = "auto"
FORMER = "former default"  # the default that it replaced, from REFERENCE
REFERENCE = playing.HERE / "reference.json"
# Part -> the policies of the former version that are remembered, and their names here.
REMEMBERED = {
    "worlds": {DEFAULT: FORMER},
    "worlds-short": {DEFAULT: FORMER},
    "worlds-long": {DEFAULT: FORMER},
    "growth-presets": {DEFAULT: FORMER},
    "streams": {DEFAULT: FORMER, f"{DEFAULT} alarm=0": f"{FORMER} alarm=0"},
}
PLAIN = (*baselines.BASELINES, *linear.POLICIES)
# Part -> the baselines in it: all, or those that are fast enough for so many slots.
BASELINES = {
    "worlds": tuple(baselines.BASELINES),
    "worlds-short": PLAIN,
    "worlds-long": ("LinUCB", "Thompson cells", "Thompson"),
}
STREAM_SLOTS, STREAM_SEEDS = 2_000_000, 3
_MOST_DRAWN = 100_000  # slots of a world that its fingerprint is made of


class Player(NamedTuple):
    """Something that plays: a policy of covey, or a baseline."""

    play: Callable[..., list[Run]]  # environment, seeds=..., horizon=..., checkpoints=...
    code: str  # names how it decides
    together: int = 1  # seeds that one call plays


def player(text: str) -> Player:
    """Return what plays a policy given as text: `auto`, `auto alarm=0`, or a baseline's name."""
    if text in baselines.BASELINES:
        return Player(partial(baselines.play, text), baselines.code(), together=20)
    preset, *keys = text.split()
    table = tomllib.loads("\n".join(keys))
    settings = policy_from({"preset": preset, **table}, where=f"policy {text!r}")
    # To probe what a class in Python does takes minutes.
    code = linear.code() if preset in linear.POLICIES else playing.behaviour(settings)
    return Player(partial(_play, settings), code)


def _play(
    settings: PolicyRecord, environment: Environment, *, seeds: Sequence[int], **how: Any
) -> list[Run]:
    return [simulation_run.play(environment, settings, seed=seed, **how) for seed in seeds]


class Part(NamedTuple):
    """Environments of one file, and who plays in them."""

    name: str
    policies: tuple[str, ...]
    environments: dict[str, Environment]
    seeds: tuple[int, ...]
    checkpoints: tuple[int, ...]  # slots; the last is the horizon

    @property
    def horizon(self) -> int:
        """The slots of a run."""
        return self.checkpoints[-1]


def part_of(name: str, *, slots: int | None = None, seeds: int | None = None) -> Part:
    """Return the part of a file, all its policies and baselines in all its environments."""
    tables = tomllib.loads((playing.HERE / f"{name}.toml").read_text())
    if slots is not None and "checkpoints" in tables["scenario"]:
        tables["scenario"]["checkpoints"] = [max(1, slots // 100), max(1, slots // 10), slots]
    chosen = simulation_scenario.load(tables, horizon_slots=slots, seeds=seeds)
    marks = chosen.checkpoints if name == "growth-presets" else (chosen.horizon,)
    policies = (*chosen.policies, *BASELINES.get(name, ()))
    return Part(name, policies, chosen.environments, chosen.seeds, marks)


def recorded_part(
    data: Path | None, folder: Path, *, slots: int | None, seeds: int | None, count: int
) -> Part:
    """Return the part of the first `count` recorded streams; empty without their data."""
    worlds = streams.environments(data, folder, streams.RECORDED[:count])
    first, *others = part_of("growth-presets").policies
    policies = (first, f"{DEFAULT} alarm=0", *others)
    marks = (slots or STREAM_SLOTS,)
    return Part("streams", policies, worlds, tuple(range(seeds or STREAM_SEEDS)), marks)


def play(part: Part, kept: Path, *, workers: int) -> Runs:
    """Return the runs of a part; what is not in the folder `kept` is played."""
    players = {name: player(name) for name in part.policies}
    prints = {name: fingerprint(one, part.horizon) for name, one in part.environments.items()}
    paths = {
        (name, world): _path(kept / part.name, name, players[name], prints[world], part)
        for world in part.environments
        for name in players
    }
    found = {pair: _finished(path) for pair, path in paths.items()}
    left = [
        (pair, some)
        for pair, runs in found.items()
        for some in _groups([s for s in part.seeds if s not in runs], players[pair[0]].together)
    ]
    if left:
        print(f"{part.name}: {len(left)} groups of runs to play", file=sys.stderr)
    how = {"horizon": part.horizon, "checkpoints": part.checkpoints}

    def call_of(group: tuple[tuple[str, str], Sequence[int]]) -> Callable[[], list[Run]]:
        (name, world), seeds = group
        return partial(players[name].play, part.environments[world], seeds=seeds, **how)

    for (pair, _), runs in finished(left, call_of, workers=workers):
        found[pair] |= {run.seed: run for run in runs}
        paths[pair].parent.mkdir(parents=True, exist_ok=True)
        files.replace(paths[pair], msgspec.json.encode(found[pair]))
    return {pair: [runs[seed] for seed in part.seeds] for pair, runs in found.items()}


def fingerprint(environment: Environment, horizon: int) -> str:
    """Return a name for all that a policy meets in an environment: of its drawn world, seed 0.

    So runs stay valid while the code that draws worlds changes, but not what it draws.
    """
    world = World(environment, seed=0, horizon=horizon)
    found = hashlib.sha256()
    for slots in simulation_run.lengths(environment, min(horizon, _MOST_DRAWN)):
        chunk = world.draw(slots)
        for part in (chunk.points, chunk.accuracy, chunk.right, chunk.delays, chunk.shown):
            found.update(b"" if part is None else part.tobytes())
    sites = network(environment, Auto()).sites
    found.update(repr([(site.costs, site.peers, site.receives) for site in sites]).encode())
    found.update(b"free" if environment.free else b"")
    return found.hexdigest()[:16]


def _path(folder: Path, name: str, chosen: Player, world: str, part: Part) -> Path:
    marks = hashlib.sha256(repr(part.checkpoints).encode()).hexdigest()[:6]
    return folder / name / f"{chosen.code}-{world}-{marks}.json"


def _finished(path: Path) -> dict[int, Run]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[int, Run])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _groups(seeds: Sequence[int], most: int) -> list[Sequence[int]]:
    return [seeds[first : first + most] for first in range(0, len(seeds), most)]


class Memory(msgspec.Struct, frozen=True, rename="kebab"):
    """What is remembered of a policy in a world: by seed, from 0 on."""

    world: str  # fingerprint
    slots: list[int]  # checkpoints
    regret: list[list[float]]  # seed, checkpoint -> of one receiving learner
    errors: list[float]  # share of the decisions
    cost: list[float]  # per decision


Memories = dict[str, dict[str, dict[str, Memory]]]  # part, policy, environment


def remember(parts: Sequence[Part], kept: Path, *, workers: int) -> None:
    """Write the numbers of today's policies as those that later ones are compared with."""
    found: Memories = {}
    for part in parts:
        names = REMEMBERED[part.name]
        runs = play(part._replace(policies=tuple(names)), kept, workers=workers)
        found[part.name] = {
            later: {
                world: _memory(runs[name, world], fingerprint(environment, part.horizon))
                for world, environment in part.environments.items()
            }
            for name, later in names.items()
        }
    files.replace(REFERENCE, _written(found).encode())


def _written(found: Memories) -> str:
    """Return JSON with a line for each environment."""
    parts = []
    for part, by_policy in found.items():
        policies = []
        for policy, by_world in by_policy.items():
            lines = [
                f"{_quoted(world)}: {msgspec.json.encode(one).decode()}"
                for world, one in by_world.items()
            ]
            policies.append(f"{_quoted(policy)}: {{\n" + ",\n".join(lines) + "\n}")
        parts.append(f"{_quoted(part)}: {{\n" + ",\n".join(policies) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def _memory(runs: Sequence[Run], world: str) -> Memory:
    def short(values: Sequence[float]) -> list[float]:
        return [float(f"{value:.6g}") for value in values]

    return Memory(
        world,
        runs[0].slots,
        [short(total(run)) for run in runs],
        short([run.errors for run in runs]),
        short([run.cost for run in runs]),
    )


def recalled(part: Part) -> Runs:
    """Return what is remembered of the worlds of a part; nothing if they are other worlds now."""
    if not REFERENCE.exists():
        return {}
    memories = msgspec.json.decode(REFERENCE.read_bytes(), type=Memories).get(part.name, {})
    found: Runs = {}
    for world, environment in part.environments.items():
        now = fingerprint(environment, part.horizon)
        for name, by_world in memories.items():
            memory = by_world.get(world)
            is_same = memory is not None and memory.world == now
            if memory is None or not is_same or len(memory.regret) < len(part.seeds):
                return {}
            found[name, world] = [_run(memory, name, world, seed) for seed in part.seeds]
    return found


def _run(memory: Memory, policy: str, world: str, seed: int) -> Run:
    return Run(
        policy=policy,
        environment=world,
        seed=seed,
        slots=memory.slots,
        regret={"all": memory.regret[seed]},
        learners=1,
        errors=memory.errors[seed],
        cost=memory.cost[seed],
        phases={},
        messages={},
        seconds=0.0,
    )


def losses(runs: Mapping[tuple[str, str], Sequence[Run]]) -> dict[tuple[str, str], list[float]]:
    """Return the regret of one receiving learner per slot, seed by seed."""
    return {pair: [total(run)[-1] / run.slots[-1] for run in some] for pair, some in runs.items()}
