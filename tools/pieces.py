"""Writes src/kernels/simd/pieces.hpp: functions as eight polynomials.

    pip install mpmath && python3 tools/pieces.py > src/kernels/simd/pieces.hpp

[0, top] is cut where a piece is found from the bits of a number u. Piece 0 has no constant; unless its linear
coefficient is a float, 1 is left out of that, and x added. The polynomials of the others are in x - origin, the origin
a float whose value is within 2^-32 of a float (Gal 1986): the constant coefficient is as good as exact. It is near the
middle or, of a function that falls to a tenth within a piece, near its end: what the other terms add, which is less
exact, is then nowhere larger than the function. The other coefficients are fitted one after the other, the lowest
first, each rounded before the next ones are fitted to what is left (Lawson 1961: relative error, minimax).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.prec = 160
NODES, ROUNDS = 40, 15
HALF = mp.mpf("0.5")


@dataclass
class Function:
    name: str
    comment: str
    f: Callable[[mp.mpf], mp.mpf]
    slope: mp.mpf  # at 0
    top: str
    degree: int
    cuts: Callable[[mp.mpf], list[mp.mpf]]
    at: mp.mpf  # about where a piece has its origin: 0 is its lower end, 1 its upper

    @property
    def plus_x(self) -> bool:
        return rounded(self.slope) != self.slope


def octaves(top: mp.mpf) -> list[mp.mpf]:
    """Two pieces an octave of u = 2 + 29.9999·x/top."""
    return [(u - 2) * top / mp.mpf("29.9999") for u in (2, 3, 4, 6, 8, 12, 16, 24, 32)]


def squares(_: mp.mpf) -> list[mp.mpf]:
    """u = (x + 2.74)²/8 - 1, rounded, is the number of a piece."""
    return [mp.mpf(0)] + [mp.sqrt(12 + 8 * i) - mp.mpf("2.74") for i in range(8)]


def gelu_beside_relu(x: mp.mpf) -> mp.mpf:
    """max(x, 0) - x · Phi(x), which is even."""
    return x * mp.ncdf(-x)


FUNCTIONS = [
    Function("tanh_pieces", "tanh(x); 1 from its top on.", mp.tanh, mp.mpf(1), "9.1", 7, octaves, HALF),
    Function("erf_pieces", "erf(x); 1 from its top on.", mp.erf, 2 / mp.sqrt(mp.pi), "4.0", 7, octaves, HALF),
    Function("gelu_pieces", "x · Phi(-x).", gelu_beside_relu, HALF, "5.5", 8, squares, mp.mpf("0.75")),
]


def rounded(x: mp.mpf) -> mp.mpf:
    """The float next to x: 0, or far from underflow."""
    mantissa, exponent = mp.frexp(x)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, 24)), exponent - 24)


def origin(f: Callable[[mp.mpf], mp.mpf], middle: mp.mpf) -> mp.mpf:
    x = rounded(middle)
    while abs(rounded(f(x)) / f(x) - 1) > mp.mpf(2) ** -32:
        x = rounded(x * (1 + mp.mpf(2) ** -22))
    return x


def fit(
    f: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf, at: mp.mpf, known: list[mp.mpf], degree: int
) -> list:
    """The coefficients after the known ones."""
    nodes = [
        (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * NODES)) for i in range(NODES)
    ]
    powers = range(len(known), degree + 1)
    matrix = [[(x - at) ** power / f(x) for power in powers] for x in nodes]
    right = [1 - sum(c * (x - at) ** power for power, c in enumerate(known)) / f(x) for x in nodes]
    weights, best = [mp.mpf(1)] * NODES, None
    for _ in range(ROUNDS):
        a, b = mp.zeros(len(powers)), mp.zeros(len(powers), 1)
        for row, value, weight in zip(matrix, right, weights, strict=True):
            for i, x in enumerate(row):
                b[i] += weight * x * value
                for j, y in enumerate(row):
                    a[i, j] += weight * x * y
        solution = list(mp.lu_solve(a, b))
        errors = [
            abs(value - sum(x * c for x, c in zip(row, solution, strict=True)))
            for row, value in zip(matrix, right, strict=True)
        ]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = worst, solution
        weights = [
            weight * (error / worst + mp.mpf("1e-3")) for weight, error in zip(weights, errors, strict=True)
        ]
    return best[1]


def piece(function: Function, low: mp.mpf, high: mp.mpf) -> tuple[mp.mpf, list[mp.mpf], mp.mpf]:
    """Origin, coefficients and the largest relative error."""
    f = function.f
    if low == 0:
        at, known, low = mp.mpf(0), [mp.mpf(0), 1 + rounded(function.slope - 1)], high / 2**20
    else:
        at = origin(f, low + (high - low) * function.at)
        known = [rounded(f(at))]
    while len(known) <= function.degree:
        known.append(rounded(fit(f, low, high, at, known, function.degree)[0]))
    points = (low + (high - low) * i / 200 for i in range(201))
    error = max(abs(mp.polyval(known[::-1], x - at) / f(x) - 1) for x in points)
    if at == 0 and function.plus_x:
        known[1] -= 1
    return at, known, error


def literal(x: mp.mpf) -> str:
    digits, _, exponent = float(x).hex().partition("p")
    return f"{digits.rstrip('0').rstrip('.')}p{int(exponent)}f" if x else "0.0f"


def main() -> None:
    print("// Coefficients of simd/piecewise.hpp. Written by tools/pieces.py: change that.")
    print('#pragma once\n\n#include "kernels/simd/piecewise.hpp"\n')
    print("namespace headlane::internal::kernels {\nnamespace {\n")
    for function in FUNCTIONS:
        top = mp.mpf(function.top)
        cuts = function.cuts(top)
        origins, coefficients, errors = zip(
            *(piece(function, *ends) for ends in zip(cuts, cuts[1:], strict=False)), strict=True
        )
        print(f"/// {function.comment} Error: {mp.nstr(max(errors) * 2**24, 2)} · 2^-24.")
        print(f"constexpr Pieces<{function.degree}> {function.name}{{")
        print(f"    {function.top}f, {str(function.plus_x).lower()},")
        print(f"    {{{', '.join(map(literal, origins))}}},\n    {{")
        for power in range(function.degree, -1, -1):
            print(f"        {{{', '.join(literal(c[power]) for c in coefficients)}}},")
        print("    }};\n")
    print("}  // namespace\n}  // namespace headlane::internal::kernels")


if __name__ == "__main__":
    main()
