"""Plot of a monitor."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyg_glif._utils.optional import require
from pyg_glif.guarantees.betting import Array
from pyg_glif.monitoring._stream import Stream

if TYPE_CHECKING:
    from pyg_glif.monitoring.treatment_monitor import TreatmentMonitor

# Okabe and Ito's palette, safe for color blindness.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def plot_monitor(
    monitor: "TreatmentMonitor",
    moments: Mapping[str, Array],
    streams: Mapping[str, Stream],
) -> Any:
    """Means and intervals above, evidence below; drift beside them if it is tested."""
    matplotlib = require("matplotlib.figure", "TreatmentMonitor.plot", "plots")
    parts = {"disparity": [n for n in moments if not n.startswith("drift")]}
    drift = [n for n in moments if n.startswith("drift")]
    parts |= {"drift": drift} if drift else {}
    figure = matplotlib.Figure(figsize=(6.4 * len(parts), 5.6), layout="constrained")
    axes = figure.subplots(2, len(parts), squeeze=False, sharex="col")
    for column, (title, names) in enumerate(parts.items()):
        above, below = axes[:, column]
        for color, name in zip(_COLORS * len(names), names, strict=False):
            num, mean, low, high, log_capital = moments[name].T
            label = name.removeprefix("drift ")
            above.plot(num, mean, color=color, label=label)
            above.fill_between(num, low, high, color=color, alpha=0.15, linewidth=0)
            limit = streams[name].limit
            if title == "drift" or name == "all":
                above.axhline(limit, color=color, linestyle=":")
            if len(num):
                below.set_xscale("log")  # else the first samples fill the panel
            needed = -math.log(streams[name].level)
            below.plot(num, log_capital / needed, color=color)
            alarm_at = streams[name].alarm_at
            if alarm_at is not None:
                below.axvline(alarm_at, color=color, linestyle="--", linewidth=1)
        below.axhline(1.0, color="black", linestyle=":")
        above.set_title(_title(title, monitor), fontsize="medium")
        above.set_ylabel("mean" if title == "drift" else "mean disparity to neighbors")
        above.legend(fontsize="small")
        below.set_ylabel("evidence (1: alarm)")
        below.set_xlabel("people of the stream")
    return figure


def _title(part: str, monitor: "TreatmentMonitor") -> str:
    """Title of a panel, with its alarms."""
    names = [n for n in monitor.alarms if n.startswith("drift") == (part == "drift")]
    limits = {
        "disparity": f"allowed: {monitor.epsilon:g} (dotted)",
        "drift": "expected of people like the fitted: at most the dotted lines",
    }[part]
    alarms = f"alarm: {', '.join(names)}" if names else "no alarm"
    return f"{limits}\n{alarms}"
