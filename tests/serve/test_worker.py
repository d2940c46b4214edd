"""The worker thread: it runs jobs in order, within limits, and stops the jobs of disconnected clients."""

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
from tokenlight.serve.worker import JobQueue, Outcome, Progress, QueueFull, Waiting
from tokenlight.text.batch import Batch


@pytest.fixture
def queue():
    queue = JobQueue(max_waiting=3, seconds=60.0)
    yield queue
    queue.close()


class Slow:
    """A job of any number of passes, which a test can observe and release."""

    def __init__(self) -> None:
        self.started, self.released = threading.Event(), threading.Event()

    def __call__(self, send_event: Any) -> str:
        self.started.set()
        while not self.released.wait(0.002):
            report_forward_pass()
        return "slow"


def answer(queue: JobQueue, compute: Any) -> Outcome[Any]:
    async def run() -> Outcome[Any]:
        return await queue.submit(compute).outcome()

    return asyncio.run(run())


def test_an_answer_is_returned(queue):
    assert answer(queue, lambda send_event: 7) == Outcome(answer=7)
    assert queue.idle


def test_events_are_received_in_order(queue):
    def compute(send_event):
        for done in range(5):
            send_event(Progress("m", done, 5))

    async def run():
        return [event async for event in queue.submit(compute).events()]

    assert asyncio.run(run()) == [*(Progress("m", done, 5) for done in range(5)), Outcome()]


def test_jobs_run_in_order_and_report_their_position(queue):
    slow, order = Slow(), []

    async def run():
        first = queue.submit(slow)
        await asyncio.to_thread(slow.started.wait)
        others = [queue.submit(lambda send_event, i=i: order.append(i)) for i in range(3)]
        slow.released.set()
        received = [[event async for event in job.events()] for job in others]
        await first.outcome()
        return received

    received = asyncio.run(run())
    assert order == [0, 1, 2]
    assert [event.ahead for event in received[2] if isinstance(event, Waiting)][-1] == 1
    assert all(isinstance(event, Waiting) for event in received[2][:-1])
    positions = [event.ahead for event in received[2][:-1]]
    assert positions == sorted(positions, reverse=True)


def test_a_full_queue_refuses_jobs(queue):
    slow = Slow()

    async def run():
        first = queue.submit(slow)
        await asyncio.to_thread(slow.started.wait)
        waiting = [queue.submit(lambda send_event: 1) for _ in range(3)]
        with pytest.raises(QueueFull, match="3 requests are waiting"):
            queue.submit(lambda send_event: 1)
        slow.released.set()
        assert [(await job.outcome()).answer for job in [first, *waiting]] == ["slow", 1, 1, 1]
        assert (await queue.submit(lambda send_event: 2).outcome()).answer == 2

    asyncio.run(run())


def test_a_cancelled_waiting_job_never_runs(queue):
    slow, served = Slow(), []

    async def run():
        first = queue.submit(slow)
        await asyncio.to_thread(slow.started.wait)
        cancelled, other = (queue.submit(lambda send_event, i=i: served.append(i)) for i in range(2))
        cancelled.cancel()
        slow.released.set()
        received = [event async for event in other.events()]
        assert Waiting(1) in received[1:]  # the position of the cancelled job
        await first.outcome()

    asyncio.run(run())
    assert served == [1]


def test_a_cancelled_running_job_stops_at_the_next_pass(queue):
    slow = Slow()

    async def run():
        job = queue.submit(slow)
        await asyncio.to_thread(slow.started.wait)
        job.cancel()

    asyncio.run(run())
    until(lambda: queue.idle)
    assert not slow.released.is_set()  # otherwise it would never have ended
    assert answer(queue, lambda send_event: 1).answer == 1


@pytest.fixture
def clock(monkeypatch):
    return Clock().watched_by(monkeypatch, worker.__name__)


def lasting(clock: Clock, seconds: float) -> Any:
    """A job of two passes, between which so many seconds pass."""

    def work(send_event: Any) -> str:
        report_forward_pass()
        clock.now += seconds
        report_forward_pass()
        return "done"

    return work


def test_a_job_that_takes_too_long_is_stopped_with_a_message(clock, queue):
    problem = answer(queue, lasting(clock, 61.0)).problem
    assert problem is not None
    assert problem.status == 504
    assert "longer than 60 s" in problem.message
    assert answer(queue, lambda send_event: 1).answer == 1


def test_waiting_time_does_not_count(clock, queue):
    async def run():
        jobs = [queue.submit(lasting(clock, 59.0)) for _ in range(3)]
        return [await job.outcome() for job in jobs]

    assert asyncio.run(run()) == [Outcome(answer="done")] * 3


def test_errors_become_messages_and_the_worker_continues(queue, capsys):
    def wrong(send_event):
        raise ValueError("that cannot be")

    def broken(send_event):
        raise KeyError("secret")

    problem = answer(queue, wrong).problem
    assert problem is not None
    assert (problem.status, problem.message) == (422, "that cannot be")
    problem = answer(queue, broken).problem
    assert problem is not None
    assert problem.status == 500
    assert "secret" not in problem.message
    assert "secret" in capsys.readouterr().err
    assert answer(queue, lambda send_event: 1).answer == 1


def test_closing_stops_the_running_job_and_ends_waiting_jobs():
    queue, slow = JobQueue(), Slow()

    async def run():
        jobs = [queue.submit(slow), queue.submit(lambda send_event: 1)]
        await asyncio.to_thread(slow.started.wait)
        queue.close(patience=GIVE_UP)
        return [await job.outcome() for job in jobs]

    problems = [outcome.problem for outcome in asyncio.run(run())]
    assert [problem and problem.status for problem in problems] == [503, 503]
    assert not queue._thread.is_alive()

    async def late():
        with pytest.raises(QueueFull, match="stopping"):
            queue.submit(lambda send_event: 1)

    asyncio.run(late())


# --- callbacks at every forward pass --------------------------------------------------------------------------------


def run_model() -> None:
    ids = models.ids()
    InstrumentedModel(models.model("bert")).run(Batch(ids, ids.new_ones(ids.shape)), Capture())


def test_every_forward_pass_calls_all_callbacks():
    calls = []
    with on_forward_pass(lambda: calls.append("outer")):
        run_model()
        with on_forward_pass(lambda: calls.append("inner")):
            run_model()
    run_model()
    assert calls == ["outer", "outer", "inner"]


def test_a_callback_can_stop_a_pass_and_is_removed_afterwards():
    def stop():
        raise InterruptedError

    with pytest.raises(InterruptedError), on_forward_pass(stop):
        run_model()
    run_model()


def test_passes_of_other_threads_call_no_callbacks():
    calls = []
    with on_forward_pass(lambda: calls.append(1)):
        thread = threading.Thread(target=run_model)
        thread.start()
        thread.join()
    assert calls == []


# --- the cache ------------------------------------------------------------------------------------------------------


def test_the_cache_keeps_recent_values_up_to_its_size():
    each = size_of(("a", b"A" * 100))
    cache = Cache(limit=5 * each // 2)
    for key in "abc":
        cache.put(key, key.upper().encode() * 100)
    assert cache.get("a") is None
    assert cache.get("b") == b"B" * 100  # read again: c is the oldest now
    cache.put("d", b"D" * 100)
    assert [cache.get(key) for key in "abcd"] == [None, b"B" * 100, None, b"D" * 100]
    assert (cache.size, len(cache)) == (2 * each, 2)


def test_the_cache_counts_a_key_once_and_rejects_values_that_are_too_large():
    cache = Cache(limit=1000)
    cache.put("a", bytes(60))
    cache.put("a", bytes(70))
    assert (cache.get("a"), cache.size) == (bytes(70), size_of(("a", bytes(70))))
    cache.put("b", bytes(1000))
    assert cache.get("b") is None
    assert cache.get("a") == bytes(70)
    cache.put("a", bytes(1000))
    assert (cache.get("a"), cache.size) == (None, 0)
