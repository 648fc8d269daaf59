"""Requests that wait together are answered together, and none is left out."""

import asyncio

import pytest
import torch

from pyg_glif.serve._batching import MAX_BATCH, Batcher
from pyg_glif.serve._loaded_fit import Answer


class Doubled:
    """A fit whose answers are told from the questions; refuses what is negative."""

    def correct(self, x, y, watch=None):
        if bool((y < 0).any()):
            raise ValueError("'y_hat' must be non-negative")
        return Answer((2 * y).tolist(), [0.0] * len(x), [False] * len(x), {})


def asked(sizes, fits=None, value=1.0):
    """Answers to requests of some sizes that come at once, and sizes of batches."""
    batches = []
    fits = [Doubled()] * len(sizes) if fits is None else fits

    async def run():
        batcher = Batcher(lambda num, answers: batches.append(num))
        batcher.start()
        jobs = [
            asyncio.ensure_future(
                batcher.correct(fit, torch.zeros(size, 1), torch.full((size,), value))
            )
            for fit, size in zip(fits, sizes, strict=True)
        ]
        await asyncio.sleep(0)  # all of them have asked
        await batcher.stop()
        assert not batcher.is_alive
        return await asyncio.gather(*jobs, return_exceptions=True)

    return asyncio.run(run()), batches


def test_requests_of_one_round_are_one_batch():
    answers, batches = asked([1] * 50)
    assert batches == [50]
    assert [one.y_fair for one in answers] == [[2.0]] * 50


def test_a_batch_has_no_more_rows_than_it_may():
    answers, batches = asked([100] * 5)
    assert batches == [2, 2, 1]
    assert [len(one.y_fair) for one in answers] == [100] * 5


def test_a_batch_is_of_one_fit():
    first, second = Doubled(), Doubled()
    _, batches = asked([1] * 5, [first, first, second, second, first])
    assert batches == [2, 2, 1]


def test_large_requests_have_a_thread_of_their_own():
    answers, batches = asked([MAX_BATCH + 1, 1, MAX_BATCH + 2])
    assert sorted(batches) == [1, 1, 1]
    assert [len(one.y_fair) for one in answers] == [MAX_BATCH + 1, 1, MAX_BATCH + 2]


def test_stopping_answers_what_waits():
    answers, _ = asked([200] * 10)
    assert [len(one.y_fair) for one in answers] == [200] * 10


def test_errors_reach_their_requests():
    answers, _ = asked([1, 1], value=-1.0)
    for error in answers:
        with pytest.raises(ValueError, match="non-negative"):
            raise error
