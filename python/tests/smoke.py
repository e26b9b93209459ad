"""Tries an installed headlane where nothing but NumPy is installed; ./dev test-wheel runs this."""

import headlane
import headlane.models
import numpy as np

rng = np.random.default_rng(0)
query, key, value = (rng.standard_normal((2, 4, 30, 16), np.float32) for _ in range(3))
scores = np.einsum("bhid,bhjd->bhij", query.astype(np.float64), key) / 4
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
error = abs(headlane.scaled_dot_product_attention(query, key, value) - weights @ value).max()
assert error < 1e-5, error
assert abs(headlane.softmax(query).sum(-1) - 1).max() < 1e-6
assert abs(headlane.gemm(query[0, 0], key[0, 0].T) - query[0, 0] @ key[0, 0].T).max() < 1e-5
weights = headlane.PackedMatrix(key[0, 0].T)
assert (
    headlane.linear(query, weights, activation="relu") == headlane.relu(headlane.matmul(query, weights))
).all()
message = ""
try:
    headlane.models.Bert("no such folder")
except headlane.models.CheckpointError as error:
    message = str(error)
assert "no folder" in message, message
print(
    f"headlane {headlane.__version__} works: {', '.join(headlane.available_isas())}; in use {headlane.isa()}"
)
