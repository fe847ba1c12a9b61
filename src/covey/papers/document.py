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
    """A figure, which only a page can show, and how to read it."""

    svg: str
    caption: str


Block = Text | Items | Grid | Drawing


class Section(NamedTuple):
    """A heading, and what stands below it."""

    title: str
    blocks: Sequence[Block]


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the report without its figures, for which it sends the reader to the page."""
    parts = [f"# {title}"]
    for section in sections:
        if section.title:
            parts.append(f"## {section.title}")
        parts += [_markdown(block) for block in section.blocks if not isinstance(block, Drawing)]
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


def _markdown(block: Block) -> str:
    if isinstance(block, Text):
        return block.words
    if isinstance(block, Items):
        return "\n".join(f"- {line}" for line in block.lines)
    assert isinstance(block, Grid)
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
