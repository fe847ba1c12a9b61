"""Unknown horizon and unknown alpha: epochs, the fit, and replays that restart."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import config
from covey.bandit.epochs import EpochKey
from covey.bandit.partitions import Uniform, slices_for
from covey.bandit.policies import DCZA, CoS, resolve
from covey.bandit.smoothness import Epoch, Seen, adapt, epochs, estimate, spreads
from covey.errors import ConfigError
from covey.replay import replay as replaying

FINE = 4096


def brownian(rng: np.random.Generator) -> np.ndarray:
    """Return accuracies that are rough like a random walk: alpha is 1/2 at every width."""
    return np.cumsum(rng.normal(size=FINE))


def wave(rng: np.random.Generator) -> np.ndarray:
    """Return accuracies that are as smooth as can be told: alpha is 1."""
    x = np.arange(FINE) / FINE
    return np.sin(2 * np.pi * (x + rng.random())) + rng.normal() * x


def arm(curve: np.ndarray, rng: np.random.Generator, *, side: int, labels: int) -> list[Seen]:
    """Return what `labels` labels in each of `side` cells show of a curve."""
    scaled = 0.05 + 0.9 * (curve - curve.min()) / (curve.max() - curve.min())
    means = [part.mean() for part in np.array_split(scaled, side)]
    right = rng.binomial(labels, means)
    return [Seen(side, (k,), labels, int(count)) for k, count in enumerate(right)]


def exact(side: int, accuracy: Any, labels: int = 10**6) -> list[Seen]:
    """Return cells whose accuracy is that of their middle, to the sixth digit."""
    middles = [(k + 0.5) / side for k in range(side)]
    return [Seen(side, (k,), labels, round(labels * accuracy(x))) for k, x in enumerate(middles)]


@given(st.integers(1, 50), st.integers(1, 5_000))
def test_epochs_contain_every_slot_exactly_once(first: int, until: int) -> None:
    slots = [
        slot
        for epoch in epochs(first, until)
        for slot in range(epoch.first_slot, epoch.first_slot + epoch.slots)
    ]

    assert slots[:until] == list(range(1, until + 1))
    assert slots == list(range(1, len(slots) + 1))


def test_epochs_double_and_the_last_is_not_truncated() -> None:
    assert list(epochs(1000, 3001)) == [Epoch(1, 1000), Epoch(1001, 2000), Epoch(3001, 4000)]


def test_epochs_without_an_end_are_infinite() -> None:
    endless = epochs(1)

    assert [next(endless).slots for _ in range(20)][-1] == 2**19


def test_an_epoch_gets_the_slices_and_the_power_of_its_length_and_alpha() -> None:
    settings = CoS(parameters="theorem", horizon="doubling", alpha="estimated")
    policy = resolve(adapt(settings, Epoch(1, 4096), alpha=0.5), dimension=1, most_functions=2)

    assert policy.partition == Uniform(slices_for(4096, alpha=0.5, dimension=1))
    assert policy.powers() == pytest.approx([0.4, 0.4, 0.4])


@pytest.mark.parametrize("side", [64, 100])
@pytest.mark.parametrize(("curve", "alpha"), [(brownian, 0.5), (wave, 1.0)])
def test_alpha_is_recovered(curve: Any, alpha: float, side: int) -> None:
    rng = np.random.default_rng(11)
    found = [
        estimate([arm(curve(rng), rng, side=side, labels=1_000) for _ in range(4)])
        for _ in range(10)
    ]
    alphas = [one.alpha for one in found if one is not None]

    # Each within 0.2 of the truth, their mean within 0.1; the error that is stated is about 0.1.
    assert len(alphas) == 10
    assert max(abs(one - alpha) for one in alphas) < 0.2
    assert abs(np.mean(alphas) - alpha) < 0.1


@pytest.mark.parametrize(("alpha", "most"), [(0.3, 0.5), (0.5, 0.9), (1.0, 1.0)])
@pytest.mark.parametrize("side", [32, 64])
def test_a_single_corner_is_on_the_safe_side(alpha: float, most: float, side: int) -> None:
    """The mean over all pairs takes it for smooth; the theorems hold at the corner, too."""
    x = (np.arange(200 * side) + 0.5) / (200 * side)
    safe, mean = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        curve = 0.95 - 0.6 * np.abs(x - rng.uniform(0.2, 0.8)) ** alpha
        right = rng.binomial(2_000, curve.reshape(side, 200).mean(axis=1))
        found = estimate([[Seen(side, (k,), 2_000, int(n)) for k, n in enumerate(right)]])
        if found is not None:
            safe.append(found.safe_alpha)
            mean.append(found.alpha)

    assert len(safe) > 6
    assert max(safe) <= most
    assert np.mean(safe) >= 0.5 * alpha
    if alpha < 1:
        assert np.mean(safe) < np.mean(mean) - 0.05  # so the mean alone would not do


def test_alpha_is_recovered_from_the_levels_of_cells_that_zoom() -> None:
    rng = np.random.default_rng(5)
    curves = [brownian(rng) for _ in range(4)]
    arms = [
        [cell for level in range(7) for cell in arm(curve, rng, side=2**level, labels=1_000)]
        for curve in curves
    ]
    found = estimate(arms)

    assert found is not None
    assert abs(found.alpha - 0.5) < 0.2


def test_alpha_is_recovered_in_two_dimensions() -> None:
    plane = [
        Seen(16, (a, b), 10**6, round(10**6 * (0.1 + 0.02 * a + 0.03 * b)))
        for a in range(16)
        for b in range(16)
    ]
    found = estimate([plane])

    assert found is not None
    assert found.alpha == pytest.approx(1.0, abs=0.01)


def test_a_slope_is_the_lipschitz_constant() -> None:
    found = estimate([exact(128, lambda x: 0.2 + 0.6 * x)])

    assert found is not None
    assert (found.alpha, found.lipschitz) == pytest.approx((1.0, 0.6), abs=0.01)


def test_the_least_smooth_function_counts() -> None:
    rng = np.random.default_rng(3)
    smooth = exact(256, lambda x: 0.2 + 0.6 * x)
    rough = arm(brownian(rng), rng, side=256, labels=10**6)
    found, alone = estimate([smooth, rough, smooth]), estimate([rough])

    assert found == alone
    assert found is not None
    assert found.alpha < 0.7


def test_functions_with_noisy_estimates_are_pooled() -> None:
    rng = np.random.default_rng(2)
    arms = [arm(wave(rng), rng, side=12, labels=10**5) for _ in range(4)]

    assert [estimate([one]) for one in arms] == [None] * 4
    assert estimate(arms) is not None


def test_alpha_is_clipped_to_its_range() -> None:
    rng = np.random.default_rng(8)
    rough = arm(brownian(rng), rng, side=256, labels=10**6)
    found = estimate([rough], lowest=0.75)

    assert found is not None
    assert found.alpha == 0.75


def test_the_spread_is_corrected_for_noise() -> None:
    rng = np.random.default_rng(4)
    few = arm(wave(rng), rng, side=64, labels=50)
    finest = spreads(few)[0]
    raw = np.mean(np.diff([cell.right / cell.labels for cell in few]) ** 2)

    assert finest.square == pytest.approx(raw - finest.chance)
    assert finest.chance > finest.square


@pytest.mark.parametrize(
    "arms",
    [
        [],
        [[]],
        [exact(64, lambda x: 0.7)],  # flat: as smooth as can be, but no exponent to be seen
        [exact(64, lambda x: 0.2 + 0.6 * x, labels=19)],
        [exact(8, lambda x: 0.2 + 0.6 * x)],  # two widths with more than one pair of cells
        [[Seen(64, (k,), 1000, 500 + k) for k in range(0, 64, 2)]],  # no cell has a neighbour
        [[Seen(1, (), 10**6, 7 * 10**5)]],  # no context
    ],
    ids=["no functions", "no cells", "flat", "few labels", "few cells", "gaps", "no context"],
)
def test_too_little_data_gives_no_estimate(arms: list[list[Seen]]) -> None:
    assert estimate(arms) is None


def test_pure_noise_gives_no_estimate() -> None:
    rng = np.random.default_rng(6)
    arms = [
        [Seen(64, (k,), 100, int(n)) for k, n in enumerate(rng.binomial(100, 0.7, 64))]
        for _ in range(4)
    ]

    assert estimate(arms) is None


SITES = [
    {"name": "north", "functions": ["nb", "tree"], "peers": {"south": 0.1}},
    {"name": "south", "functions": ["svm"]},
]


def stream(slots: int) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, slots)
    x = rng.random((slots, 1))
    accuracy = np.stack([0.55 + 0 * x[:, 0], 0.5 + 0.4 * x[:, 0], 0.95 - 0.4 * x[:, 0]])
    predictions = np.where(rng.random((3, slots)) < accuracy, labels, 1 - labels)
    return {
        "predictions": predictions,
        "labels": labels,
        "contexts": x,
        "at": rng.choice(["north", "south"], slots),
        "revealed": (rng.random(slots) < 0.9).astype(int),
        "delay": rng.choice([0, 0, 3], slots),
    }


def part(columns: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    cut = {name: column[first:end] for name, column in columns.items() if name != "predictions"}
    return {**cut, "predictions": columns["predictions"][:, first:end]}


def told(trace: Any) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = trace.columns()
    del columns["slot"]
    return columns


@pytest.mark.parametrize("preset", ["cos", "dcza"])
def test_a_doubling_replay_is_its_epochs_replayed_one_by_one(preset: str) -> None:
    columns = stream(1_000)
    policy = {"preset": preset, "parameters": "theorem"}
    doubling = {**policy, "horizon": "doubling", "first-epoch": 100}
    whole = covey.replay({"policy": doubling, "learner": SITES}, **columns)
    pieces = [
        covey.replay(
            {"policy": {**policy, "horizon": epoch.slots}, "learner": SITES},
            **part(columns, epoch.first_slot - 1, epoch.first_slot - 1 + epoch.slots),
        )
        for epoch in epochs(100, until=1_000)
    ]

    assert len(pieces) == 4
    assert told(whole) == {
        name: [value for piece in pieces for value in told(piece)[name]] for name in told(whole)
    }
    assert whole.slot.tolist() == list(range(1, 1_001))


def test_a_doubling_replay_of_a_file_is_that_of_the_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = stream(1_000)
    monkeypatch.setattr("covey.data.tables.ROWS_PER_CHUNK", 64)
    names = ["x", "label", "nb", "tree", "svm"]
    rows = zip(
        columns["contexts"][:, 0].tolist(),
        columns["labels"].tolist(),
        *columns["predictions"].tolist(),
        strict=True,
    )
    log = tmp_path / "log.csv"
    log.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]))
    table = {
        "data": {"context": ["x"]},
        "policy": {"horizon": "doubling", "first-epoch": 100},
        "learner": SITES,
    }
    outcome = replaying.replay_file(log, config.load(table))
    del table["data"]
    arrays = {name: columns[name] for name in ("predictions", "labels", "contexts")}
    trace = covey.replay(table, **arrays)

    assert outcome.slots == 1_000
    assert [one.errors for one in outcome.learners] == [
        int(np.sum(trace.correct[trace.learner == place] == 0)) for place in (0, 1)
    ]
    assert outcome.policy.endswith("epoch of 800 slots from slot 701")


def test_exploration_restarts_in_every_epoch() -> None:
    table = {
        "policy": {"horizon": "doubling", "first-epoch": 8, "slices": 1},
        "learner": [{"name": "north", "functions": ["nb", "tree"]}],
    }
    columns = {name: value[:24] for name, value in stream(24).items() if name[0] in "lc"}
    trace = covey.replay(table, predictions=np.zeros((2, 24), int), **columns)
    starts = [trace.phase[slot - 1] for slot in (1, 9)]

    # An arm without labels is explored at slot 1 of the clock; slot 9 is such a slot again.
    assert starts == [1, 1]
    assert trace.names["arm"][trace.arm[8]] == "nb"


@pytest.mark.parametrize(("curve", "least", "most"), [(brownian, 40, 200), (wave, 14, 25)])
def test_the_next_epoch_uses_the_estimated_alpha(curve: Any, least: int, most: int) -> None:
    first = 12**4
    rng = np.random.default_rng(12)
    x = rng.random(first + 1)
    labels = rng.integers(0, 2, first + 1)
    curves = [curve(rng) for _ in range(6)]
    accuracy = np.stack([(one - one.min()) / np.ptp(one) for one in curves])
    is_right = rng.random((6, first + 1)) < accuracy[:, (x * FINE).astype(int)]
    policy = {"horizon": "doubling", "first-epoch": first, "alpha": "estimated"}
    trace = covey.replay(
        {
            "policy": {**policy, "parameters": "z2"},
            "learner": [{"name": "north", "functions": ["a", "b", "c", "d", "e", "f"]}],
        },
        predictions=np.where(is_right, labels, 1 - labels),
        labels=labels,
        contexts=x[:, None],
    )
    names = trace.columns()["cell"]  # such as g12:3
    slices = [int(names[slot].split(":")[0][1:]) for slot in (0, first)]

    # 12 and 15 are what alpha = 1 prescribes for the two epochs, 71 what 1/2 does for the second.
    assert slices[0] == 12
    assert least <= slices[1] <= most


def test_the_title_contains_the_estimated_alpha(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("label,nb\n" + "1,1\n" * 30)
    policy = {"horizon": "doubling", "first-epoch": 8, "alpha": "estimated"}
    learners = [{"name": "north", "functions": ["nb"]}]
    outcome = replaying.replay_file(log, config.load({"policy": policy, "learner": learners}))

    assert outcome.policy.endswith("; epoch of 32 slots from slot 25, alpha 1")


def test_an_estimated_alpha_needs_epochs() -> None:
    with pytest.raises(ConfigError) as caught:
        CoS(alpha="estimated", horizon=1_000)

    assert str(caught.value) == (
        'alpha = "estimated" needs horizon = "doubling"; it is estimated per epoch'
    )


@pytest.mark.parametrize("preset", [CoS, DCZA])
def test_a_doubling_horizon_has_the_policy_of_each_epoch(preset: Any) -> None:
    settings = preset(parameters="theorem", horizon="doubling", first_epoch=100)
    policy = resolve(settings, dimension=1, most_functions=2)

    for number in range(3):
        epoch = Epoch(100 * (2**number - 1) + 1, 100 * 2**number)
        one = resolve(adapt(settings, epoch, alpha=1.0), dimension=1, most_functions=2)
        assert policy.partition.policy_of(EpochKey(number)) == one
    assert policy.title.endswith("; epochs of 100 slots, doubled")


def test_learners_of_a_replay_have_their_own_alphas_and_cells() -> None:
    rng = np.random.default_rng(1)
    first = 12**4
    x = rng.random(first + 1)
    labels = rng.integers(0, 2, first + 1)
    curves = [curve(rng) for curve in (brownian, wave) for _ in range(6)]
    accuracy = np.stack([(one - one.min()) / np.ptp(one) for one in curves])
    is_right = rng.random((12, first + 1)) < accuracy[:, (x * FINE).astype(int)]
    policy = {"horizon": "doubling", "first-epoch": first, "alpha": "estimated"}
    trace = covey.replay(
        {
            "policy": {**policy, "parameters": "z2"},
            "learner": [
                {"name": "rough", "functions": list("abcdef"), "peers": {}},
                {"name": "smooth", "functions": list("ghijkl"), "peers": {}},
            ],
        },
        predictions=np.where(is_right, labels, 1 - labels),
        labels=labels,
        contexts=x[:, None],
    ).columns()
    last = dict(zip(trace["learner"][-2:], trace["cell"][-2:], strict=True))

    slices = {name: int(cell.split(":")[0][1:]) for name, cell in last.items()}
    rounded = {slices_for(2 * first, alpha=k / 20, dimension=1) for k in range(5, 21)}
    assert set(slices.values()) <= rounded  # alphas are multiples of 0.05
    assert slices["rough"] > 30
    assert slices["smooth"] <= 20


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"horizon": "dubbling"},
            "[policy] horizon: invalid enum value 'dubbling'; did you mean 'doubling'?",
        ),
        (
            {"alpha": "estimate"},
            "[policy] alpha: invalid enum value 'estimate'; did you mean 'estimated'?",
        ),
        (
            {"horizon": "doubling", "first-epoch": 0},
            "[policy] first-epoch is 0; it must lie from 1 to 9.0072e+15",
        ),
        ({"alpha": math.nan}, "[policy] alpha is nan; it must lie from 0.001 to 1"),
    ],
)
def test_a_wrong_word_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load({"policy": settings, "learner": SITES})

    assert str(caught.value) == sentence
