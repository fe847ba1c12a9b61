"""HTML and SVG of the live page: text is escaped unless it was made here."""

from collections.abc import Iterable
from functools import cache, lru_cache
from html import escape

VOID = frozenset(["input", "link", "meta"])  # elements without content and end tag


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *inside: object, **attributes: object) -> Markup:
    """Return an element; `None` and `False` leave an attribute out, `True` gives it no value.

    An underscore at the end of an attribute is dropped, one inside becomes a hyphen.
    """
    given = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        given += f" {_attribute(key)}"
        if value is not True:
            given += f'="{escaped(value)}"'
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(inside)}</{name}>")


@cache
def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def join(parts: Iterable[object]) -> Markup:
    """Return parts one after the other; those that are no markup are escaped."""
    return Markup("".join(map(escaped, parts)))


def escaped(value: object) -> Markup:
    """Return a value as text; characters that cannot be seen, or turn text around, are marked."""
    if isinstance(value, Markup):
        return value
    return _escaped(str(value))


@lru_cache(4_096)
def _escaped(text: str) -> Markup:
    if not text.isprintable():
        text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return Markup(escape(text))


def table(caption: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> Markup:
    """Return a table whose first column names its rows; narrow screens scroll it."""
    head = tag("tr", *(tag("th", heading, scope="col") for heading in headings))
    body = []
    for first, *rest in rows:
        cells = (one if _is_cell(one) else tag("td", one) for one in rest)
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    inside = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    # Focusable, so that it can be scrolled with keys.
    return tag("div", inside, class_="wide", tabindex="0", role="region", aria_label=caption)


def bar(share: float, kind: str = "") -> Markup:
    """Return a cell with a bar of a share from 0 to 1, beside a number that says the same."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}"
    drawn = tag("rect", width=width, height="8", class_=f"bar {kind}".rstrip())
    box = tag("svg", drawn, viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")
    return tag("td", box, class_="bars")


def _is_cell(value: object) -> bool:
    return isinstance(value, Markup) and value.startswith("<td")
