"""PyTorch models on headlane, by one line:

    model = headlane.torch.optimize(model)

optimize() makes the modules of a model for inference compute by headlane, report() prints which, and
restore() undoes it. `python -m headlane.torch script.py` runs a program whose models are optimized when
they are first called.
"""

from ._optimize import optimize
from ._restore import report, restore

__all__ = ["optimize", "report", "restore"]
for _name in __all__:
    globals()[_name].__module__ = __name__  # where users find them
