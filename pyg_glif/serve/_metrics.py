"""Counters of the service, for Prometheus."""

import threading
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from pyg_glif.monitoring import TreatmentMonitor
from pyg_glif.serve._loaded_fit import Answer, LoadedFit

#: The type of the text that :meth:`Metrics.text` returns.
CONTENT_TYPE = CONTENT_TYPE_LATEST
# New samples over which the share of isolated ones is taken.
_WINDOW = 1000
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MOVED = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """Counters of one service; threads share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        shared: Any = {"namespace": "pyg_glif", "registry": self.registry}
        self._requests = Histogram(
            "request_seconds",
            "Time from the first byte of a request to the last of its response.",
            ["route", "method", "status"],
            buckets=_SECONDS,
            **shared,
        )
        self._batches = Histogram(
            "batch_requests",
            "Requests that were answered by one search.",
            buckets=[1, 2, 4, 8, 16, 32, 64, 128, 256],
            **shared,
        )
        self._samples = Counter("samples", "New samples.", **shared)
        self._isolated = Counter(
            "samples_isolated", "New samples without a neighbor.", **shared
        )
        self._share = Gauge(
            "isolated_share",
            f"Share of isolated ones in the last {_WINDOW} new samples.",
            **shared,
        )
        self._moved = Histogram(
            "movement", "How far outputs were moved.", buckets=_MOVED, **shared
        )
        self.waiting = Gauge("waiting_requests", "Requests in the queue.", **shared)
        self._reloads = Counter(
            "reloads", "New fits taken, or refused.", ["result"], **shared
        )
        self._fitted = Gauge("fitted_samples", "Samples of the fit.", **shared)
        self._loaded = Gauge(
            "fit_loaded_timestamp_seconds", "When the fit was loaded.", **shared
        )
        self._observer = lru_cache(1024)(self._requests.labels)
        self._lock = threading.Lock()
        self._last: deque[bool] = deque(maxlen=_WINDOW)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts a response."""
        self._observer(route, method, str(status)).observe(seconds)

    def batch(self, num_requests: int, answers: Sequence[Answer]) -> None:
        """Counts what one search answered."""
        self._batches.observe(num_requests)
        if not answers:
            return
        isolated = [flag for answer in answers for flag in answer.uncorrected]
        self._samples.inc(len(isolated))
        self._isolated.inc(sum(isolated))
        with self._lock:
            self._last.extend(isolated)
            self._share.set(sum(self._last) / len(self._last))
        for answer in answers:
            for moved in answer.moved:
                self._moved.observe(moved)

    def watch(self, monitor: TreatmentMonitor) -> None:
        """Shows the state of a monitor, as it is at the time of the request."""
        shared: Any = {"namespace": "pyg_glif", "registry": self.registry}
        for name, words, read in (
            ("samples", "Samples counted.", lambda: monitor.num),
            ("alarm", "1 after an alarm.", lambda: monitor.alarm),
            ("drift_alarm", "1 after one of drift.", lambda: monitor.drift_alarm),
            ("low", "Mean disparity, lower bound.", lambda: monitor.interval[0]),
            ("high", "Mean disparity, upper bound.", lambda: monitor.interval[1]),
        ):
            Gauge(f"monitor_{name}", words, **shared).set_function(read)
        self._unwatched = Counter(
            "monitor_missed",
            "Served samples that the monitor could not count.",
            **shared,
        )

    def unwatched(self, num_samples: int) -> None:
        """Counts samples that the monitor could not."""
        self._unwatched.inc(num_samples)

    def loaded(self, fit: LoadedFit, *, again: bool) -> None:
        """Notes the fit in use."""
        self._fitted.set(fit.num_samples)
        self._loaded.set(fit.loaded_at.timestamp())
        if again:
            self._reloads.labels("taken").inc()

    def refused(self) -> None:
        """Notes a fit that could not be loaded."""
        self._reloads.labels("refused").inc()

    def text(self) -> bytes:
        """All of it, in the form that Prometheus reads."""
        return bytes(generate_latest(self.registry))
