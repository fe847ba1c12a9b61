"""Sites that are looked at before they serve, and what is said of them."""

from pathlib import Path

from covey.server import doctor
from covey.server.doctor import Finding
from support.site_processes import table

FEATURES = {"size": "FP64"}
FUNCTION = table("[[function]]", {"name": "zero", "kind": "constant", "label": 0})


def examine(folder: Path, text: str) -> dict[str, Finding]:
    """Return what is said of a site's file, by what it is about; the worst where there are two."""
    path = folder / "examined.toml"
    path.write_text(text)
    order = ["ok", "warning", "failure"]
    found = sorted(doctor.examine(path), key=lambda one: order.index(one.state))
    return {one.what: one for one in found}


def states(found: dict[str, Finding]) -> dict[str, str]:
    return {what: one.state for what, one in found.items() if one.state != "ok"}
