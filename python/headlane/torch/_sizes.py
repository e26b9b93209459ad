"""What is known of the sizes of results while code is recorded, and what a plan must check of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._nodes import Node, NotPlain

if TYPE_CHECKING:
    from ._graph import Graph


def input_like(node: Node, graph: Graph) -> Node:
    """An input of as many sequences, of the same length."""
    _settle(node, graph)
    if node.sizes is None:
        raise NotPlain
    return next(x for x in graph.nodes if x.kind == "input" and x.sizes is node.sizes)


def _settle(node: Node, graph: Graph) -> None:
    """Finds the sizes of a result if they are not known, for which inputs may have to be checked."""
    if node.sizes is None:
        for x in node.inputs:
            _settle(x, graph)
        node.sizes = node.sizes_of_inputs()
        require_equal(node, graph)


def require_equal(node: Node, graph: Graph) -> None:
    """Of a sum or product with an input of the code: that must have the rows and the width of the other value, or
    the plan does not run. None of its rows is repeated.
    """
    if node.kind not in ("add", "multiply") or node.has_equal_inputs():
        return
    one, two = node.inputs
    if one.kind == "input":
        one, two = two, one
    is_known = one.sizes is not None and len(one.sizes) == 2 and one.width is not None
    if is_known and one.kind != "input" and two.kind == "input" and two.width is None:
        graph.equal.append((two, input_like(one, graph), one.width))
        node.sizes, node.width, node.is_checked = one.sizes, one.width, True


def set_width(node: Node, width: int | None) -> None:
    """Sets the width of a value, and of what it is the norm of, where it is not known."""
    while node.width is None:
        node.width = width
        if node.kind != "norm":
            break
        (node,) = node.inputs
