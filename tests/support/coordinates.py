"""Entries of every scale, the coordinates they give, and histories of labels."""

from hypothesis import strategies as st

from covey.data import contexts

CLASSES = {"scale": "previous-label", "classes": ["normal", "probe", "attack"], "initial": 0.25}
LOG = {"column": "bytes", "scale": "log", "high": 1e6}
LINEAR = {"column": "temp", "scale": "linear", "low": -10, "high": 40}
RANK = {"column": "amount", "scale": "rank", "sample": [5.0, 1.0, 5.0, 9.0]}
HOUR = {"column": "time", "scale": "hour"}
SLOT = {"scale": "slot", "horizon": 8}


def coordinate(entry, values, **told):
    """Place the values of one column on one scale, from slot 1 on."""
    reader = contexts.parse([entry])
    columns = dict.fromkeys(reader.columns, values)
    return reader.extract(columns, first_slot=1, **told)[:, 0].tolist()


def previous(labels, *, entry=CLASSES, **told):
    return contexts.parse([entry]).extract({}, first_slot=1, labels=labels, **told)[:, 0].tolist()


@st.composite
def histories(draw):
    """Labels with their learners, revelations and delays; each of the three may be left out."""
    size = draw(st.integers(0, 30))

    def column(values):
        return draw(st.lists(values, min_size=size, max_size=size))

    labels = column(st.sampled_from(["normal", "probe", "attack", None]))
    told = {
        "at": column(st.integers(0, 2)),
        "revealed": column(st.integers(0, 1)),
        "delay": column(st.integers(0, 6)),
    }
    return labels, {name: told[name] for name in told if draw(st.booleans())}
