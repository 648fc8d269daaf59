import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pyg_glif.serve._loaded_fit import identity
from tests.serve.live import Live, ask
from tests.serve.samples import LAM, Numbers

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGHUP"), reason="the signals of Unix are part of this"
)


class Load:
    """Clients that ask all the time, and what they were answered."""

    def __init__(self, live: Live, known: Numbers, clients: int = 6) -> None:
        self.answers: list[tuple[int, int, Any]] = []  # new sample, status, answer
        self.faults: list[Exception] = []
        self.done = threading.Event()
        bodies = known.bodies()
        self._threads = [
            threading.Thread(target=self._run, args=(live, bodies, k))
            for k in range(clients)
        ]

    def _run(self, live: Live, bodies: list[Any], start: int) -> None:
        connection = live.connect()
        turn = start
        try:
            while not self.done.is_set():
                who = turn % len(bodies)
                self.answers.append((who, *ask(connection, bodies[who])))
                turn += 1
        except Exception as fault:
            self.faults.append(fault)
        finally:
            connection.close()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for thread in self._threads:
            thread.join()


def test_a_file_that_keeps_size_and_time_is_another_if_it_was_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "fit"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    before = identity([path])
    assert identity([path]) == before
    time.sleep(0.05)  # so that the clock of the file system has moved on
    path.write_bytes(b"two")
    os.utime(path, (1, 1))
    assert identity([path]) != before


def test_a_new_fit_is_taken_under_load_and_no_request_is_dropped(
    fit: Path, known: Numbers, tmp_path: Path
) -> None:
    served, stronger, broken = (tmp_path / name for name in ("fit", "new", "broken"))
    shutil.copy(fit, served)
    known.save(stronger, lam=5 * LAM)
    broken.write_bytes(stronger.read_bytes()[:-100])
    with Live(served, "--reload-seconds", "0.05", "--show-people") as live:
        first = live.get("/v1/info")[1]["fit"]
        with Load(live, known) as load:
            live.until(lambda: len(load.answers) > 100)
            os.replace(stronger, served)  # as 'save' does
            live.until(lambda: live.get("/v1/info")[1]["fit"] != first)
            second = live.get("/v1/info")[1]["fit"]
            # A damaged file is refused, and the fit in use stays.
            os.replace(broken, served)
            live.until(lambda: live.get("/v1/info")[1]["reload_error"] is not None)
            assert live.get("/v1/info")[1]["fit"] == second
            # The signal has it read again, changed or not.
            shutil.copy(fit, tmp_path / "again")
            os.replace(tmp_path / "again", served)
            live.signal("SIGHUP")
            live.until(lambda: live.get("/v1/info")[1]["fit"] == first)
            count = len(load.answers)
            live.until(lambda: len(load.answers) > count + 100)
        assert load.faults == []
        assert {status for _, status, _ in load.answers} == {200}
        # All samples got what the fit that answered them gives.
        wanted = {first: known.corrected(), second: known.corrected(5 * LAM)}
        for who, _, answer in load.answers:
            assert answer["y_fair"][0] == pytest.approx(wanted[answer["fit"]][who])
        assert {answer["fit"] for _, _, answer in load.answers} == {first, second}
        # It ends in peace, although connections are open.
        idle = live.connect()
        assert ask(idle, known.bodies()[0])[0] == 200
        live.signal("SIGTERM")
        assert live.process.wait(30) == 0
        idle.close()
    assert any("refused" in line for line in live.log)
