import threading

import pytest
import torch

from pyg_glif._utils.runtime import Crew

CPU = torch.device("cpu")


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_each_thread_of_a_crew_has_one_of_torchs():
    together = threading.Barrier(3)

    def work(piece):
        together.wait(60)  # no thread does the work of two
        return piece, torch.get_num_threads(), torch.is_grad_enabled()

    with Crew(CPU, 5) as crew:
        assert crew.map(work, range(3)) == [(0, 1, False), (1, 1, False), (2, 1, False)]
        assert torch.get_num_threads() == 3
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [3]


@pytest.mark.usefixtures("three_threads")
def test_a_crew_keeps_the_order_and_raises_what_went_wrong():
    with Crew(CPU, 2) as crew:
        assert crew.map(lambda piece: piece * piece, range(9)) == [
            piece * piece for piece in range(9)
        ]
        with pytest.raises(ZeroDivisionError):
            crew.map(lambda piece: 1 / piece, [1, 0])


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("inference", [True, False])
def test_a_crew_writes_to_what_the_caller_made(inference):
    with torch.inference_mode(inference), Crew(CPU, 3) as crew:
        total = torch.zeros(4)
        crew.map(lambda at: total[at].fill_(at), range(4))
        assert total.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.usefixtures("three_threads")
def test_one_piece_needs_no_crew():
    with Crew(CPU, 1) as crew:
        assert crew.map(lambda _: threading.current_thread(), [0]) == [
            threading.current_thread()
        ]


@pytest.mark.usefixtures("three_threads")
def test_a_crew_that_cannot_start_does_not_wait(monkeypatch):
    start, started = threading.Thread.start, []

    def second_fails(self):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(RuntimeError, match="new thread"), Crew(CPU, 3):
        pass
