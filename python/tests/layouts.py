"""Arrays of every layout, for hypothesis: transposed, with steps, negative and zero strides,
misaligned, read-only.
"""

import numpy as np
from hypothesis import strategies as st

LAYOUTS = ("dense", "transposed", "step", "reversed", "offset", "read-only", "fortran", "broadcast")
OUTPUT_LAYOUTS = LAYOUTS[:5]


def arranged(values, layout):
    """The same values (for "broadcast" the first along axis 0 only) in other memory."""
    values = np.asarray(values)
    if layout == "transposed" and values.ndim >= 2:
        return np.ascontiguousarray(np.swapaxes(values, -1, -2)).swapaxes(-1, -2)
    if layout == "step":
        wide = np.full((*values.shape[:-1], 3 * values.shape[-1]), 77, values.dtype)
        wide[..., ::3] = values
        return wide[..., ::3]
    if layout == "reversed":
        flip = (slice(None, None, -1),) * values.ndim
        return np.ascontiguousarray(values[flip])[flip]
    if layout == "offset":  # aligned to an element and to nothing more
        flat = np.full(values.size + 3, 77, values.dtype)
        flat[3:] = values.ravel()
        return flat[3:].reshape(values.shape)
    if layout == "read-only":
        values = values.copy()
        values.flags.writeable = False
    if layout == "fortran":
        return np.asfortranarray(values)
    if layout == "broadcast" and values.ndim >= 1 and values.shape[0] > 0:
        return np.broadcast_to(values[:1], values.shape)
    return values


@st.composite
def arrays(draw, shape, layouts=LAYOUTS):
    """Normal numbers in a drawn layout."""
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return arranged(values, draw(st.sampled_from(layouts)))


@st.composite
def shuffled(draw, shape, broadcast=True):
    """Normal numbers whose axes lie in memory in a drawn order, some with gaps, some backwards,
    some (in inputs) with stride 0.
    """
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    memory = rng.standard_normal([abs(steps[axis]) * shape[axis] for axis in order], np.float32)
    values = memory.transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)]
    if not broadcast:
        return values
    firsts = tuple(slice(draw(st.sampled_from([None, None, None, 1]))) for _ in shape)
    return np.broadcast_to(values[firsts], shape)


def outputs(shape):
    """An array to write to, full of NaN, in a drawn layout; or None."""
    full = st.sampled_from(OUTPUT_LAYOUTS).map(
        lambda layout: arranged(np.full(shape, np.nan, np.float32), layout)
    )
    return st.none() | full
