"""Watches how served people are treated beside their peers.

One class, and long for what it says about its arguments: checks, tests, the file and
the picture are in ``_people``, ``_stream``, ``_journal`` and ``_figure``.
"""

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
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
from pyg_glif.monitoring._plot import drawn
from pyg_glif.monitoring._records import Served, served_people
from pyg_glif.monitoring._state import FORMAT, State, checked_recent
from pyg_glif.monitoring._stream import Stream
from pyg_glif.monitoring.drift import DriftReference

if TYPE_CHECKING:
    from pyg_glif.fit import TransformInfo
    from pyg_glif.postprocessing import GLIFPostProcessor


class TreatmentMonitor:
    r"""Raises an alarm if served people are treated unlike their peers, at any time.

    Everybody who is served has a disparity to their peers in :math:`[0, 1]`
    (:meth:`Peers.disparity <pyg_glif.fit.Peers.disparity>`). As long as no
    person's expected disparity, given all before them, exceeds ``epsilon``, an alarm is
    ever raised with probability at most ``alpha``, however often anybody looks. If the
    expected disparity is one and the same number throughout, :attr:`interval` holds it
    at all times at once with probability at least ``1 - alpha``
    (:doc:`/guarantees`).

    Args:
        epsilon (float): The largest mean disparity that is all right, in
            :math:`(0, 1)`.
        alpha (float): Chance of a false alarm, ever. (default: :obj:`0.05`)
        groups (sequence, optional): Names of all groups to watch one by one as well.
            Everybody together and every group then have the level
            ``alpha / (1 + number of groups)``, for alarms and intervals, so that all of
            them hold at once. (default: none)
        drift (DriftReference, optional): What fitted people say about newcomers; the
            test whether newcomers are farther away than that has a level of its own,
            ``drift.alpha``. (default: :obj:`None`, no such test)
        threshold (float, optional): Where disparities are computed here, compares
            decisions instead of outputs. (default: :obj:`None`)
        journal (str or Path, optional): A file in which every id and the present state
            are kept, see below. (default: :obj:`None`)
        window (int): Without a journal, how many of the last ids are remembered.
            (default: :obj:`10000`)

    **Order.** People count in the order in which they come. Times are kept to be shown;
    clocks that go back are counted and warned of once
    (:class:`~pyg_glif.errors.ClockWarning`), and change nothing else.

    **Nobody twice, nobody lost.** An ``id`` names one served decision: a second call
    with it is not counted. Without a journal this holds among the last ``window`` ids,
    and a restart goes on from :meth:`state_dict`. With a journal it holds among all ids
    ever: the file takes up an id and what it changed in one transaction, so that a
    process killed at any moment leaves both or neither. Whoever calls :meth:`update`
    again until it returns is counted exactly once. After a power cut the last
    transactions may be missing, each as a whole. Several processes may share a journal.
    Memory stays constant; the file grows by about 30 bytes a person. Of an id it holds
    a hash of 16 bytes.

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
        """The monitor that a journal belongs to, with its settings.

        Args:
            journal (str or Path): A file that another monitor was given.
        """
        if not Path(journal).is_file():  # it would be made
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
        alarms = ", ".join(f"{name} at {at}" for name, at in self.alarms.items())
        return (
            f"{type(self).__name__}(epsilon={self.epsilon:g}, alpha={self.alpha:g}, "
            f"num={self.num}, alarms: {alarms or 'none'})"
        )

    def _fresh(self) -> dict[str, Stream]:
        """Streams that nobody has come through yet, by name."""
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
        """Counts one or more served people, and says how many of them were new.

        Either all people of a call are acceptable, or none of them is counted.

        Args:
            disparity (float or array-like): Disparity to their peers, from 0 to 1;
                :obj:`None` for somebody without peers, who counts for drift only.
            group (optional): Which of ``groups``, one per person; :obj:`None` if that
                is not known. (default: :obj:`None`)
            id (optional): A text or whole number that names the decision, one per
                person. (default: :obj:`None`, always counted)
            nearest (float or array-like, optional): Fair distance to the nearest peer,
                for drift. (default: :obj:`None`)
            time (optional): Seconds or a :class:`~datetime.datetime`, one per person.
                (default: :obj:`None`)
        """
        people = served_people(disparity, group, id, nearest, time, self.groups)
        touched: dict[bytes, None] = {}
        is_new: Callable[[bytes], bool] = partial(self._is_new, touched)
        if self._journal is not None:
            is_new = self._journal.is_new
        with self._changing() as draft:
            before = draft.tally["num"]
            self._count(draft, people, is_new)
            self._remember(touched)
        return int(draft.tally["num"] - before)

    def watch(
        self,
        y_fair: Any,
        info: "TransformInfo",
        *,
        group: Any = None,
        id: Any = None,
        time: Any = None,
    ) -> int:
        """Counts the people of a transform: the hook for whoever serves them.

        Args:
            y_fair (array-like): What ``transform`` returned.
            info (TransformInfo): Result of ``transform_info``.
            group (sequence, optional): See :meth:`update`.
            id (sequence, optional): See :meth:`update`.
            time (sequence, optional): See :meth:`update`.
        """
        if info.neighbors is None:
            msg = "'info' must have neighbors (got None)"
            raise ValueError(f"{msg}. Take it from 'transform_info'")
        found = info.neighbors.disparity(y_fair, self.threshold).tolist()
        gaps = [None if math.isnan(gap) else gap for gap in found]
        nearest = info.neighbors.nearest()
        return self.update(gaps, group, id, nearest=nearest, time=time)

    def observe(
        self,
        post: "GLIFPostProcessor",
        x: Any,
        y_hat: Any,
        *,
        group: Any = None,
        id: Any = None,
        time: Any = None,
    ) -> Any:
        """Serves people and counts them; returns what ``post.transform`` returns.

        Args:
            post (GLIFPostProcessor): The fit that serves.
            x (array-like): Features of newcomers.
            y_hat (array-like): Outputs of the model for them.
            group (sequence, optional): See :meth:`update`.
            id (sequence, optional): See :meth:`update`.
            time (sequence, optional): See :meth:`update`.
        """
        info = post.transform_info(x, y_hat)
        y_fair = info.value
        self.watch(y_fair, info, group=group, id=id, time=time)
        return y_fair

    def reset(self) -> None:
        """Starts again with nobody, after an alarm was looked into; ids stay known.

        The new run has a chance of ``alpha`` of its own.
        """
        with self._changing() as draft:
            draft.restart(self._fresh())

    @property
    def num(self) -> int:
        """People counted, those without peers included."""
        return int(self._state.tally["num"])

    @property
    def alarm(self) -> bool:
        """Whether mean disparity was found above ``epsilon``, of all or of a group."""
        return any(not name.startswith("drift") for name in self.alarms)

    @property
    def drift_alarm(self) -> bool:
        """Whether newcomers were found to be farther away than fitted people."""
        return any(name.startswith("drift") for name in self.alarms)

    @property
    def alarms(self) -> dict[str, int]:
        """What raised an alarm, and after how many people of its stream."""
        streams = self._state.streams.items()
        found = {name: stream.alarm_at for name, stream in streams}
        return {name: at for name, at in found.items() if at is not None}

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds for the mean disparity of everybody, valid at all times at once."""
        return self._state.streams["all"].interval

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The same for everybody and every group, all of them at once."""
        streams = self._state.streams.items()
        return {n: s.interval for n, s in streams if not n.startswith("drift")}

    def to_dict(self) -> dict[str, Any]:
        """What is known by now, as plain data, ready for JSON."""
        state = self._state
        streams = {name: one.to_dict() for name, one in state.streams.items()}
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
        moments = {name: one.moments for name, one in streams.items()}
        return drawn(self, moments, streams)

    def state_dict(self) -> dict[str, Any]:
        """Everything that has to be kept to go on after a restart, but the journal."""
        with self._lock:
            streams = self._state.streams.items()
            return {
                "settings": self._settings(),
                "tally": dict(self._state.tally),
                "streams": {name: torch.from_numpy(one.state) for name, one in streams},
                "recent": [key.hex() for key in self._recent],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what :meth:`state_dict` returned, of a monitor like this one."""
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
        found = State(self._fresh())
        found.fill(state["tally"], streams)
        recent = checked_recent(state["recent"])
        with self._lock:
            self._state, self._recent = found, OrderedDict.fromkeys(recent)

    def refresh(self) -> None:
        """Takes over what other processes have written to the journal."""
        with self._changing():
            pass

    def close(self) -> None:
        """Closes the journal, if there is one."""
        if self._journal is not None:
            self._journal.close()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[State]:
        """A draft that becomes the state if all that is done to it succeeds.

        With a journal it starts from what is written there, and is written before it
        becomes the state.
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
        self, draft: State, people: list[Served], is_new: Callable[[bytes], bool]
    ) -> None:
        """Counts those not seen before."""
        tally = draft.tally
        for one in people:
            if one.key is not None and not is_new(one.key):
                tally["num_repeated"] += 1
                continue
            tally["num"] += 1
            tally["num_isolated"] += one.disparity is None
            self._clock(tally, one.time)
            for name, value in self._numbers(one).items():
                draft.step(name, value)

    def _numbers(self, one: Served) -> dict[str, float]:
        """What a person adds to which stream."""
        out = {}
        if one.disparity is not None:
            out["all"] = one.disparity
            if one.group is not None:
                out[f"group {one.group}"] = one.disparity
        if self.drift is not None:
            alone = one.disparity is None
            nearest = math.inf if alone and one.nearest is None else one.nearest
            if nearest is not None:
                alone = math.isinf(nearest)
                out["drift nearest"] = self.drift.scaled(nearest)
            out["drift isolated"] = float(alone)
        return out

    def _is_new(self, touched: dict[bytes, None], key: bytes) -> bool:
        """Whether an id is not among the last ones, nor among those of this call."""
        known = key in touched or key in self._recent
        touched.pop(key, None)
        touched[key] = None  # the latest comes last
        return not known

    def _remember(self, touched: Iterable[bytes]) -> None:
        """Keeps the last ids."""
        for key in touched:
            self._recent[key] = None
            self._recent.move_to_end(key)
        while len(self._recent) > self.window:
            self._recent.popitem(last=False)

    def _clock(self, tally: dict[str, Any], time: float | None) -> None:
        """Keeps the latest time; one that is earlier is counted."""
        if time is None:
            return
        last = tally["last_time"]
        if last is not None and time < last:
            if not tally["num_steps_back"]:
                msg = f"'time' went back by {last - time:g} seconds"
                msg = f"{msg}: people count in the order in which they come"
                warn_caller(msg, ClockWarning)
            tally["num_steps_back"] += 1
            return
        tally["last_time"] = time

    def _settings(self) -> dict[str, Any]:
        """What two monitors must agree on to share a state."""
        return {
            "format": FORMAT,
            "epsilon": self.epsilon,
            "alpha": self.alpha,
            "groups": list(self.groups),
            "drift": None if self.drift is None else self.drift.to_dict(),
            "threshold": self.threshold,
        }

    def _check_settings(self, name: str, given: Mapping[str, Any]) -> None:
        check_kind(f"{name} settings", given, Mapping)
        check_choice(f"{name} format", given.get("format"), (FORMAT,))
        for key, value in self._settings().items():
            if given.get(key) != value:
                msg = f"'{name}' must be of a monitor with {key}={value!r}"
                raise ValueError(f"{msg} (got {given.get(key)!r})")

    def _join(self, journal: Journal) -> None:
        """Goes on where a journal ends, or starts it."""
        with journal.transaction():
            known = journal.read("settings")
            if known is None:
                journal.write("settings", self._settings())
                self._state.moved.update(self._state.streams)
                journal.save(self._state)
            else:
                self._check_settings("journal", known)
                journal.load(self._state)
        self._journal = journal
