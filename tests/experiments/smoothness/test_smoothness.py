"""The alpha of accuracies can be estimated from labels in cells."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from support.modules import module_at
from support.required import ROOT

LABELS = 1_000  # per cell


@pytest.fixture(scope="module")
def smoothness() -> ModuleType:
    return module_at(ROOT / "experiments" / "smoothness" / "smoothness.py", "smoothness")


def walk(rng: np.random.Generator, side: int) -> np.ndarray:
    """Return accuracies that are rough like a random walk at every width: alpha is 1/2."""
    return np.cumsum(rng.normal(size=100 * side)).reshape(side, 100).mean(axis=1)


def wave(rng: np.random.Generator, side: int) -> np.ndarray:
    """Return smooth accuracies: alpha is 1."""
    x = np.arange(side) / side
    return np.sin(2 * np.pi * (x + rng.random())) + rng.normal() * x


def plane(rng: np.random.Generator, side: int) -> np.ndarray:
    """Return smooth accuracies over two coordinates."""
    x = np.arange(side) / side
    return rng.normal() * x[:, np.newaxis] + rng.normal() * x


@pytest.mark.parametrize("side", [64, 100])
@pytest.mark.parametrize(("surface", "alpha"), [(walk, 0.5), (wave, 1.0), (plane, 1.0)])
def test_alpha_of_a_known_surface_is_found(
    smoothness: ModuleType,
    surface: Callable[[np.random.Generator, int], np.ndarray],
    alpha: float,
    side: int,
) -> None:
    rng = np.random.default_rng(11)
    estimates = []
    for _ in range(10):
        heights = [surface(rng, side) for _ in range(4)]  # of four functions
        accuracy = np.stack(
            [0.05 + 0.9 * (height - height.min()) / np.ptp(height) for height in heights]
        )
        labels = np.full(accuracy.shape, LABELS)
        estimates.append(smoothness.estimate(labels, rng.binomial(LABELS, accuracy)))

    assert max(abs(estimate - alpha) for estimate in estimates) < 0.2
    assert abs(np.mean(estimates) - alpha) < 0.1


def test_noise_shows_no_alpha(smoothness: ModuleType) -> None:
    rng = np.random.default_rng(6)
    labels = np.full((4, 64), 100)

    assert smoothness.estimate(labels, rng.binomial(100, 0.7, labels.shape)) is None
