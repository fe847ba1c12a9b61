"""Render a matplotlib figure as an inline SVG element in the style of the page.

Matplotlib is imported only on use.
"""

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from covey.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NONE = "\N{EN DASH}"
INK = "#1f2428"
FAINT = "#626a72"

_PIXELS_PER_INCH = 96
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 8.25,
    "text.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.labelcolor": FAINT,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "#e4e7ea",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "hatch.linewidth": 1.4,
}


def shorten(name: str, length: int) -> str:
    """Return `name` in at most `length` printable characters, ending in an ellipsis if cut."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return shown if len(shown) <= length else shown[: length - 1].rstrip() + "…"


def svg(draw: "Callable[[Figure], None]", *, size: tuple[int, int], label: str) -> str:
    """Return the figure that `draw` fills, of this size in pixels, as an SVG element.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(
            'the figures of a report need matplotlib: pip install "covey[report]"'
        ) from error
    stream = io.StringIO()
    # "default" ignores a user's matplotlibrc; the salt makes the ids of figures differ.
    style = {**_STYLE, "svg.hashsalt": label}
    with matplotlib.style.context(["default", style]), warnings.catch_warnings():
        # The browser draws the letters, so glyphs missing in matplotlib's font do not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(size[0] / _PIXELS_PER_INCH, size[1] / _PIXELS_PER_INCH))
        draw(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", dpi=192, metadata=nothing)
    return _inline(stream.getvalue(), size=size, label=label)


def _inline(document: str, *, size: tuple[int, int], label: str) -> str:
    """Return the `svg` element alone, in the font of the page and without unused ids."""
    body = document[document.index("</defs>") + len("</defs>") :]
    body = re.sub(r'(<\w+) id="[\w.]+_\d+"', r"\1", body)
    body = re.sub(r'(<text style="font-size: [^;"]*); font-family: [^;"]*', r"\1", body)
    points = " ".join(f"{pixels * 72 / _PIXELS_PER_INCH:g}" for pixels in size)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {points}" style="max-width: {size[0]}px" '
        f'role="img" aria-label="{escape(shorten(label, 120))}">{body}'
    )


def axes_in(figure: "Figure", *, left: int, bottom: int, top: int, right: int) -> "Axes":
    """Return axes with margins in pixels, so that adjacent panels align."""
    width, height = (inches * _PIXELS_PER_INCH for inches in figure.get_size_inches())
    across, up = 1 - (left + right) / width, 1 - (bottom + top) / height
    axes = figure.add_axes((left / width, bottom / height, across, up))
    axes.spines[:].set_visible(False)
    return axes


def brief(value: float) -> str:
    """Return a number for the tick of an axis: 20k for 20000."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
