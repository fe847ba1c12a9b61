"""A report as blocks, and the same blocks as Markdown and as HTML."""

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from covey import page


class Text(NamedTuple):
    """A paragraph."""

    words: str


class Items(NamedTuple):
    """Short sentences, one below the other."""

    lines: Sequence[str]


class Grid(NamedTuple):
    """A table: headings, and rows of cells, the first of each its name."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


class Drawing(NamedTuple):
    """A figure, how to read it, and what it is called."""

    svg: str
    caption: str
    name: str

    @property
    def file(self) -> str:
        """Where it stands beside the report, for who does not look at the page."""
        return f"figures/{re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')}.svg"

    @property
    def alone(self) -> str:
        """The figure as a file, which no page gives a font and a background."""
        style = 'style="background: #fff; font-family: sans-serif; '
        return self.svg.replace('style="', style, 1) + "\n"


Block = Text | Items | Grid | Drawing


class Section(NamedTuple):
    """A heading, and what stands below it."""

    title: str
    blocks: Sequence[Block]


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the report; its figures are files beside it."""
    parts = [f"# {title}"]
    for section in sections:
        if section.title:
            parts.append(f"## {section.title}")
        parts += [_markdown(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def html(title: str, sections: Sequence[Section]) -> str:
    """Return the report as one page that loads nothing."""
    first, *others = sections
    head = f"<header><h1>{escape(title)}</h1>{_all_html(first.blocks)}</header>"
    body = [
        f"<section><h2>{escape(section.title)}</h2>{_all_html(section.blocks)}</section>"
        for section in others
    ]
    return page.document("\n".join([head, *body]), title=title)


def drawings(sections: Sequence[Section]) -> list[Drawing]:
    """Return the figures of a report."""
    return [b for section in sections for b in section.blocks if isinstance(b, Drawing)]


def _markdown(block: Block) -> str:
    if isinstance(block, Text):
        return block.words
    if isinstance(block, Items):
        return "\n".join(f"- {line}" for line in block.lines)
    if isinstance(block, Drawing):
        return f"![{block.caption}]({block.file})\n\n{block.caption}"
    lines = [block.headings, ["---"] * len(block.headings), *block.rows]
    return "\n".join("| " + " | ".join(cell or " " for cell in line) + " |" for line in lines)


def _all_html(blocks: Sequence[Block]) -> str:
    return "\n".join(_html(block) for block in blocks)


def _html(block: Block) -> str:
    if isinstance(block, Text):
        return f"<p>{_marked(block.words)}</p>"
    if isinstance(block, Items):
        return "<ul>" + "".join(f"<li>{_marked(line)}</li>" for line in block.lines) + "</ul>"
    if isinstance(block, Drawing):
        return f'{block.svg}<p class="how">{_marked(block.caption)}</p>'
    head = "".join(f'<th scope="col">{_marked(cell)}</th>' for cell in block.headings)
    rows = "".join(f"<tr>{_cells(row)}</tr>" for row in block.rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cells(row: Sequence[str]) -> str:
    name, *numbers = row
    cells = "".join(f"<td>{_marked(cell)}</td>" for cell in numbers)
    return f'<th scope="row">{_marked(name)}</th>{cells}'


def _marked(words: str) -> str:
    """Return words with their code and their emphasis, which are written as in Markdown."""
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", words)
