"""What every source of instances does: embedded worlds, a class of one's own."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.bandit.policies import CoS
from covey.errors import ConfigError, CoveyError, DataError
from covey.report import simulation as report
from covey.simulation import comparison, runner, scenario
from covey.simulation.environment import Environment, environment_from
from covey.simulation.run import Run, play
from covey.simulation.world import World
from support.compared import printed
from support.own_environments import Runs, Waves

OWN = "support.own_environments"
TWO = {"learners": 2, "functions": 1, "prices": 0.1}
TABLES: dict[str, dict[str, Any]] = {
    "embedded": {"case": "C2", **TWO},
    "embedded shares": {"correlation": 0.5, "dimension": 2, **TWO},
    "class": {"environment": f"{OWN}:Waves", "options": {"height": 0.2}, **TWO},
    "class with answers": {"environment": f"{OWN}:Runs", "correlation": "worst", **TWO},
    "function": {
        "environment": f"{OWN}:improving", "dimension": 2, "correlation": "independent", **TWO
    },
}  # fmt: skip
assert len(TABLES) == 5


@pytest.fixture(params=TABLES)
def environment(request: pytest.FixtureRequest) -> Environment:
    return environment_from({"name": "x", **TABLES[request.param]})


def test_a_world_has_the_shape_of_its_environment(environment: Environment) -> None:
    chunk = World(environment, seed=1, horizon=1_500).draw(1_500)
    functions, streams = sum(environment.counts), environment.streams

    assert chunk.points.shape == (1_500, streams, environment.dimension)
    assert chunk.accuracy.shape == chunk.right.shape == (streams, functions, 1_500)
    assert (chunk.points.dtype, chunk.accuracy.dtype, chunk.right.dtype) == (
        np.float64, np.float32, np.int32,
    )  # fmt: skip
    assert all(part.flags.c_contiguous for part in chunk[1:4])
    assert 0 <= chunk.points.min() < chunk.points.max() <= 1
    assert 0 <= chunk.accuracy.min() < chunk.accuracy.max() <= 1
    assert set(np.unique(chunk.right)) == {0, 1}


@pytest.mark.parametrize("lengths", [(1_024, 1_024, 552), (1, 99, 2_500), (2_599, 1)])
def test_a_world_is_the_same_in_chunks_of_any_length(
    environment: Environment, lengths: tuple[int, ...]
) -> None:
    whole = World(environment, seed=4, horizon=2_600).draw(2_600)
    pieces = World(environment, seed=4, horizon=2_600)
    chunks = [pieces.draw(length) for length in lengths]

    for part, axis in ((1, 0), (2, 2), (3, 2)):
        assert np.array_equal(whole[part], np.concatenate([c[part] for c in chunks], axis=axis))


def test_a_seed_is_one_world_and_another_seed_another(environment: Environment) -> None:
    one, same, other = (World(environment, seed=s, horizon=900).draw(900) for s in (1, 1, 2))

    for part in (1, 3):
        assert np.array_equal(one[part], same[part])
        assert not np.array_equal(one[part], other[part])


def test_a_run_has_a_regret_that_grows_and_the_same_again(environment: Environment) -> None:
    options: dict[str, Any] = {"seed": 2, "horizon": 3_000, "checkpoints": [100, 3_000]}
    first, again = (play(environment, CoS(slices=4), **options) for _ in range(2))
    early, late = (sum(lost[k] for lost in first.regret.values()) for k in (0, 1))

    assert 0 < early < late < 3_000 * first.learners
    assert without_time([first]) == without_time([again])


def without_time(runs: list[Run]) -> list[Run]:
    return [msgspec.structs.replace(run, seconds=0.0) for run in runs]


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    """A scenario with every environment."""
    return {
        "scenario": {"horizon-slots": 1_500, "seeds": 2, "checkpoints": [200, 1_000]},
        "policy": [{"name": "grid", "preset": "cos", "slices": 4}, {"name": "auto"}],
        "environment": [{"name": kind, **table} for kind, table in TABLES.items()],
    }


def test_one_and_several_processes_give_the_same_comparison(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    chosen = [scenario.load(tables, workers=count) for count in (1, 2)]
    runs = [runner.simulate(each, tmp_path / str(each.workers)) for each in chosen]
    found = comparison.compare(chosen[0], runs[0])

    assert without_time(runs[0]) == without_time(runs[1])
    assert len(found.scores) == 2 * len(TABLES)
    assert all(score.ratio is not None for score in found.scores[1::2])
    assert f"{OWN}:Waves" in report.html(found)
    assert "class with answers" in printed(found)


def test_a_class_that_workers_cannot_import_runs_here_with_the_same_results(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    class Local(Runs):
        pass

    def runs_of(entry: Any) -> list[Run]:
        own = {"name": "x", "environment": entry, "options": {"stay": 0.9}, **TWO}
        chosen = scenario.load({**tables, "environment": [own]})
        return runner.simulate(chosen, tmp_path / str(len(list(tmp_path.iterdir()))))

    here, by_class, by_name = runs_of(Local), runs_of(Runs), runs_of(f"{OWN}:Runs")

    assert without_time(here) == without_time(by_class) == without_time(by_name)
    assert environment_from({"name": "x", "environment": Runs, **TWO}).entry == f"{OWN}:Runs"


def test_a_folder_of_another_class_or_other_options_is_refused(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    class Local(Waves):
        pass

    def claim(entry: Any, **options: Any) -> None:
        own = {"name": "x", "environment": entry, "options": options, **TWO}
        runner.claim(tmp_path, scenario.load({**tables, "environment": [own]}))

    claim(Local, height=0.1)

    with pytest.raises(ConfigError, match="environment x options height is 0.1 there and 0.2 here"):
        claim(Local, height=0.2)
    with pytest.raises(ConfigError, match=f"Local' there and '{OWN}:Waves' here"):
        claim(Waves, height=0.1)


def test_a_function_may_change_accuracies_by_the_slot() -> None:
    own = {"environment": f"{OWN}:improving", "dimension": 2, "correlation": "independent", **TWO}
    chunk = World(environment_from({"name": "x", **own}), seed=1, horizon=3_000).draw(3_000)

    assert chunk.accuracy[1, 1, [0, 249, 499, 2_999]] == pytest.approx([0.301, 0.55, 0.8, 0.8])
    assert (np.diff(chunk.accuracy[0, 1]) >= 0).all()


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_an_environment_of_ones_own_may_have_many_dimensions(preset: str, tmp_path: Path) -> None:
    tables = {
        "scenario": {"horizon-slots": 400, "seeds": 1},
        "policy": [{"name": "mine", "preset": preset}],
        "environment": [{"name": "x", **own("Embeddings", dimension=50)}],
    }
    (run,) = covey.simulate(tables, tmp_path)

    assert run.regret


def own(name: str, **more: Any) -> dict[str, Any]:
    return {"environment": f"{OWN}:{name}", **TWO, **more}


def given(**arrays: Any) -> dict[str, Any]:
    """A class that draws these arrays, and valid ones for the others."""
    return own("Given", options=arrays)


HALF = [0.5] * 1024
WRONG: list[tuple[dict[str, Any], str]] = [  # and words of the sentence
    ({"environment": "nowhere:Mine"}, "'nowhere:Mine' cannot be imported ... write module:name"),
    ({"environment": 7}, "environment: expected str, got int"),
    (own("nothing"), f"{OWN}:nothing returned None, which has no method draw"),
    (own("Waves", drift={"severity": 0.1, "every-slots": 9}), "environment; remove drift"),
    (own("Runs", dependence=0.5), f"{OWN}:Runs draws the answers; remove dependence"),
    (own("Waves", options={"height": object()}), "options must hold text, numbers, lists"),
    ({"options": {"height": 1}}, "options are those of environment = 'module:name'; add it"),
    (own("Waves", options={"heigth": 0.1}), f"{OWN}:Waves raised TypeError: ... 'heigth' ("),
    (own("broken"), f"{OWN}:broken raised ValueError: no idea ("),
    (given(contexts=HALF), "contexts of shape (1024,); it must be (1024, 1)"),
    (given(contexts=[[1.5]] * 1024), "1.5 in contexts; they must lie from 0 to 1"),
    (given(accuracies=[HALF]), "accuracies of shape (1, 1024); it must be (2, 1024)"),
    (given(accuracies=[HALF, [1.01] * 1024]), "1.01 in accuracies; they must lie from 0 to 1"),
    (given(answers=[HALF, HALF]), "0.5 in answers; they must be 0 or 1"),
    (given(answers=[[1] * 7] * 2), "answers of shape (2, 7); it must be (2, 1024)"),
    (given(all=[1, 2]), "drew list; it must return a tuple of contexts, accuracies and"),
    ({"dimension": 50}, "dimension is 50; more than 8 need an environment of your own"),
]


@pytest.mark.parametrize(("table", "sentence"), WRONG)
def test_what_cannot_be_drawn_is_refused_with_a_message_before_anything_runs(
    table: dict[str, Any], sentence: str, tables: dict[str, Any]
) -> None:
    with pytest.raises(CoveyError) as caught:
        scenario.load({**tables, "environment": [{"name": "x", **table}]})

    said = str(caught.value)
    assert "'x'" in said
    assert [words for words in sentence.split(" ... ") if words not in said] == []


def test_answers_for_some_slots_only_are_refused_with_the_run() -> None:
    environment = environment_from({"name": "x", "environment": f"{OWN}:Fickle", **TWO})
    world = World(environment, seed=1, horizon=3_000)

    with pytest.raises(DataError, match="Fickle gives answers for some slots only"):
        world.draw(3_000)
