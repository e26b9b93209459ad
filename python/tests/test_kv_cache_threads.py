"""Several threads use one KvCache: none waits for ever, in a child of fork() neither."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import headlane
import numpy as np
import pytest


def tokens(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def test_threads():
    cache = headlane.KvCache(2, 64, page_size=32)

    def work(_):
        mine = cache.add()
        for _ in range(50):
            cache.append(mine, tokens(2, 7, 64), tokens(2, 7, 64))
            cache.remove(cache.fork(mine, 5))
        length = cache.length(mine)
        cache.remove(mine)
        return length

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(12))) == [350] * 12
    assert cache.pages_in_use == 0


def test_readers_do_not_overtake_a_writer():
    """One that comes while a writer waits for a longer read returns what was written."""
    cache = headlane.KvCache(8, 64)
    read, written = cache.add(), cache.add()
    cache.append(read, tokens(8, 8192, 64), tokens(8, 8192, 64))
    queries, one, has_read = tokens(8, 8192, 64), tokens(8, 1, 64), threading.Event()

    def work():
        headlane.attention_over_cache(queries, cache, read, num_threads=1)
        has_read.set()

    reader = threading.Thread(target=work)
    writer = threading.Thread(target=cache.append, args=(written, one, one))
    reader.start()
    time.sleep(0.1)  # by then it has the cache, or will have it after the writer
    writer.start()
    length, ended_before = 0, False
    while length == 0:
        ended_before = has_read.is_set()
        length = cache.length(written)
        time.sleep(0.001)
    reader.join()
    writer.join()
    assert not ended_before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork()")
@pytest.mark.parametrize("use", ["read", "append"])
def test_fork_while_another_thread_uses_the_cache(use):
    """The child can use it, or is told that it is lost; it must not wait for a thread that it has not."""
    program = f"""
import threading, os, signal, sys, time
import headlane, numpy as np

cache, began = headlane.KvCache(8, 64), []
used, other, k = cache.add(), cache.add(), np.zeros((8, 8192, 64), np.float32)
cache.append(used, k, k)

def use():
    while True:
        if {use == "read"}:
            headlane.attention_over_cache(k[:, :4], cache, used, num_threads=1)
        else:
            cache.truncate(used, 0)
            cache.append(used, k, k)
        began.append(0)

for _ in range(3):
    threading.Thread(target=use, daemon=True).start()
while len(began) < 10:
    time.sleep(0.01)
for _ in range(5):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            assert cache.length(other) == 0
            cache.append(other, k[:, :1], k[:, :1])
        except RuntimeError as error:
            assert {use == "append"} and "fork()" in str(error)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status != 0:
        break
sys.stdout.write(str(status))
sys.stdout.flush()
os._exit(0)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=150)
    assert (ended.stdout, ended.stderr) == ("0", "")
