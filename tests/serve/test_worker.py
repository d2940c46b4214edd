"""One thread that computes: in order, within limits, for nobody who has left."""

import asyncio
import threading
from typing import Any

import pytest

from tests import models
from tests.waiting import GIVE_UP, Clock, until
from tokenlight.common.progress import on_forward_pass, report_forward_pass
from tokenlight.model.capture import Capture
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.serve import worker
from tokenlight.serve.session import Cache, size_of
from tokenlight.serve.worker import Busy, Ending, Progress, Waiting, WaitingLine
from tokenlight.text.batch import Batch


@pytest.fixture
def line():
    made = WaitingLine(room=3, seconds=60.0)
    yield made
    made.close()


class Slow:
    """Work of any number of passes that can be watched and released."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def __call__(self, say: Any) -> str:
        self.begun.set()
        while not self.released.wait(0.002):
            report_forward_pass()
        return "slow"


def answer(line: WaitingLine, compute: Any) -> Ending[Any]:
    async def run() -> Ending[Any]:
        return await line.submit(compute).ending()

    return asyncio.run(run())


def test_an_answer_comes_back(line):
    assert answer(line, lambda say: 7) == Ending(answer=7)
    assert line.idle


def test_what_is_said_is_heard_in_order(line):
    def compute(say):
        for done in range(5):
            say(Progress("m", done, 5))

    async def run():
        return [said async for said in line.submit(compute).listen()]

    assert asyncio.run(run()) == [*(Progress("m", done, 5) for done in range(5)), Ending()]


def test_requests_are_served_in_order_and_know_their_place(line):
    slow, order = Slow(), []

    async def run():
        first = line.submit(slow)
        await asyncio.to_thread(slow.begun.wait)
        others = [line.submit(lambda say, i=i: order.append(i)) for i in range(3)]
        slow.released.set()
        heard = [[said async for said in ticket.listen()] for ticket in others]
        await first.ending()
        return heard

    heard = asyncio.run(run())
    assert order == [0, 1, 2]
    assert [said.ahead for said in heard[2] if isinstance(said, Waiting)][-1] == 1
    assert all(isinstance(said, Waiting) for said in heard[2][:-1])
    places = [said.ahead for said in heard[2][:-1]]
    assert places == sorted(places, reverse=True)


def test_a_full_line_is_told(line):
    slow = Slow()

    async def run():
        first = line.submit(slow)
        await asyncio.to_thread(slow.begun.wait)
        waiting = [line.submit(lambda say: 1) for _ in range(3)]
        with pytest.raises(Busy, match="3 requests are waiting"):
            line.submit(lambda say: 1)
        slow.released.set()
        assert [(await ticket.ending()).answer for ticket in [first, *waiting]] == ["slow", 1, 1, 1]
        assert (await line.submit(lambda say: 2).ending()).answer == 2

    asyncio.run(run())


def test_who_leaves_while_waiting_is_never_served(line):
    slow, served = Slow(), []

    async def run():
        first = line.submit(slow)
        await asyncio.to_thread(slow.begun.wait)
        leaving, staying = (line.submit(lambda say, i=i: served.append(i)) for i in range(2))
        leaving.abandon()
        slow.released.set()
        heard = [said async for said in staying.listen()]
        assert Waiting(1) in heard[1:]  # the place of the one who left
        await first.ending()

    asyncio.run(run())
    assert served == [1]


def test_who_leaves_stops_the_work_at_the_next_pass(line):
    slow = Slow()

    async def run():
        ticket = line.submit(slow)
        await asyncio.to_thread(slow.begun.wait)
        ticket.abandon()

    asyncio.run(run())
    until(lambda: line.idle)
    assert not slow.released.is_set()  # it would have gone on for ever
    assert answer(line, lambda say: 1).answer == 1


@pytest.fixture
def clock(monkeypatch):
    return Clock().watched_by(monkeypatch, worker.__name__)


def lasting(clock: Clock, seconds: float) -> Any:
    """Work of two passes."""

    def work(say: Any) -> str:
        report_forward_pass()
        clock.now += seconds
        report_forward_pass()
        return "done"

    return work


def test_work_that_takes_too_long_is_stopped_and_says_so(clock, line):
    problem = answer(line, lasting(clock, 61.0)).problem
    assert problem is not None
    assert problem.status == 504
    assert "longer than 60 s" in problem.message
    assert answer(line, lambda say: 1).answer == 1


def test_time_in_the_line_does_not_count(clock, line):
    async def run():
        tickets = [line.submit(lasting(clock, 59.0)) for _ in range(3)]
        return [await ticket.ending() for ticket in tickets]

    assert asyncio.run(run()) == [Ending(answer="done")] * 3


def test_errors_are_sentences_and_the_worker_lives_on(line, capsys):
    def wrong(say):
        raise ValueError("that cannot be")

    def broken(say):
        raise KeyError("secret")

    problem = answer(line, wrong).problem
    assert problem is not None
    assert (problem.status, problem.message) == (422, "that cannot be")
    problem = answer(line, broken).problem
    assert problem is not None
    assert problem.status == 500
    assert "secret" not in problem.message
    assert "secret" in capsys.readouterr().err
    assert answer(line, lambda say: 1).answer == 1


def test_closing_stops_the_work_and_tells_those_who_wait():
    line, slow = WaitingLine(), Slow()

    async def run():
        tickets = [line.submit(slow), line.submit(lambda say: 1)]
        await asyncio.to_thread(slow.begun.wait)
        line.close(patience=GIVE_UP)
        return [await ticket.ending() for ticket in tickets]

    problems = [ending.problem for ending in asyncio.run(run())]
    assert [problem and problem.status for problem in problems] == [503, 503]
    assert not line._thread.is_alive()

    async def late():
        with pytest.raises(Busy, match="stopping"):
            line.submit(lambda say: 1)

    asyncio.run(late())


# --- the bell at every forward pass ---------------------------------------------------------------------------------


def run_twin() -> None:
    ids = models.ids()
    InstrumentedModel(models.model("bert")).run(Batch(ids, ids.new_ones(ids.shape)), Capture())


def test_every_forward_pass_rings_for_all_who_listen():
    rung = []
    with on_forward_pass(lambda: rung.append("outer")):
        run_twin()
        with on_forward_pass(lambda: rung.append("inner")):
            run_twin()
    run_twin()
    assert rung == ["outer", "outer", "inner"]


def test_a_listener_can_stop_a_pass_and_is_gone_afterwards():
    def stop():
        raise InterruptedError

    with pytest.raises(InterruptedError), on_forward_pass(stop):
        run_twin()
    run_twin()


def test_other_threads_do_not_ring():
    rung = []
    with on_forward_pass(lambda: rung.append(1)):
        thread = threading.Thread(target=run_twin)
        thread.start()
        thread.join()
    assert rung == []


# --- the cache ------------------------------------------------------------------------------------------------------


def test_the_cache_keeps_the_latest_up_to_its_size():
    each = size_of(("a", b"A" * 100))
    cache = Cache(limit=5 * each // 2)
    for key in "abc":
        cache.put(key, key.upper().encode() * 100)
    assert cache.get("a") is None
    assert cache.get("b") == b"B" * 100  # asked for: c is older now
    cache.put("d", b"D" * 100)
    assert [cache.get(key) for key in "abcd"] == [None, b"B" * 100, None, b"D" * 100]
    assert (cache.size, len(cache)) == (2 * each, 2)


def test_the_cache_counts_a_key_once_and_leaves_out_what_is_too_large():
    cache = Cache(limit=1000)
    cache.put("a", bytes(60))
    cache.put("a", bytes(70))
    assert (cache.get("a"), cache.size) == (bytes(70), size_of(("a", bytes(70))))
    cache.put("b", bytes(1000))
    assert cache.get("b") is None
    assert cache.get("a") == bytes(70)
    cache.put("a", bytes(1000))
    assert (cache.get("a"), cache.size) == (None, 0)
