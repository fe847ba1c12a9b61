"""Bad input to a command is one sentence and exit code 2, and leaves no file."""

from pathlib import Path

import pytest

from covey import cli

CONFIG = """
[data]
label = "label"
context = ["hour"]

[policy]
preset = "cos"
slices = 2

[[learner]]
name = "north"
functions = ["nb", "tree"]
peers = { south = 0.1 }

[[learner]]
name = "south"
functions = ["rules"]
"""
SCENARIO = """
[scenario]
horizon-slots = 300

[[policy]]
name = "grid"
preset = "cos"
slices = 3

[[environment]]
name = "same for all"
case = "C2"
prices = 0.05
"""
FILES = {
    "sites.toml": CONFIG,
    "log.csv": "hour,label,nb,tree,rules\n"
    + "".join(f"{k % 10 / 10},{k % 2},{k % 2},{(k + 1) % 2},{k % 3 % 2}\n" for k in range(60)),
    "scenario.toml": SCENARIO,
    "taken": "",
    **{
        name: text.replace(" ", "\n") + "\n"
        for name, text in {
            "a.csv": "a,b 1,1 0,0",
            "b.csv": "label,b x,1 y,0",
            "c.csv": "label,b 1,1 0,0",
            "d.csv": "label",
            "e.csv": "#,exported label,a 1,1",
            "f.csv": "label,a OK,ok NO,no",
        }.items()
    },
}
REPLAY = "replay log.csv --config sites.toml --quiet --trace trace.csv"
SIMULATE = "simulate scenario.toml --quiet --out out"
INIT = "init {}.csv --out new.toml"


@pytest.mark.parametrize(
    ("command", "change", "sentence"),
    [
        (REPLAY, ("log.csv", "label,nb", "label,nbb"), "has no column 'nb'; did you mean 'nbb'?"),
        (REPLAY, ("log.csv", "\n0.3,1,", "\n1.3,1,"), "slot 4: context 'hour' is 1.3"),
        (REPLAY, ("sites.toml", "slices = 2", "horizon = 20"), "rows than the horizon of 20 slots"),
        (REPLAY, ("sites.toml", "slices = 2", "slices = 2 2"), "is not valid TOML"),
        (f"{REPLAY} --report taken", None, "taken is a file; name another folder for the report"),
        (
            SIMULATE,
            ("scenario.toml", "horizon-slots", "horizon-slot"),
            "unknown key 'horizon-slot'",
        ),
        (SIMULATE, ("scenario.toml", "prices = 0.05", "high = 1.5"), "'same for all' high: "),
        (SIMULATE, ("scenario.toml", "slices = 3", "slices = 3 3"), "is not valid TOML"),
        (SIMULATE, ("scenario.toml", "slices = 3", "horizon = 200"), "is 200 slots, but the run"),
        ("bounds --alpha 0", None, "alpha is 0; expected float >= 0.001"),
        ("bounds --lipschitz -1", None, "lipschitz is -1; expected float >= 1e-09"),
        ("bounds --dimension 9", None, "dimension is 9; expected int <= 8"),
        ("bounds --learners 0", None, "learners is 0; expected int >= 1"),
        ("bounds --learners 2.5", None, "learners is 2.5; expected int"),
        ("bounds --horizon 1e400", None, "horizon is inf; expected float <= 1e+300"),
        ("bounds T9", None, "unknown theorem 'T9'; known: C1, C2,"),
        (INIT.format("a"), None, "which column of a.csv holds the true labels?"),
        (f"{INIT.format('a')} --label c", None, "has no column 'c'; known: a, b"),
        (INIT.format("b"), None, "no predictions were found"),
        (f"{INIT.format('c')} --at z", None, "has no column 'z'"),
        (INIT.format("d"), None, "has no rows"),
        (INIT.format("e"), None, "begins with a comment"),
        (INIT.format("f"), None, "'label' holds 'OK', 'NO', 'a' holds 'ok', 'no'"),
        ("init log.csv --out taken", None, "taken exists; move it, or name another file"),
        ("init . --out new.toml", None, "is a folder"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_file(
    command: str,
    change: tuple[str, str, str] | None,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    files = dict(FILES)
    if change is not None:
        name, old, new = change
        assert old in files[name]
        files[name] = files[name].replace(old, new)
    for name, text in files.items():
        Path(name).write_text(text)

    code = cli.main(command.split())

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files
