"""Two hundred replay configurations with their logs, generated as text from fixed seeds.

The generator writes TOML and CSV and imports nothing of the library. It draws numbers with
`random.Random.random` only, whose sequence is the same in every version of Python.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from frozen.options import ANY, OF_PHASES, OF_PRESET, PHASES, PRESETS, Draft, Option

COUNT = 200


class Configuration(NamedTuple):
    """A replay: its configuration in TOML and its log in CSV."""

    name: str
    toml: str
    log: str


def configurations() -> Iterator[Configuration]:
    """Yield the configurations, the same in every run."""
    for number in range(COUNT):
        draft = _draft(number)
        name = f"{number:03d} {draft.preset or 'no preset'}: {', '.join(draft.options)}"
        yield Configuration(name, _toml(draft), _csv(draft))


def _draft(number: int) -> Draft:
    draft = Draft(number)
    special = OF_PRESET.get(draft.preset, {})
    known = ANY | special | (OF_PHASES if draft.preset in PHASES else {})
    turn, place = divmod(number, len(PRESETS))
    _add(draft, known, list(known)[(turn + 4 * place) % len(known)])
    if special or draft.preset in PHASES:
        own = list(known)[len(ANY) :]
        _add(draft, known, own[turn % len(own)])
    for _ in range(draft.integer(1, 3)):
        _add(draft, known, draft.pick(list(known)))
    return draft


def _add(draft: Draft, known: dict[str, Option], name: str) -> None:
    if not draft.has(name) and known[name](draft):
        draft.options.append(name)


def _toml(draft: Draft) -> str:
    tables = {"data": [draft.data], "policy": [draft.policy], "learner": draft.learners}
    tables |= {name: [table] for name, table in draft.more.items() if isinstance(table, dict)}
    tables |= {name: made for name, made in draft.more.items() if isinstance(made, list)}
    lines = []
    for name, made in tables.items():
        is_list = isinstance(draft.more.get(name), list) or name == "learner"
        for table in made:
            lines.append(f"[[{name}]]" if is_list else f"[{name}]")
            lines += [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_value(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)


def _csv(draft: Draft) -> str:
    columns = dict(draft.columns)
    for learner in draft.learners:
        for function in learner["functions"]:
            columns[function] = _predictions(draft)
    if draft.has("missing labels"):
        shown = zip(draft.labels, columns["seen"], strict=True)
        columns["label"] = [one if seen or draft.chance(0.5) else "" for one, seen in shown]
    rows = [columns, *zip(*columns.values(), strict=True)]
    return "".join(",".join(_cell(item) for item in row) + "\n" for row in rows)


def _predictions(draft: Draft) -> list[str]:
    """Return answers that are better in one half of the contexts, and change after some slots."""
    chances = [draft.pick([0.3, 0.6, 0.95]) for _ in range(3)]
    turn = draft.pick([60, 120, 1000])
    classes = sorted(set(draft.labels))
    answers = []
    for slot, (truth, share) in enumerate(zip(draft.labels, draft.columns["x"], strict=True)):
        is_right = draft.chance(chances[2 if slot >= turn else int(share > 0.5)])
        answers.append(truth if is_right else draft.pick(classes))
    return answers


def _cell(item: Any) -> str:
    text = str(item)
    return f'"{text}"' if "," in text else text
