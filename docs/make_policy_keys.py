"""Write `docs/reference/policy-keys.md`: which key belongs to which policy, from the records."""

import typing
from pathlib import Path
from typing import Any

import msgspec

from covey import toml
from covey.bandit.partitions import Threshold
from covey.bandit.policies import RECORDS, Duration, Forget, Harm, keys_of
from covey.kernel.rules import Reward

PAGE = Path(__file__).parent / "reference" / "policy-keys.md"
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->"


def page() -> str:
    """Return the page with the table of today's records."""
    listed = [key for record in RECORDS.values() for key in keys_of(record)]
    every = sorted(dict.fromkeys(listed), key=lambda key: -listed.count(key))
    rows = [
        ["key", *(f"`{preset}`" for preset in RECORDS), "values"],
        ["---"] * (len(RECORDS) + 2),
        *([f"`{key}`", *_defaults(key), _values(key)] for key in every),
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def _defaults(key: str) -> list[str]:
    return [_default(keys_of(record).get(key)) for record in RECORDS.values()]


def _default(field: msgspec.structs.FieldInfo | None) -> str:
    if field is None:
        return "-"
    if field.required:
        return "required"
    if field.default in (None, msgspec.NODEFAULT, Forget()):
        return "not set"
    return f"`{toml.text_of(field.default)}`"


def _values(key: str) -> str:
    """Return the values of a key; where policies differ in them, those of each."""
    kinds = {}
    for preset, record in RECORDS.items():
        if key in keys_of(record):
            kinds.setdefault(_words(keys_of(record)[key].type), []).append(preset)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{words} (`{'`, `'.join(presets)}`)" for words, presets in kinds.items())


def _words(kind: Any) -> str:
    """Return a type in words."""
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(f'`"{word}"`' for word in typing.get_args(kind))
    if kind == Duration:
        return 'duration such as `"30d"`'
    if hasattr(kind, "__metadata__"):
        return f"{_words(kind.__origin__)} {_range(*kind.__metadata__)}"
    options = [one for one in typing.get_args(kind) if one is not type(None)]
    if options and typing.get_origin(kind) is not dict:
        return " or ".join(map(_words, options))
    names = {
        bool: "`true`, `false`",
        int: "whole number",
        float: "number",
        str: '`"module:name"`',
        Threshold: "`{ scale, power }`",
        Forget: "`{ window }` or `{ discount }`",
        Harm: "`{ points, confidence }`",
        Reward: "`{ accuracy, power, cost, context }`",
    }
    return names.get(kind, "table")


def _range(meta: msgspec.Meta) -> str:
    low = f"above {meta.gt:g}" if meta.ge is None else f"from {meta.ge:g}"
    return f"{low} to {f'below {meta.lt:g}' if meta.le is None else f'{meta.le:g}'}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
