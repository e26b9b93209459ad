"""The calls of calls.py of functions that write a state: each call gets its own."""

import headlane
import numpy as np
from sequences import normal

CALLS = {
    "linear_attention": (
        lambda **o: headlane.linear_attention(state=np.ones((2, 2, 8, 8), np.float32), **o),
        {
            "q": normal(2, 1, 4, 8),
            "k": normal(2, 1, 4, 8),
            "v": normal(2, 2, 4, 8),
            "log_decay": -abs(normal(2, 2, 4)),
            "beta": abs(normal(2, 4)),
            "a_log": normal(2),
            "dt_bias": normal(2),
            "discretize": True,
            "min_step": 0.25,
            "max_step": 1.5,
            "sigmoid_beta": True,
            "beta_scale": 1.5,
            "skip": normal(2),
            "scale": 0.5,
            "normalize": True,
            "eps": 1e-5,
        },
    ),
    "causal_convolution": (
        lambda **o: headlane.causal_convolution(state=np.ones((2, 8, 2), np.float32), **o),
        {"x": normal(2, 4, 8), "weight": normal(8, 3), "bias": normal(8), "activation": "silu"},
    ),
}
