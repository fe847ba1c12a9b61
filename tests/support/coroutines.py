"""Tests that are coroutines: a decorator runs one, with the fixtures that it names."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from inspect import Parameter, Signature, signature
from typing import Any

Story = Callable[..., Coroutine[Any, Any, None]]
MOST_S = 120.0  # of a story that would wait for ever


def as_test(
    story: Story,
    run: Callable[[Story, dict[str, Any]], None],
    *,
    gets: Sequence[str] = (),
    needs: Sequence[str] = (),
) -> Callable[..., None]:
    """Return a test that runs a story.

    `run` gets the story, which takes only `gets` then, and the values of the fixtures `needs`.
    """
    names = [name for name in signature(story).parameters if name not in gets]

    def test(**values: Any) -> None:
        run(functools.partial(story, **{name: values[name] for name in names}), values)

    functools.update_wrapper(test, story)
    del test.__dict__["__wrapped__"]  # pytest would look at its parameters
    asked = dict.fromkeys([*needs, *names])
    parameters = [Parameter(name, Parameter.KEYWORD_ONLY) for name in asked]
    test.__dict__["__signature__"] = Signature(parameters)
    return test


def looped(story: Story) -> Callable[..., None]:
    """Make a test of a story in an event loop of its own."""
    return as_test(story, lambda story, values: asyncio.run(asyncio.wait_for(story(), MOST_S)))
