"""Settings and fixtures of all tests. Waiting threads sleep: the process has two OpenMP runtimes,
headlane's and PyTorch's.
"""

import os
from pathlib import Path

# Hypothesis writes to the build folder, like everything else.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parents[2] / "build/cache/hypothesis")
)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HEADLANE_MAX_THREADS", "64")  # more than there are processors
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import headlane
import hypothesis
import pytest

# The same examples in every run; no deadline, since machines are shared.
hypothesis.settings.register_profile("headlane", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.load_profile("headlane")

_printed: list[str] = []


@pytest.fixture
def report():
    """Lines for the end of the run: figures that tests found."""
    return _printed.append


def pytest_terminal_summary(terminalreporter):
    for line in _printed:
        terminalreporter.write_line(line)


@pytest.fixture
def restore():
    """Puts the instruction set and the number of threads back."""
    isa = headlane.isa()
    yield
    headlane.set_isa(isa)
    headlane.set_num_threads(0)


@pytest.fixture
def decoder_runs(monkeypatch):
    """The plans that are run with a cache."""
    from decoder_cases import runs_with_caches

    return runs_with_caches(monkeypatch)


@pytest.fixture
def known(monkeypatch):
    """Which positions of latent attention were known."""
    from latent_cases import known_positions

    return known_positions(monkeypatch)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    """A small encoder for headlane.jobs."""
    from job_runs import write_encoder

    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(params=["embed", "translate"])
def job(request, tmp_path, encoder_folder):
    """A job of five pieces, of either program."""
    from job_runs import small_job

    return small_job(request.param, tmp_path, encoder_folder)
