"""The learner and a network of one site, against River's bandits, one policy per bucket."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from time import process_time
from typing import Any, NamedTuple

import task
from figures import Figure, Row, Verdict, short
from timing import Timing, interleave

from covey import Network
from covey.bandit.learner import Learner
from covey.bandit.policies import CoS

NAME = "learner"
TITLE = "The learner, against River"
GOAL = 2.0
ROUNDS = {"full": 40, "quick": 6}
TASKS = 5
SITES = 4
OURS = "Learner: decide, settle"
ASKING = f"Network: {SITES} sites x 2 functions, one asks"
PEER = "River EpsilonGreedy"
POLICY = {"preset": "cos", "slices": task.SLICES}


class Run(NamedTuple):
    """One candidate's way through a task."""

    seconds: float
    reward: int


Player = Callable[[task.Task], Run]


def measure(effort: str) -> Figure:
    """Time every candidate on one task; average what it earns over several."""
    tasks = [task.draw(seed) for seed in range(TASKS)]
    wide = [task.draw(seed, arms=2 * SITES) for seed in range(TASKS)]
    epsilon = round(sum(map(_explored, tasks)) / TASKS, 3)
    played = {name: (player, tasks) for name, player in _players(epsilon).items()}
    played[ASKING] = (_play_sites, wide)
    earned = {
        name: sum(player(one).reward for one in given) / TASKS / task.SLOTS
        for name, (player, given) in played.items()
    }
    timings = interleave(
        ROUNDS[effort],
        {name: partial(_seconds, player, given[0]) for name, (player, given) in played.items()},
    )
    rows = [_row(name, timings, earned[name], given) for name, (_, given) in played.items()]
    if PEER not in played:
        rows.append(Row(PEER, None, note="skipped: River is not installed"))
    return Figure(NAME, TITLE, _method(epsilon), rows, [_verdict(timings, earned, tasks)])


def _players(epsilon: float) -> dict[str, Player]:
    players: dict[str, Player] = {OURS: _play_learner, "Network: predict, learn": _play_site}
    try:
        from river import bandit, proba
    except ModuleNotFoundError:
        return players
    makers: dict[str, Callable[[int], Any]] = {
        PEER: lambda seed: bandit.EpsilonGreedy(epsilon=epsilon, seed=seed),
        "River UCB": lambda seed: bandit.UCB(delta=1, seed=seed),
        "River ThompsonSampling": lambda seed: bandit.ThompsonSampling(
            reward_obj=proba.Beta(), seed=seed
        ),
    }
    return players | {name: partial(_play_river, make) for name, make in makers.items()}


def _learner() -> Learner:
    return Learner(
        "site",
        functions=[f"f{k}" for k in range(task.ARMS)],
        peers=[],
        costs=[0.0] * task.ARMS,
        policy=CoS(**POLICY).resolve(dimension=1, most_functions=task.ARMS),
    )


def _explored(played: task.Task) -> float:
    learner = _learner()
    explored = 0
    rows = zip(played.contexts, played.outcomes, strict=True)
    for slot, (context, outcomes) in enumerate(rows, 1):
        code = learner.decide(context, slot)
        choice = learner.choice(code)
        explored += choice.phase != "exploit"
        learner.settle(code, outcomes[choice.function], context, slot)
    return explored / len(played.contexts)


def _play_learner(played: task.Task) -> Run:
    learner = _learner()
    reward = 0
    begin = process_time()
    rows = zip(played.contexts, played.outcomes, strict=True)
    for slot, (context, outcomes) in enumerate(rows, 1):
        code = learner.decide(context, slot)
        outcome = outcomes[learner.choice(code).function]
        learner.settle(code, outcome, context, slot)
        reward += outcome
    return Run(process_time() - begin, reward)


def _play_river(make: Callable[[int], Any], played: task.Task) -> Run:
    policies = [make(seed) for seed in range(task.SLICES)]
    arms = list(range(task.ARMS))
    reward = 0
    begin = process_time()
    for bucket, outcomes in zip(played.buckets, played.outcomes, strict=True):
        policy = policies[bucket]
        arm = policy.pull(arms)
        outcome = outcomes[arm]
        policy.update(arm, outcome)
        reward += outcome
    return Run(process_time() - begin, reward)


def _play_site(played: task.Task) -> Run:
    functions = [f"f{k}" for k in range(task.ARMS)]
    return _play_network(played, [{"name": "site", "functions": functions}])


def _play_sites(played: task.Task) -> Run:
    sites = [
        {"name": f"site{k}", "functions": [f"f{2 * k}", f"f{2 * k + 1}"]} for k in range(SITES)
    ]
    return _play_network(played, sites)


def _play_network(played: task.Task, sites: list[dict[str, Any]]) -> Run:
    names = [name for site in sites for name in site["functions"]]
    functions = {name: itemgetter(k) for k, name in enumerate(names)}
    network = Network({"policy": POLICY, "learner": sites}, functions=functions, dimension=1)
    member = network[sites[0]["name"]]
    reward = 0
    begin = process_time()
    for context, outcomes in zip(played.contexts, played.outcomes, strict=True):
        answer = member.predict(outcomes, context)
        member.learn(answer.ticket, 1)
        reward += answer.label
    return Run(process_time() - begin, reward)


def _seconds(player: Player, played: task.Task) -> float:
    return player(played).seconds


def _row(name: str, timings: dict[str, Timing], earned: float, tasks: list[task.Task]) -> Row:
    best = sum(one.best_mean for one in tasks) / TASKS
    note = f"mean reward {earned:.3f}; best arms {best:.3f}"
    timing = timings[name]
    is_comparable = PEER in timings and name != ASKING
    ratio = timings[PEER].best / timing.best if is_comparable else None
    return Row(name, 1e6 * timing.best / task.SLOTS, "us", timing.over_best, ratio, note)


def _method(epsilon: float) -> str:
    return (
        f"CPU time per decision and update over {task.SLOTS:,} slots from nothing; {task.ARMS} "
        f"arms, {task.SLICES} buckets of one context, an arm's accuracy in a bucket drawn from "
        "[0.3, 0.9], Bernoulli rewards drawn beforehand. covey explores by 1 x t^0.125 ln t per "
        f"cell and arm, which here is {100 * epsilon:.1f} % of the slots, most of it early; "
        f"River's EpsilonGreedy has epsilon = {epsilon}, the same share spread evenly; UCB has "
        "delta = 1, ThompsonSampling a Beta(1, 1) prior. River is handed the bucket, covey finds "
        "the cell. "
        f"Mean rewards are over {TASKS} tasks; `best arms` is the reward with the best arm of "
        "every bucket. These are different algorithms: read speed and reward together. "
        f"The network of {SITES} sites chooses among 8 functions, 6 of them through peers: a task "
        "of its own. The network keeps tickets for 10,000 slots, the default. Ratios are rates "
        "relative to EpsilonGreedy: more is faster."
    )


def _verdict(
    timings: dict[str, Timing], earned: dict[str, float], tasks: list[task.Task]
) -> Verdict:
    if PEER not in timings:
        return Verdict(None, "River is not installed: pip install --group bench.")
    ratio = timings[PEER].best / timings[OURS].best
    best = sum(one.best_mean for one in tasks) / TASKS
    chance = sum(one.random_mean for one in tasks) / TASKS
    return Verdict(
        ratio >= GOAL,
        f"the learner makes {short(ratio)}x the decisions of River's EpsilonGreedy per second; the "
        f"goal is at least {GOAL:g}x. Its mean reward is {earned[OURS]:.3f} against "
        f"{earned[PEER]:.3f}, where the best arms give {best:.3f} and random ones {chance:.3f}.",
    )
