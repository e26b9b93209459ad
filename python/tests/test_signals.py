"""A signal ends a long call, and the exception of its handler reaches the caller."""

import signal
import threading
import time

import calls
import numpy as np
import pytest
from small_bert import write_bert

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")


class Interrupted(Exception):
    pass


@pytest.fixture
def alarm():
    """Raises Interrupted in the main thread after some time; the call must end long before it would
    by itself.
    """

    def ring(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)

    def interrupted(call, after=0.2, within=10):
        signal.setitimer(signal.ITIMER_REAL, after)
        begin = time.perf_counter()
        with pytest.raises(Interrupted):
            call()
        return time.perf_counter() - begin < after + within

    yield interrupted
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def t5():
    return models.T5(calls.LITTLE)


ENDLESS = {"max_length": 10**6, "min_length": 10**6, "num_beams": 4}


def test_generate(t5, alarm):
    ids = [[5, 6, 7, 1]] * 16
    assert alarm(lambda: t5.generate(ids, **ENDLESS))
    assert t5.generate(ids[:1], max_length=8) == t5.generate([ids[0]], max_length=8)


def test_translate(alarm):
    pytest.importorskip("sentencepiece")
    translator = models.Translator(calls.LITTLE)
    assert alarm(lambda: translator.translate(["the cat sees the dog"] * 8, **ENDLESS))
    assert translator.translate(["the cat"]) == [translator.translate("the cat")]


@pytest.mark.parametrize("function", ["embed", "encode"])
def test_bert(function, tmp_path, alarm):
    write_bert(tmp_path)
    bert = models.Bert(tmp_path)
    run = getattr(bert, function)
    short = [[1, 2, 3]]
    expected = run(short)
    assert alarm(lambda: run([[i % 100 for i in range(400)]] * 20000), within=30)
    np.testing.assert_array_equal(run(short), expected)


def test_other_threads_are_not_disturbed(t5):
    """Signals are for the main thread: a call in another one ends by itself."""
    ids = [[5, 6, 7, 1]] * 4
    expected = t5.generate(ids, max_length=60, min_length=60)
    received, results = [], []
    before = signal.signal(signal.SIGALRM, lambda number, frame: received.append(number))
    try:
        thread = threading.Thread(
            target=lambda: results.append(t5.generate(ids, max_length=60, min_length=60))
        )
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        thread.start()
        while not received:
            time.sleep(0.001)
        thread.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert results == [expected]
