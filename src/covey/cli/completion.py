"""`covey completion`: a script with which a shell completes commands, options and their values."""

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from covey.cli import parser as command_line
from covey.cli.parser import describe

EXAMPLES = """\
examples:
  covey completion bash > ~/.local/share/bash-completion/completions/covey
  covey completion zsh > ~/.zfunc/_covey       with fpath=(~/.zfunc $fpath) before compinit
  eval "$(covey completion bash)"              for this shell only
"""
BASH = """\
_covey() {
    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=
    case $command in @GROUPS@)
        if ((COMP_CWORD > 2)); then command+=" ${COMP_WORDS[2]}"; fi ;;
    esac
    if ((COMP_CWORD == 1)); then command=; fi
    case "$command ${COMP_WORDS[COMP_CWORD - 1]}" in
@VALUES@
    *) case $command in
@WORDS@
        esac
        case $command in ''|@GROUPS@) ;; *) [[ $current == -* ]] || words= ;; esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o bashdefault -o default -F _covey covey
"""
ZSH = """\
#compdef covey
_covey() {
    local command=$words[2]
    local -a found
    case $command in @GROUPS@)
        if ((CURRENT > 3)); then command+=" $words[3]"; fi ;;
    esac
    if ((CURRENT == 2)); then command=; fi
    case "$command $words[CURRENT-1]" in
@VALUES@
    esac
    case $command in
@WORDS@
    esac
    case $command in ''|@GROUPS@) ;; *) [[ $words[CURRENT] == -* ]] || { _files; return } ;; esac
    _describe covey found
}
if [[ $funcstack[1] == _covey ]]; then _covey "$@"; else compdef _covey covey; fi
"""


class Completions(NamedTuple):
    """What can follow a command."""

    command: str  # "" or words, like "keys ca"
    words: dict[str, str]  # commands or options -> what they are for
    values: dict[str, list[str]]  # option, or the last word of the command -> what may follow it
    is_group: bool  # of commands


def add_completion(command: argparse.ArgumentParser) -> None:
    """Add what `covey completion` takes."""
    describe(
        command,
        "Print a script that completes commands, options and values, for a shell to read.",
        EXAMPLES,
    )
    command.add_argument("shell", choices=("bash", "zsh"), help="that reads the script")
    command.set_defaults(run=_completion, debug=False)


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    found = list(_walk(command_line.parser(), ""))
    groups = [one.command for one in found if one.is_group and one.command]
    values = [
        (f"{one.command} {option}", choices)
        for one in found
        for option, choices in one.values.items()
    ]
    if shell == "bash":
        text = BASH
        by_value = [f"    {_quoted(name)}) words={_words(choices)} ;;" for name, choices in values]
        by_command = [
            f"        {_quoted(one.command)}) words={_words(one.words)} ;;" for one in found
        ]
    else:
        text = ZSH
        by_value = [
            f"    {_quoted(name)}) compadd {' '.join(choices)}; return ;;"
            for name, choices in values
        ]
        by_command = [f"    {_quoted(one.command)}) found=({_described(one)}) ;;" for one in found]
    parts = {
        "GROUPS": "|".join(groups),
        "VALUES": "\n".join(by_value),
        "WORDS": "\n".join(by_command),
    }
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], text)


def _completion(options: argparse.Namespace) -> None:
    print(script(options.shell), end="")


def _walk(parser: argparse.ArgumentParser, command: str) -> Iterator[Completions]:
    """Yield what can follow a command, and each of its subcommands."""
    if isinstance(parser, command_line.CommandParser):
        parser.fill()
    words: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    below: Mapping[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = action.choices
            words |= {one.dest: one.help or "" for one in action._choices_actions}
        elif long := [option for option in action.option_strings if option.startswith("--")]:
            words[long[0]] = action.help or ""
            if action.choices:
                values[long[0]] = list(map(str, action.choices))
        elif action.choices:  # after the command itself
            values[command.rsplit(maxsplit=1)[-1]] = list(map(str, action.choices))
    yield Completions(command, words, values, is_group=bool(below))
    for name, one in below.items():
        yield from _walk(one, f"{command} {name}".strip())


def _quoted(text: str) -> str:
    return f"'{text}'"


def _words(words: "list[str] | dict[str, str]") -> str:
    return _quoted(" ".join(words))


def _described(one: Completions) -> str:
    """Return words with their descriptions, as `_describe` of zsh takes them."""
    lines = [
        word + (":" + re.sub(r"([\\:])", r"\\\1", text % {}) if text else "")
        for word, text in one.words.items()
    ]
    return " ".join(map(shlex.quote, lines))
