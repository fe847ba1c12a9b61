"""A served site with random costs, a loss, a reward of its own, and prices that change."""

from pathlib import Path
from typing import Any

import pytest
from test_reload import RELOAD, WITH_TOKENS, arms_of, labelled, told

from support.served import FEEDBACK, INFER, SITE, Client, infer, run

POLICY = 'preset = "cos"\nslices = 4\nlabel-wait = 20'
BOTH = 'functions = ["zero", "one"]'


def site(*, policy: str = "", learner: str = "", data: str = "", base: str = SITE) -> str:
    """Return the file of a site that exploits soon."""
    early = 'preset = "cos"\nslices = 1\nexplore = { scale = 0.5, power = 0.0 }'
    text = base.replace(POLICY, f"{early}\n{policy}").replace(BOTH, f"{BOTH}\n{learner}")
    return f"{text}\n[data]\n{data}\n" if data else text


async def chosen(client: Client, id_: str, label: Any, **more: Any) -> str:
    """Send an instance and its label; return the arm."""
    status, answer = await client.post(INFER, infer(id_))
    assert status == 200
    arm = answer["parameters"]["arm"]
    feedback = {"id": id_, "truth": label}
    if more:
        feedback["cost"] = more[arm]
    status, body = await client.post(FEEDBACK, feedback)
    assert status == 202, body
    return str(arm)


COSTS = 'cost-columns = { zero = "fee", one = "fee" }'


def test_costs_that_are_reported_with_labels_are_learnt_and_survive_a_restart(
    tmp_path: Path,
) -> None:
    last: list[str] = []

    async def first(client: Client) -> None:
        for k in range(30):
            last[:] = [await chosen(client, f"a{k}", k % 2, zero=0.9, one=0.05)]

    async def then(client: Client) -> None:
        last[:] = [await chosen(client, f"b{k}", k % 2, zero=0.9, one=0.05) for k in range(5)]

    run(tmp_path, first, site(learner=COSTS))
    assert last == ["one"]
    run(tmp_path, then, site(learner=COSTS))
    assert last == ["one"] * 5  # without costs the two are equally good, and zero comes first


@pytest.mark.parametrize(
    ("learner", "feedback", "sentence"),
    [
        ("", {"truth": 1, "cost": 0.5}, "'north' has no cost-columns, and learns no costs"),
        (COSTS, {"truth": 1, "cost": 1.5}, "the cost is 1.5; it must lie in [0, 1]"),
        (COSTS, {"truth": 1, "cost": [0.5]}, "cost must be a list where there are rows"),
        (COSTS, {"rows": [0], "truth": [1], "cost": 0.5}, "cost must be a list where there are"),
        (COSTS, {"rows": [0], "truth": [1], "cost": [0.5, 0.5]}, "costs"),
    ],
)
def test_a_cost_that_cannot_be_learnt_is_refused_and_the_label_can_be_sent_again(
    learner: str, feedback: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))

        status, body = await client.post(FEEDBACK, {"id": "a", **feedback})

        assert status == 422
        assert sentence in body["detail"]
        assert (await client.post(FEEDBACK, {"id": "a", "truth": 1}))[0] == 202

    run(tmp_path, story, site(learner=learner))


def test_a_reward_beside_the_file_that_fails_is_a_problem_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "rewards_of_north.py").write_text(
        "def worth(accuracy, cost, context):\n"
        "    if context[0] < 0.4 and accuracy == 1.0 and cost > 0:\n"
        "        raise ValueError('no value')\n"
        "    return accuracy - cost\n"
    )

    async def story(client: Client) -> None:
        statuses = []
        for k in range(10):
            status, body = await client.post(INFER, infer(f"a{k}"))
            statuses.append(status)
            if status != 200:
                break
            await client.post(FEEDBACK, {"id": f"a{k}", "truth": 1})

        assert (status, body["code"]) == (500, "policy_failed")
        assert "reward 'rewards_of_north:worth' raised ValueError for accuracy 1" in body["detail"]
        assert statuses[:2] == [200, 200]

    policy, learner = 'reward = "rewards_of_north:worth"', "function-costs = [0.1, 0.1]"
    run(tmp_path, story, site(policy=policy, learner=learner))


def test_prices_and_rewards_change_while_a_site_serves_and_what_it_has_learnt_stays(
    tmp_path: Path,
) -> None:
    base = site(learner="function-costs = [0.0, 0.0]", base=WITH_TOKENS)
    dear = base.replace("function-costs = [0.0, 0.0]", "function-costs = [0.9, 0.0]")
    fair = dear.replace("slices = 1", "slices = 1\nreward = { cost = 0.001 }")

    async def story(client: Client) -> None:
        await labelled(client, 20)
        before = await arms_of(client)
        assert await chosen(client, "x0", 0) == "zero"

        (tmp_path / "site.toml").write_text(dear)
        assert (await client.post(RELOAD, {}))[0] == 200
        status, answer = await client.post(INFER, infer("x1"))
        assert (status, answer["parameters"]["arm"]) == (200, "one")

        (tmp_path / "site.toml").write_text(fair)
        assert (await client.post(RELOAD, {}))[0] == 200
        _, answer = await client.post(INFER, infer("x2"))
        assert (answer["parameters"]["arm"], answer["parameters"]["price"]) == ("zero", 0.9)
        now = await arms_of(client)
        assert {arm: now[arm][0] - before[arm][0] for arm in now} == {"zero": 1, "one": 0}

    told(tmp_path, story, base)
