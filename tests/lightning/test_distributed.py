"""Two processes with loaders of their own, over gloo on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from tests.lightning import two_processes

pytestmark = [pytest.mark.lightning, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two processes has logged."""
    folder = tmp_path_factory.mktemp("processes")
    surroundings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    # A process that waits for the other for ever is what these tests are about.
    subprocess.run(
        [sys.executable, two_processes.__file__, str(folder)],
        cwd=ROOT,
        env=surroundings,
        timeout=300,
        check=True,
        capture_output=True,
    )
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", two_processes.CASES)
def test_two_processes_log_what_one_would(
    case: str, seen: list[dict[str, Any]]
) -> None:
    x, y = two_processes.make_rows(case)
    rows = np.concatenate([np.arange(*part) for part in two_processes.CASES[case][:2]])
    rows = rows[y.numpy()[rows] >= 0]
    expected = {}
    if len(rows):
        with torch.no_grad():
            F = two_processes.make_model()(x).double().numpy()[rows]
        truth, decision = y.numpy()[rows], F.argmax(1)
        log_prob = F - np.log(np.exp(F).sum(1, keepdims=True))
        occur = np.unique(truth)
        recall = [(decision == truth)[truth == c].mean() for c in occur]
        expected = {
            "val_cross_entropy": -log_prob[np.arange(len(F)), truth].mean(),
            "val_accuracy": accuracy_score(truth, decision),
            "val_balanced_accuracy": np.mean(recall),
        }
        if set(decision) <= set(occur):
            peer = balanced_accuracy_score(truth, decision)
            assert np.mean(recall) == pytest.approx(peer)
    for process in seen:
        assert process[case] == pytest.approx(expected, rel=1e-6)


def test_a_process_without_labels_trains_along(seen: list[dict[str, Any]]) -> None:
    first, second = (process["weights"] for process in seen)
    assert first == second
    start = [p.flatten().tolist() for p in two_processes.make_model().parameters()]
    assert first != start
