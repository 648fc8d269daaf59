"""A process that is killed at any moment loses no sample and counts none twice."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_glif.monitoring import TreatmentMonitor

# Serves all samples from the first on, as a queue does without acknowledgements, and
# writes down which of them were acknowledged.
SERVER = """
import sys
import numpy as np
from pyg_glif.monitoring import TreatmentMonitor

journal, acknowledged, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
values = np.random.default_rng(0).beta(0.6, 3.4, size=600)
monitor = TreatmentMonitor(0.1, groups=["a", "b"], journal=journal)
with open(acknowledged, "a") as file:
    for first in range(0, 600, size):
        rows = range(first, min(first + size, 600))
        groups = ["ab"[row % 2] for row in rows]
        monitor.update(values[rows.start : rows.stop], groups, rows)
        file.write(f"{rows.stop}\\n")
        file.flush()
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("size", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path: Path, size: int) -> None:
    journal, acknowledged = tmp_path / "monitor.db", tmp_path / "acknowledged"
    acknowledged.touch()
    command = [sys.executable, "-c", SERVER, str(journal), str(acknowledged), str(size)]
    rng, kills = random.Random(size), 0
    while True:
        before = acknowledged.stat().st_size
        server = subprocess.Popen(command, stderr=subprocess.PIPE)
        # The moment is counted from the first sample.
        while server.poll() is None and acknowledged.stat().st_size == before:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.05)
        if kills < 3:
            server.send_signal(signal.SIGKILL)
        _, error = server.communicate(timeout=60)
        if server.returncode == 0:
            break
        assert server.returncode == -signal.SIGKILL, error.decode()
        kills += 1
        # All acknowledged samples count, and none twice.
        numbers = [int(line) for line in acknowledged.read_text().split()]
        monitor = TreatmentMonitor.open(journal)
        assert max(numbers) <= monitor.num <= max(numbers) + size
        monitor.close()
    assert kills >= 2
    # As if nothing had happened, to the last bit.
    values = np.random.default_rng(0).beta(0.6, 3.4, size=600)
    expected = TreatmentMonitor(0.1, groups=["a", "b"])
    expected.update(values, ["ab"[row % 2] for row in range(600)])
    found = TreatmentMonitor.open(journal)
    assert found.num == 600
    for name, state in expected.state_dict()["streams"].items():
        assert torch.equal(state, found.state_dict()["streams"][name])
    found.close()


def test_two_processes_share_a_journal(tmp_path: Path) -> None:
    journal = tmp_path / "monitor.db"
    TreatmentMonitor(0.1, groups=["a", "b"], journal=journal).close()
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(journal), str(tmp_path / f"{k}"), "5"],
            stderr=subprocess.PIPE,
        )
        for k in range(2)
    ]
    for server in servers:
        _, error = server.communicate(timeout=120)
        assert server.returncode == 0, error.decode()
    found = TreatmentMonitor.open(journal)
    shown = found.to_dict()
    assert (found.num, shown["num_repeated"]) == (600, 600)
    total = np.random.default_rng(0).beta(0.6, 3.4, size=600).mean()
    assert shown["streams"]["all"]["mean"] == pytest.approx(total)
    found.close()
