"""What every preset must come to: a rule that the kernel can run, whatever a person left open."""

import math

import pytest

from covey.bandit.policies import EXPERIMENTAL, PRESETS, Policy, resolve, settings_from
from covey.bandit.settings import READINGS, Settings, Threshold
from covey.errors import ConfigError
from covey.kernel import Clock, table_of

PHASED = ["cos", "dcza", "cos-ce"]  # three phases and their thresholds
INDEXED = ["auto", "share-ucb", "two-sizes", "discounted", "multi-resolution", "balance"]
OWN = ["support.own_policies:CellUCB"]  # one line for a policy of one's own
every_preset = pytest.mark.parametrize("preset", [*PRESETS, *OWN])
every_phased = pytest.mark.parametrize("preset", PHASED)
every_indexed = pytest.mark.parametrize("preset", INDEXED)
every_mode = pytest.mark.parametrize("mode", READINGS)
every_choice = pytest.mark.parametrize("parameters", ["z1", "z2", "theorem"])
every_dimension = pytest.mark.parametrize("dimension", [0, 1, 3])


def policy_of(preset: str, *, dimension: int = 1, **settings: object) -> Policy:
    table = {"preset": preset, "horizon": 20_000, **settings}
    return resolve(settings_from(table), dimension=dimension, most_functions=3)


def test_every_preset_is_listed_here() -> None:
    assert (sorted(PRESETS), list(READINGS)) == (sorted(PHASED + INDEXED), ["spec", "paper"])


def test_experimental_presets_come_last() -> None:
    assert tuple(PRESETS)[4:] == EXPERIMENTAL


@every_dimension
@every_choice
@every_phased
def test_thresholds_grow_more_slowly_than_time(
    preset: str, parameters: str, dimension: int
) -> None:
    policy = policy_of(preset, parameters=parameters, dimension=dimension)

    assert all(0 < power < 1 for power in policy.powers())


@every_dimension
@every_choice
@every_phased
def test_training_lasts_longer_than_exploration(
    preset: str, parameters: str, dimension: int
) -> None:
    policy = policy_of(preset, parameters=parameters, dimension=dimension)
    explore, train, explore_peers = policy.scales()

    assert train > explore == explore_peers == 1.0


@every_phased
def test_only_the_theorem_looks_at_the_most_functions(preset: str) -> None:
    scales = [policy_of(preset, parameters=p).train.scale for p in ("z1", "z2", "theorem")]

    assert scales == [2.0, 2.0, 3.0]


@every_phased
def test_thresholds_given_directly_are_kept(preset: str) -> None:
    given = {"scale": 0.5, "power": 0.25}
    policy = policy_of(preset, **{"explore": given, "train": given, "explore-peers": given})

    assert [policy.explore, policy.train, policy.explore_peers] == [Threshold(0.5, 0.25)] * 3


@every_mode
@every_preset
def test_the_reading_is_that_of_the_mode(preset: str, mode: str) -> None:
    assert policy_of(preset, mode=mode).settings.reading == READINGS[mode]


@every_dimension
@every_mode
@every_preset
def test_the_kernel_decides_by_its_rule(preset: str, mode: str, dimension: int) -> None:
    policy = policy_of(preset, mode=mode, dimension=dimension)
    rule = policy.rule(functions=2, costs=(0.0, 0.0), position=0)
    table = table_of(Clock(policy.scales(), policy.powers()), rule)
    decision = table.decide((0.5,) * dimension, 1)

    # The first arm: nothing is known of any. By index there is no telling trying from using it.
    assert decision >> 2 & 0x3FFFF == 0
    assert decision & 3 == (1 if preset in PHASED else 2)


@every_preset
def test_a_space_without_dimensions_is_one_cell(preset: str) -> None:
    levels = policy_of(preset, dimension=0).partition.levels(0)

    assert [level.split_at for level in levels] == [math.inf]


@every_mode
@every_phased
def test_a_title_names_the_mode_and_the_three_thresholds(preset: str, mode: str) -> None:
    title = policy_of(preset, mode=mode).title

    assert (f"({mode})" in title, title.count("ln t"), "\n" in title) == (True, 3, False)


@every_preset
def test_settings_are_kept_as_they_were_given(preset: str) -> None:
    settings = settings_from({"preset": preset, "seed": 5})

    kept = resolve(settings, dimension=1, most_functions=1).settings
    is_pending = True if preset == "auto" else None
    assert kept == Settings(preset=preset, seed=5, forget=kept.forget, pending=is_pending)


@every_indexed
def test_an_index_needs_neither_horizon_nor_thresholds(preset: str) -> None:
    policy = resolve(settings_from({"preset": preset}), dimension=2, most_functions=1)

    assert policy.has_index
    assert policy.scales() == [0.0, 0.0, 0.0]
    assert "\n" not in policy.title


@every_indexed
def test_a_window_of_labels_does_not_go_with_an_index(preset: str) -> None:
    settings = settings_from({"preset": preset, "forget": {"window": 5}})

    with pytest.raises(ConfigError, match="forget"):
        resolve(settings, dimension=1, most_functions=1)
