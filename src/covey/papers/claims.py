"""What the paper says of its figures, in other words, each as comparisons that can be decided.

Figures that no table prints have keys of the same form: DCZA where a table has CoS alone,
"exploitation error" (errors in slots that exploit, in percent of all slots), "DCZA inherit" (finer
cells begin with what was learnt in their place), training and exploration under `errorperc`, and
`horizon` (a run that ends, and knows that it ends, after so many slots). Where the paper says
"slightly", "about" or "very", the number is ours, and the text names it.
"""

from covey.papers.judging import Claim, Excess, Least, Miss, Part, Sum, grows, key_of, less
from covey.papers.printed import PRINTED

_BOTH, _SETS, _CONTEXTS = ("CoS", "DCZA"), ("S1", "S2"), ("A1", "A2", "A3")
_LABELS_SEEN = ("1", "0.5", "0.1", "0.01")
_PRICES = ("0", "0.5", "0.7")
_SLIGHTLY = 3.0  # points
_ABOUT = 5.0  # points
_VERY_HIGH = 20.0  # percent

# First line -> the part of the paper that begins there.
_SECTIONS = {
    78: "Abstract",
    1303: "Context to capture concept drift",
    1324: "Sending only the context but not the data",
    1482: "Simulation Setup",
    1551: "Simulation Results for CoS and DCZA",
    1646: "Simulation Results for Extensions on CoS and DCZA",
}


def _claim(
    line: int, name: str, text: str, parts: tuple[Part, ...], *, is_some: bool = False
) -> Claim:
    section = _SECTIONS[max(first for first in _SECTIONS if first <= line)]
    return Claim(name, text, section, line, parts, is_some)


def _spent(start: str) -> Sum:
    """Name the share of slots that train or explore."""
    return Sum((key_of(f"{start}/training"), key_of(f"{start}/exploration")))


def _asked(price: str) -> Sum:
    return Sum(tuple(key_of(f"callcost/{price}/selection/{peer}") for peer in "234"))


def _best_function(name: str) -> Least:
    return Least(tuple(key for key in PRINTED if key[:2] == ("sim_setup", name)))


_OF = "sim_results/{one}/Z1/{name}/{context}/"
_COS_OF = "sim_results/CoS/Z1/{name}/{context}/"
_ALONE = "sim_results2/CoS/Z1/{name}/{context}/"  # where nobody else receives anything
_ONLY = "onlycontext/CoS/Z1/{name}/{context}/error"
_WEIGHTS = "weights/total error/"
_TIME_S1, _TIME_S2 = (key_of(f"sim_results/CoS/Z1/{name}/A3/error") for name in _SETS)
_HORIZON = "horizon/{one}/Z2/S1/{context}/"

CLAIMS = (
    _claim(
        1490,
        "best-functions",
        "The best function errs on about 3 % of the test data in S1, and on about 47 % in S2, "
        "within half a point.",
        (
            Part("S1 from below", 2.5, _best_function("S1")),
            Part("S1 from above", _best_function("S1"), 3.5),
            Part("S2 from below", 46.5, _best_function("S2")),
            Part("S2 from above", _best_function("S2"), 47.5),
        ),
    ),
    _claim(
        1556,
        "previous-label-beats-adaboost",
        "With the previous label as context, CoS and DCZA err less than AdaBoost.",
        less(
            "sim_results/{one}/Z1/{name}/A1/error",
            "error_comp/AdaBoost/{name}/error",
            one=_BOTH,
            name=_SETS,
        ),
    ),
    _claim(
        1556,
        "previous-label-beats-sliding-windows",
        "With the previous label as context, CoS and DCZA err less than AdaBoost on a sliding "
        "window.",
        less(
            "sim_results/{one}/Z1/{name}/A1/error",
            "error_comp/SWA {window}/{name}/error",
            one=_BOTH,
            name=_SETS,
            window=("100", "1000"),
        ),
    ),
    _claim(
        1556,
        "previous-label-is-the-best-context",
        "Of the three contexts the previous label gives the fewest errors.",
        less(
            "sim_results/{one}/Z1/{name}/A1/error",
            _OF + "error",
            one=_BOTH,
            name=_SETS,
            context=("A2", "A3"),
        ),
    ),
    _claim(
        1558,
        "zooming-explores-more",
        "With the previous label as context, DCZA explores more than CoS.",
        less(
            "sim_results/CoS/Z1/{name}/A1/exploration",
            "sim_results/DCZA/Z1/{name}/A1/exploration",
            name=_SETS,
        ),
    ),
    _claim(
        1559,
        "memory-saves-exploration",
        "DCZA explores less where a new cell begins with what was seen in the old one.",
        less(
            "sim_results/DCZA inherit/Z1/{name}/{context}/exploration",
            "sim_results/DCZA/Z1/{name}/{context}/exploration",
            name=_SETS,
            context=_CONTEXTS,
        ),
    ),
    _claim(
        1559,
        "other-contexts-beat-adaboost",
        "In S1 CoS and DCZA err less than AdaBoost with src_bytes or time as context too.",
        less(
            "sim_results/{one}/Z1/S1/{context}/error",
            "error_comp/AdaBoost/S1/error",
            one=_BOTH,
            context=("A2", "A3"),
        ),
    ),
    _claim(
        1559,
        "a-short-window-can-be-better",
        "In S1, with src_bytes or time as context, AdaBoost on a window of 100 can err less than "
        "CoS and DCZA.",
        less(
            "error_comp/SWA 100/S1/error",
            "sim_results/{one}/Z1/S1/{context}/error",
            one=_BOTH,
            context=("A2", "A3"),
        ),
        is_some=True,
    ),
    _claim(
        1559,
        "a-short-window-is-only-slightly-better",
        "Where AdaBoost on a window of 100 errs less than CoS and DCZA in S1, it does so slightly: "
        "by less than 3 points.",
        less(
            Excess(
                (
                    key_of("error_comp/SWA 100/S1/error"),
                    key_of("sim_results/{one}/Z1/S1/{context}/error"),
                )
            ),
            _SLIGHTLY,
            one=_BOTH,
            context=("A2", "A3"),
        ),
    ),
    _claim(
        1559,
        "exploring-is-what-costs",
        "That is the price of training and exploring: in slots that exploit, CoS and DCZA make "
        "fewer errors than AdaBoost on a window of 100 does in all.",
        less(
            "sim_results/{one}/Z1/S1/{context}/exploitation error",
            "error_comp/SWA 100/S1/error",
            one=_BOTH,
            context=("A2", "A3"),
        ),
    ),
    _claim(
        1561,
        "a-feature-is-a-poor-context-without-good-functions",
        "In S2 src_bytes is the poorest of the three contexts.",
        less(
            "sim_results/{one}/Z1/S2/{context}/error",
            "sim_results/{one}/Z1/S2/A2/error",
            one=_BOTH,
            context=("A1", "A3"),
        ),
    ),
    _claim(
        1561,
        "a-feature-still-beats-the-best-function",
        "Even so, with src_bytes CoS and DCZA err less than the best function of S2.",
        less("sim_results/{one}/Z1/S2/A2/error", _best_function("S2"), one=_BOTH),
    ),
    _claim(
        1561,
        "context-beats-no-context",
        "With the parameters Z1 and any of the contexts, CoS and DCZA err less than CoS without "
        "context.",
        less(
            _OF + "error",
            "error_comp/CoS no context/{name}/error",
            one=_BOTH,
            name=_SETS,
            context=_CONTEXTS,
        ),
    ),
    _claim(
        1562,
        "the-theorems-parameters-are-poor",
        "With the parameters Z2, CoS and DCZA err more than with Z1.",
        less(
            "sim_results/{one}/Z1/S1/{context}/error",
            "sim_results/{one}/Z2/S1/{context}/error",
            one=_BOTH,
            context=_CONTEXTS,
        ),
    ),
    _claim(
        1562,
        "the-theorems-parameters-train-and-explore-more",
        "With Z2 more slots go into training and exploring than with Z1.",
        less(
            _spent("sim_results/{one}/Z1/S1/{context}"),
            _spent("sim_results/{one}/Z2/S1/{context}"),
            one=_BOTH,
            context=_CONTEXTS,
        ),
    ),
    _claim(
        1562,
        "a-longer-horizon-trains-and-explores-less",
        "With Z2 and a longer horizon, a smaller share of the slots trains and explores.",
        less(
            _spent(_HORIZON + "20000"),
            _spent(_HORIZON + "5000"),
            one=_BOTH,
            context=_CONTEXTS,
        ),
    ),
    _claim(
        1562,
        "a-longer-horizon-errs-less",
        "With Z2 and a longer horizon, the error is smaller.",
        less(_HORIZON + "20000/error", _HORIZON + "5000/error", one=_BOTH, context=_CONTEXTS),
    ),
    _claim(
        1622,
        "arrivals-at-one-learner-raise-training",
        "Where instances arrive at learner 1 alone, CoS trains more than where all receive them.",
        less(_COS_OF + "training", _ALONE + "training", name=_SETS, context=_CONTEXTS),
    ),
    _claim(
        1622,
        "arrivals-at-one-learner-raise-exploration",
        "Where instances arrive at learner 1 alone, CoS explores more too.",
        less(_COS_OF + "exploration", _ALONE + "exploration", name=_SETS, context=_CONTEXTS),
    ),
    _claim(
        1622,
        "arrivals-at-one-learner-raise-the-error",
        "Where instances arrive at learner 1 alone, CoS errs more.",
        less(_COS_OF + "error", _ALONE + "error", name=_SETS, context=_CONTEXTS),
    ),
    _claim(
        1622,
        "arrivals-at-one-learner-are-similar-for-zooming",
        "With DCZA it is similar: where instances arrive at learner 1 alone, it trains more and "
        "errs more.",
        less(
            "sim_results/DCZA/Z1/{name}/{context}/{quantity}",
            "sim_results2/DCZA/Z1/{name}/{context}/{quantity}",
            name=_SETS,
            context=_CONTEXTS,
            quantity=("training", "error"),
        ),
    ),
    _claim(
        1649,
        "global-weights-beat-a-learner-alone",
        "With time as context, an ensemble whose weights do not depend on the context errs less "
        "than CoS.",
        less(_WEIGHTS + "independent/{name}", "sim_results/CoS/Z1/{name}/A3/error", name=_SETS),
    ),
    _claim(
        1649,
        "global-weights-gain-a-fifth-and-a-half",
        "That gain is about 21 % of the error in S1 and 51 % in S2, within 5 points.",
        (
            Part("S1", Miss((_TIME_S1, key_of(_WEIGHTS + "independent/S1")), 21.0), _ABOUT),
            Part("S2", Miss((_TIME_S2, key_of(_WEIGHTS + "independent/S2")), 51.0), _ABOUT),
        ),
    ),
    _claim(
        1649,
        "weights-per-cell-are-worse-than-a-learner-alone",
        "With time as context, an ensemble with weights of their own in each cell errs more than "
        "CoS.",
        less("sim_results/CoS/Z1/{name}/A3/error", _WEIGHTS + "dependent/{name}", name=_SETS),
    ),
    _claim(
        1649,
        "weights-per-cell-learn-more-slowly",
        "Weights per cell learn more slowly than global ones, and so err more.",
        less(_WEIGHTS + "independent/{name}", _WEIGHTS + "dependent/{name}", name=_SETS),
    ),
    _claim(
        1690,
        "fewer-labels-more-errors",
        "The more rarely the label is seen, the more CoS and DCZA err.",
        grows("errorperc/{one}/{step}/error", _LABELS_SEEN, one=_BOTH),
    ),
    _claim(
        1690,
        "fewer-labels-more-exploration",
        "The more rarely the label is seen, the more slots train and explore.",
        grows(_spent("errorperc/{one}/{step}"), _LABELS_SEEN, one=_BOTH),
    ),
    _claim(
        1726,
        "a-worse-learner-raises-the-error",
        "Another learner whose functions are no better raises the error of learner 1.",
        grows("nlearn/{one}/{step}/error", "123", one=_BOTH),
    ),
    _claim(
        1726,
        "a-better-learner-lowers-the-error",
        "Another learner with better functions lowers the error of learner 1.",
        less("nlearn/{one}/4/error", "nlearn/{one}/3/error", one=_BOTH),
    ),
    _claim(
        1766,
        "dearer-peers-are-asked-less",
        "The dearer its peers, the more often learner 1 selects its own functions.",
        grows("callcost/{step}/selection/1", _PRICES),
    ),
    _claim(
        1766,
        "dearer-peers-mean-more-errors",
        "The dearer its peers, the more learner 1 errs.",
        grows("callcost/{step}/error", _PRICES),
    ),
    _claim(
        89,
        "peers-that-cost-more-than-they-bring-are-not-asked",
        "Sending data away pays only where the better label is worth more than its price: of the "
        "slots that exploit, more than 1 % go to peers that are free, and less at a price of 0.7.",
        (Part("free", 1.0, _asked("0")), Part("at 0.7", _asked("0.7"), 1.0)),
    ),
    _claim(
        1314,
        "time-as-context-follows-drift",
        "Time as context deals with drift: in S2, where no function stays good, CoS and DCZA err "
        "less than the best function.",
        less("sim_results/{one}/Z1/S2/A3/error", _best_function("S2"), one=_BOTH),
    ),
    _claim(
        1327,
        "context-alone-may-be-better",
        "To send the context without the data may give fewer errors than to send both.",
        less(_ONLY, _COS_OF + "error", name=_SETS, context=_CONTEXTS),
        is_some=True,
    ),
    _claim(
        1791,
        "context-alone-errs-more-with-good-functions",
        "In S1, with the previous label or time, to send the context alone gives more errors.",
        less(_COS_OF + "error", _ONLY, name=("S1",), context=("A1", "A3")),
    ),
    _claim(
        1791,
        "context-alone-errs-only-slightly-more",
        "In S1, with the previous label or time, those are slightly more: by less than 3 points.",
        less(
            Excess((key_of(_COS_OF + "error"), key_of(_ONLY))),
            _SLIGHTLY,
            name=("S1",),
            context=("A1", "A3"),
        ),
    ),
    _claim(
        1791,
        "a-feature-alone-is-better-than-with-the-data",
        "In S1, with src_bytes, to send the context alone gives fewer errors.",
        less(_ONLY, _COS_OF + "error", name=("S1",), context=("A2",)),
    ),
    _claim(
        1791,
        "context-alone-errs-much-without-good-functions",
        "In S2, to send the context alone gives very many errors: more than with the data, and "
        "over 20 %.",
        less(_COS_OF + "error", _ONLY, name=("S2",), context=_CONTEXTS, why="more")
        + less(_VERY_HIGH, _ONLY, name=("S2",), context=_CONTEXTS, why="very high"),
    ),
    _claim(
        1791,
        "context-alone-needs-good-functions",
        "To send the context alone gives more errors in S2 than in S1: without good functions a "
        "telling context is not enough.",
        less(
            "onlycontext/CoS/Z1/S1/{context}/error",
            "onlycontext/CoS/Z1/S2/{context}/error",
            context=_CONTEXTS,
        ),
    ),
    _claim(
        1792,
        "context-alone-is-similar-for-zooming",
        "With DCZA it is similar: in S2 to send the context alone gives more errors than to send "
        "the data too.",
        less(
            "sim_results/DCZA/Z1/S2/{context}/error",
            "onlycontext/DCZA/Z1/S2/{context}/error",
            context=_CONTEXTS,
        ),
    ),
)
