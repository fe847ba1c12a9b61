"""Files of sites that cannot be served are refused with the key and a remedy: see refusals.toml."""

import tomllib
from pathlib import Path

import pytest

from covey import cli
from covey.errors import ConfigError
from covey.server import config
from support import served

CASES = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text())
PEERED = f"""
[node]
name = "north"
features = {{ size = "FP64" }}
store = "north.store"
certificate = "north.crt"
key = "north.key"
peer-address = "127.0.0.1:0"
dimension = 1

[policy]
preset = "cos"
slices = 2

[[learner]]
name = "north"
functions = ["zero", "one"]
peers = {{ south = 0.1 }}
[[peer]]
share = "data"
name = "south"
key = "p256:A2sX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKW"
url = "https://127.0.0.1:8443"
may-ask = true
{served.CONSTANTS}"""
FILES = {"alone": served.SITE, "peered": PEERED}


@pytest.mark.parametrize("file", FILES)
def test_the_files_are_valid_as_they_are(tmp_path: Path, file: str) -> None:
    (tmp_path / "site.toml").write_text(FILES[file])

    assert config.load(tmp_path / "site.toml").site.name == "north"


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [(file, *case) for file, cases in CASES.items() for case in cases],
)
def test_a_site_that_cannot_serve_is_refused_with_a_sentence(
    tmp_path: Path, file: str, old: str, new: str, says: str
) -> None:
    assert old in FILES[file]
    (tmp_path / "site.toml").write_text(FILES[file].replace(old, new, 1))

    with pytest.raises(ConfigError) as refused:
        config.load(tmp_path / "site.toml")

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rows = 100", "requests-per-s = nan", "requests-per-s: expected float >= 0.001, got nan"),
        ("dimension", 'tokens = "t.json"\ndimension', "t.json is not there"),
    ],
)
def test_a_refusal_ends_the_command_with_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str
) -> None:
    (tmp_path / "site.toml").write_text(served.SITE.replace(old, new))

    assert cli.main(["serve", str(tmp_path / "site.toml")]) == 2
    assert says in capsys.readouterr().err
