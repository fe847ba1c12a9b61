"""One stream, the same decisions everywhere: long streams, and sites that are served over https.

What each extension decides in a replay, a network and restarted nodes is compared in `golden`.
"""

from pathlib import Path

import pytest

from covey.bandit.policies import PRESETS
from golden.configurations import Golden, configurations
from golden.doors import replayed, rows_of
from golden.https import decided
from support import flow
from support.coroutines import looped

OWN = "support.own_policies"
EVERY_POLICY = [*sorted(PRESETS), f"{OWN}:CellUCB", f"{OWN}:EpsilonGreedy"]
SLOTS = 75  # of those that are served
SERVED = [golden for golden in configurations() if golden.is_served]


@pytest.mark.parametrize("preset", EVERY_POLICY)
def test_replay_and_the_network_in_process_decide_the_same(preset: str) -> None:
    stream, config = flow.recorded_stream(), flow.config_of(preset)

    assert flow.decided_in_a_network(stream, config) == flow.replayed(stream, config)


@pytest.mark.parametrize("dimension", [0, 1, 3, 5])
def test_a_network_decides_as_a_replay_in_any_number_of_contexts(dimension: int) -> None:
    stream, config = flow.changing_stream(dimension), flow.config_of("auto")
    config["policy"]["alarm"] = 2.0

    live = flow.decided_in_a_network(stream, config)

    assert live == flow.replayed(stream, config)
    assert any(row[1].startswith("site") for row in live)


@pytest.mark.parametrize("golden", SERVED, ids=lambda golden: golden.name)
@looped
async def test_sites_that_are_served_over_https_decide_as_a_replay(
    golden: Golden, tmp_path: Path
) -> None:
    live = await decided(golden, tmp_path, slots=SLOTS)

    assert live == rows_of(replayed(golden))[: len(live)]
    assert len(live) > SLOTS - 7  # the last batch is whole
