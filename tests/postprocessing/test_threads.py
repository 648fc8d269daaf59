"""Threads that share a post-processor: no call is lost, no reader sees two fits."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from pyg_glif.postprocessing import GLIFPostProcessor
from tests.postprocessing.people import EXACT, people

NUM = 6


def together(*work: Callable[[], Any]) -> None:
    """Runs calls that begin at the same moment; raises what they raise."""
    start, errors = threading.Barrier(len(work)), []

    def run(call: Callable[[], Any]) -> None:
        start.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_no_sample_is_lost() -> None:
    group = people(num_new=5 * NUM)
    parts = list(zip(group.x_new.split(5), group.y_new.split(5), strict=True))
    ids = [[5 * at + i for i in range(5)] for at in range(NUM)]
    post = GLIFPostProcessor(tau=0.9, theta=0.5, solver=EXACT)
    post.fit(group.x, group.y, ids=[f"f{i}" for i in range(60)])

    def add(at: int) -> Callable[[], Any]:
        return lambda: post.partial_fit(*parts[at], ids=ids[at])

    def leave(at: int) -> Callable[[], Any]:
        return lambda: post.forget([f"f{at}"])

    together(*(make(at) for at in range(NUM) for make in (add, leave)))
    assert set(post.ids_) == {
        *range(5 * NUM),
        *(f"f{i}" for i in range(NUM, 60)),
    }
    # What one thread makes of the same samples in the same order.
    alone = GLIFPostProcessor(tau=0.9, theta=0.5, solver=EXACT)
    alone.fit(post.x_, post.y_hat_)
    torch.testing.assert_close(post.y_fair_, alone.y_fair_, rtol=1e-9, atol=1e-9)


def test_only_one_of_several_first_calls_fits() -> None:
    group = people()
    post = GLIFPostProcessor(tau=0.9, theta=0.5)
    parts = zip(group.x.split(10), group.y.split(10), strict=True)
    together(*(lambda part=part: post.partial_fit(*part) for part in parts))
    assert len(post.x_) == 60


def test_readers_see_one_fit() -> None:
    """Two fits with other columns: whoever mixes them reads columns of the other."""
    random = np.random.default_rng(0)
    values, y = random.normal(size=(40, 2)), random.random(40)
    frames = [pd.DataFrame(values, columns=list(names)) for names in ("ab", "ba")]
    fits = [GLIFPostProcessor(tau=1.0, theta=0.5).fit(frame, y) for frame in frames]
    new = pd.DataFrame(random.normal(size=(5, 2)), columns=["a", "b"])
    wanted = [fit.transform(new, y[:5]) for fit in fits]
    post = GLIFPostProcessor(tau=1.0, theta=0.5).fit(frames[0], y)
    done = threading.Event()

    def change() -> None:
        for at in range(40):
            post.fit(frames[at % 2], y)
        done.set()

    def read() -> None:
        while not done.is_set():
            found = post.transform(new, y[:5])
            assert any(np.array_equal(found, one) for one in wanted)

    together(change, read, read)
