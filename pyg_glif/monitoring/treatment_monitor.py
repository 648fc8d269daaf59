"""Sequential test of disparities between served samples and their neighbors.

Checks of input, the test of one stream, the file and the plot have modules of their
own: ``_records``, ``_stream``, ``_journal`` and ``_plot``.
"""

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pyg_glif._utils.json import plain
from pyg_glif._utils.runtime import Lock
from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_kind,
    check_scalar,
    check_tensor,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.errors import ClockWarning
from pyg_glif.monitoring._journal import Journal
from pyg_glif.monitoring._plot import plot_monitor
from pyg_glif.monitoring._records import ServedSample, served_samples
from pyg_glif.monitoring._state import FORMAT, State, checked_recent
from pyg_glif.monitoring._stream import Stream
from pyg_glif.monitoring.drift import DriftReference

if TYPE_CHECKING:
    from pyg_glif.fit import TransformInfo
    from pyg_glif.postprocessing import GLIFPostProcessor


class TreatmentMonitor:
    r"""Alarm for disparities between served samples and their neighbors, at any time.

    Each served sample has a disparity to its neighbors in :math:`[0, 1]`
    (:meth:`FittedNeighbors.disparity <pyg_glif.fit.FittedNeighbors.disparity>`). As
    long as no expected disparity, given all samples before, exceeds ``epsilon``, an
    alarm is ever raised with probability at most ``alpha``, however often it is looked
    at. If the expected disparity is constant, :attr:`interval` holds it at all times at
    once with probability at least ``1 - alpha`` (:doc:`/guarantees`).

    Args:
        epsilon (float): The largest acceptable mean disparity, in :math:`(0, 1)`.
        alpha (float): Chance of a false alarm, ever. (default: :obj:`0.05`)
        groups (sequence, optional): Names of all groups that are tested one by one as
            well. All samples together and every group then have the level
            ``alpha / (1 + number of groups)``, for alarms and intervals, so that all
            hold at once. (default: none)
        drift (DriftReference, optional): Expected distances of new samples. The test
            whether they are farther away has a level of its own, ``drift.alpha``.
            (default: :obj:`None`, no such test)
        threshold (float, optional): Compares decisions instead of outputs where
            disparities are computed here. (default: :obj:`None`)
        journal (str or Path, optional): A file for all ids and the present state, see
            below. (default: :obj:`None`)
        window (int): Without a journal, number of last ids that are kept.
            (default: :obj:`10000`)

    **Order.** Samples count in the order in which they come. Times are for display;
    clocks that go back are counted and warned of once
    (:class:`~pyg_glif.errors.ClockWarning`), and change nothing else.

    **Exactly once.** An ``id`` names one served decision: a second call with it is not
    counted. Without a journal this holds among the last ``window`` ids, and a restart
    goes on from :meth:`state_dict`. With a journal it holds among all ids ever: the
    file takes an id and its effect in one transaction, so that a process killed at any
    moment leaves both or neither, and calling :meth:`update` again until it returns
    counts exactly once. After a power cut the last transactions may be missing, each
    as a whole. Several processes may share a journal. Memory stays constant; the file
    grows by about 30 bytes a sample and holds a hash of 16 bytes of each id.

    Example:
        >>> monitor = TreatmentMonitor(epsilon=0.05)
        >>> for k in range(200):
        ...     _ = monitor.update(0.3 if k % 2 else 0.0, id=k)
        >>> monitor
        TreatmentMonitor(epsilon=0.05, alpha=0.05, num=200, alarms: all at 22)
        >>> [round(end, 3) for end in monitor.interval]
        [0.114, 0.189]
        >>> monitor.update(0.3, id=7)  # seen already
        0
    """

    def __init__(
        self,
        epsilon: float,
        alpha: float = 0.05,
        *,
        groups: Sequence[Any] = (),
        drift: DriftReference | None = None,
        threshold: float | None = None,
        journal: str | PathLike[str] | None = None,
        window: int = 10_000,
    ) -> None:
        self.epsilon = check_scalar("epsilon", epsilon, above=0.0, below=1.0)
        self.alpha = check_scalar("alpha", alpha, above=0.0, below=1.0)
        if isinstance(groups, str):
            raise TypeError(f"'groups' must be a sequence of names (got {groups!r})")
        self.groups = tuple(str(group) for group in groups)
        if len(set(self.groups)) < len(self.groups):
            raise ValueError(f"'groups' must be different (got {list(self.groups)})")
        if drift is not None:
            check_kind("drift", drift, DriftReference)
        self.drift = drift
        if threshold is not None:
            threshold = check_scalar("threshold", threshold)
        self.threshold = threshold
        self.window = check_count("window", window)
        self._lock = Lock()
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        #: Replaced as a whole, never changed: see :meth:`_changing`.
        self._state = State(self._fresh())
        self._journal: Journal | None = None
        if journal is not None:
            self._join(Journal(journal))

    @classmethod
    def open(cls, journal: str | PathLike[str]) -> "TreatmentMonitor":
        """The monitor of a journal, with its settings."""
        if not Path(journal).is_file():  # SQLite would create it
            raise ValueError(f"'{journal}' must be the journal of a monitor (got none)")
        file = Journal(journal)
        with file.transaction():
            known = file.read("settings")
            with file.content():
                check_kind("settings", known, dict)
                check_choice("format", known.pop("format", None), (FORMAT,))
                if known["drift"] is not None:
                    known["drift"] = DriftReference(**known["drift"])
                monitor = cls(**known)
        monitor._join(file)
        return monitor

    def __repr__(self) -> str:
        alarms = ", ".join(f"{name} at {num}" for name, num in self.alarms.items())
        return (
            f"{type(self).__name__}(epsilon={self.epsilon:g}, alpha={self.alpha:g}, "
            f"num={self.num}, alarms: {alarms or 'none'})"
        )

    def _fresh(self) -> dict[str, Stream]:
        """Empty streams by name."""
        level = self.alpha / (1 + len(self.groups))
        out = {"all": Stream(self.epsilon, level)}
        for group in self.groups:
            out[f"group {group}"] = Stream(self.epsilon, level)
        if self.drift is not None:
            limits = {"isolated": self.drift.isolated, "nearest": self.drift.nearest}
            for name, limit in limits.items():
                if 0.0 < limit < 1.0:  # a bound of 1 cannot be exceeded
                    out[f"drift {name}"] = Stream(limit, self.drift.alpha / 4.0)
        return out

    def update(
        self,
        disparity: Any,
        group: Any = None,
        id: Any = None,
        *,
        nearest: Any = None,
        time: Any = None,
    ) -> int:
        """Counts served samples and returns the number of new ones.

        Either all samples of a call are acceptable, or none of them is counted.

        Args:
            disparity (float or array-like): Disparity to the neighbors, from 0 to 1;
                :obj:`None` for an isolated sample, which counts for drift only.
            group (optional): One of ``groups`` per sample; :obj:`None` if unknown.
                (default: :obj:`None`)
            id (optional): A text or whole number per sample that names the decision.
                (default: :obj:`None`, always counted)
            nearest (float or array-like, optional): Fair distance to the nearest
                neighbor, for drift. (default: :obj:`None`)
            time (optional): Seconds or a :class:`~datetime.datetime` per sample.
                (default: :obj:`None`)
        """
        samples = served_samples(disparity, group, id, nearest, time, self.groups)
        latest: dict[bytes, None] = {}  # ids of this call, the latest last

        def is_new(key: bytes) -> bool:
            is_known = key in latest or key in self._recent
            latest.pop(key, None)
            latest[key] = None
            return not is_known

        if self._journal is not None:
            is_new = self._journal.is_new
        with self._changing() as draft:
            before = draft.tally["num"]
            self._count(draft, samples, is_new)
            for key in latest:
                self._recent[key] = None
                self._recent.move_to_end(key)
            while len(self._recent) > self.window:
                self._recent.popitem(last=False)
        return int(draft.tally["num"] - before)

    def watch(self, y_fair: Any, info: "TransformInfo", **options: Any) -> int:
        """Counts transformed samples: the hook for a service.

        Args:
            y_fair (array-like): Outputs that were served.
            info (TransformInfo): Result of ``transform_info``.
            **options: ``group``, ``id`` and ``time`` of :meth:`update`.
        """
        if info.neighbors is None:
            msg = "'info' must have neighbors (got None)"
            raise ValueError(f"{msg}. Take it from 'transform_info'")
        disparity = info.neighbors.disparity(y_fair, self.threshold).tolist()
        gaps = [None if math.isnan(gap) else gap for gap in disparity]
        return self.update(gaps, nearest=info.neighbors.nearest(), **options)

    def observe(
        self, post: "GLIFPostProcessor", x: Any, y_hat: Any, **options: Any
    ) -> Any:
        """Transforms new samples and counts them; returns the outputs.

        Args:
            post (GLIFPostProcessor): The fit that serves.
            x (array-like): Features of new samples.
            y_hat (array-like): Outputs of the model for them.
            **options: ``group``, ``id`` and ``time`` of :meth:`update`.
        """
        info = post.transform_info(x, y_hat)
        self.watch(info.value, info, **options)
        return info.value

    def reset(self) -> None:
        """Starts again from zero, after an alarm was looked into; ids stay known.

        The new run has a chance of ``alpha`` of its own.
        """
        with self._changing() as draft:
            draft.restart(self._fresh())

    @property
    def num(self) -> int:
        """Number of counted samples, isolated ones included."""
        return int(self._state.tally["num"])

    @property
    def alarm(self) -> bool:
        """Whether the mean disparity of all or of a group exceeds ``epsilon``."""
        return any(not name.startswith("drift") for name in self.alarms)

    @property
    def drift_alarm(self) -> bool:
        """Whether new samples are farther away than fitted ones."""
        return any(name.startswith("drift") for name in self.alarms)

    @property
    def alarms(self) -> dict[str, int]:
        """Streams with an alarm, and their number of samples when it was raised."""
        numbers = {name: s.alarm_at for name, s in self._state.streams.items()}
        return {name: num for name, num in numbers.items() if num is not None}

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds for the mean disparity of all samples, valid at all times at once."""
        return self._state.streams["all"].interval

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Bounds for all samples and for every group, all of them at once."""
        streams = self._state.streams.items()
        return {n: s.interval for n, s in streams if not n.startswith("drift")}

    def to_dict(self) -> dict[str, Any]:
        """Present results as plain data, ready for JSON."""
        state = self._state
        streams = {name: s.to_dict() for name, s in state.streams.items()}
        tally = {k: v for k, v in state.tally.items() if k != "version"}
        out: dict[str, Any] = plain(
            {
                "schema_version": 1,
                "epsilon": self.epsilon,
                "alpha": self.alpha,
                "alarm": self.alarm,
                "drift_alarm": self.drift_alarm,
                **tally,
                "drift": None if self.drift is None else self.drift.to_dict(),
                "streams": streams,
            }
        )
        return out

    def plot(self) -> Any:
        """A matplotlib figure: means with their intervals, and the evidence."""
        streams = self._state.streams
        moments = {name: stream.moments for name, stream in streams.items()}
        return plot_monitor(self, moments, streams)

    def state_dict(self) -> dict[str, Any]:
        """State to go on from after a restart, without the journal."""
        with self._lock:
            streams = self._state.streams.items()
            return {
                "settings": self._settings(),
                "tally": dict(self._state.tally),
                "streams": {name: torch.from_numpy(s.state) for name, s in streams},
                "recent": [key.hex() for key in self._recent],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from the :meth:`state_dict` of a monitor with the same settings."""
        if self._journal is not None:
            msg = "'load_state_dict' must not be called with a journal"
            raise ValueError(f"{msg} (got {self._journal.path!r}), which has the state")
        check_kind("state", state, Mapping)
        missing = {"settings", "streams", "tally", "recent"} - set(state)
        if missing:
            msg = "'state' must be what 'state_dict' returned"
            raise ValueError(f"{msg} (got one without '{min(missing)}')")
        self._check_settings("state", state["settings"])
        check_kind("state streams", state["streams"], Mapping)
        streams = {
            name: check_tensor(f"state streams['{name}']", value).double().numpy()
            for name, value in state["streams"].items()
        }
        restored = State(self._fresh())
        restored.fill(state["tally"], streams)
        recent = checked_recent(state["recent"])
        with self._lock:
            self._state, self._recent = restored, OrderedDict.fromkeys(recent)

    def refresh(self) -> None:
        """Reads what other processes have written to the journal."""
        with self._changing():
            pass

    def close(self) -> None:
        """Closes the journal, if there is one."""
        if self._journal is not None:
            self._journal.close()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[State]:
        """A draft that becomes the state unless an error is raised.

        With a journal it starts from the file, and is written before it becomes the
        state.
        """
        with self._lock:
            draft = self._state.copy()
            if self._journal is None:
                yield draft
            else:
                with self._journal.transaction():
                    self._journal.load(draft)
                    before = dict(draft.tally)
                    yield draft
                    if draft.tally != before:
                        self._journal.save(draft)
            self._state = draft

    def _count(
        self, draft: State, samples: list[ServedSample], is_new: Callable[[bytes], bool]
    ) -> None:
        """Counts samples that were not seen before."""
        for sample in samples:
            if sample.key is not None and not is_new(sample.key):
                draft.tally["num_repeated"] += 1
                continue
            draft.tally["num"] += 1
            draft.tally["num_isolated"] += sample.disparity is None
            if sample.time is not None:
                _set_clock(draft.tally, sample.time)
            if sample.disparity is not None:
                draft.step("all", sample.disparity)
                if sample.group is not None:
                    draft.step(f"group {sample.group}", sample.disparity)
            if self.drift is not None:
                is_isolated, nearest = sample.disparity is None, sample.nearest
                if is_isolated and nearest is None:
                    nearest = math.inf
                if nearest is not None:
                    is_isolated = math.isinf(nearest)
                    draft.step("drift nearest", self.drift.scaled(nearest))
                draft.step("drift isolated", float(is_isolated))

    def _settings(self) -> dict[str, Any]:
        """Settings that two monitors with one state share."""
        return {
            "format": FORMAT,
            "epsilon": self.epsilon,
            "alpha": self.alpha,
            "groups": list(self.groups),
            "drift": None if self.drift is None else self.drift.to_dict(),
            "threshold": self.threshold,
        }

    def _check_settings(self, name: str, settings: Mapping[str, Any]) -> None:
        check_kind(f"{name} settings", settings, Mapping)
        check_choice(f"{name} format", settings.get("format"), (FORMAT,))
        for key, value in self._settings().items():
            if settings.get(key) != value:
                msg = f"'{name}' must be of a monitor with {key}={value!r}"
                raise ValueError(f"{msg} (got {settings.get(key)!r})")

    def _join(self, journal: Journal) -> None:
        """Goes on where a journal ends, or starts it."""
        with journal.transaction():
            known = journal.read("settings")
            if known is None:
                journal.write("settings", self._settings())
                self._state.changed.update(self._state.streams)
                journal.save(self._state)
            else:
                self._check_settings("journal", known)
                journal.load(self._state)
        self._journal = journal


def _set_clock(tally: dict[str, Any], time: float) -> None:
    """Keeps the latest time; an earlier one is counted."""
    last = tally["last_time"]
    if last is None or time >= last:
        tally["last_time"] = time
        return
    if not tally["num_steps_back"]:
        msg = f"'time' went back by {last - time:g} seconds"
        msg = f"{msg}: samples count in the order in which they come"
        warn_caller(msg, ClockWarning)
    tally["num_steps_back"] += 1
