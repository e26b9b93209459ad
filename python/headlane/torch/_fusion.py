"""Which operations of a module become one."""

from __future__ import annotations

from typing import Any

from ._operations import Activated, Attended, Gated, Norm, Other, Product, Rows, Step
from ._values import Node

_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf")


class Fusion:
    """The operations of a module, some of which are several of its nodes.

    made: What computes a node: itself, or a fused operation whose last node it is.
    absorbed: The other nodes of fused operations.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.made: dict[Node, Any] = {}
        self.absorbed: set[Node] = set()
        for node in nodes:
            if node.kind == "linear" and node not in self.absorbed:
                self._fuse_linear(node)
        for node in nodes:
            if node.kind == "norm":
                total = node.inputs[0]
                if total.kind == "add" and self._only_user(total) is node and self._is_free(total):
                    self._fuse([total], Norm(node, node, total.inputs))
        self.operations = [
            self.made.get(x) or _alone(x) for x in nodes if x.kind != "input" and x not in self.absorbed
        ]

    def _is_free(self, node: Node) -> bool:
        return node not in self.made and node not in self.absorbed

    def _only_user(self, node: Node) -> Node | None:
        """The only operation that reads a value, if it is not part of a fused one."""
        return node.users[0] if len(node.users) == 1 and self._is_free(node.users[0]) else None

    def _fuse(self, others: list[Node], made: Any) -> None:
        self.absorbed.update(others)
        self.made[made.result] = made

    def _fuse_linear(self, node: Node) -> None:
        chain, activation = [node], None
        user = self._only_user(node)
        if user is not None and user.kind in _ACTIVATIONS:
            activation = user.kind
            chain.append(user)
            user = self._only_user(user)
        other = user.other_input(chain[-1]) if user is not None and len(user.inputs) == 2 else None
        if user is not None and other is not None and other is not chain[-1]:
            if user.kind == "multiply" and activation is not None and self._is_pair(node, other, user):
                return self._fuse([*chain, other], Gated(user, node, other, activation))
            if user.kind == "add":
                return self._fuse(chain, Product(user, node, activation, other))
        if activation is not None:
            self._fuse([node], Product(chain[-1], node, activation))
        return None

    def _is_pair(self, gate: Node, up: Node, product: Node) -> bool:
        """Whether a product is one of two Linear layers of the same value, stored alike."""
        if up.kind != "linear" or up.inputs != gate.inputs or self._only_user(up) is not product:
            return False
        one, other = (x.what._headlane for x in (gate, up))
        return (one.matrix.dtype, one.activations) == (other.matrix.dtype, other.activations)

    def steps(self) -> list[Step]:
        """The calls: operations on rows that follow each other are one."""
        at = {node: number for number, node in enumerate(self.nodes)}
        steps: list[Step] = []
        rows: list[Any] = []
        for one in self.operations:
            if isinstance(one, Other):
                steps += [x.step(at) for x in self._together(rows)] + [one.step(at)]
                rows = []
            else:
                rows.append(one)
        return steps + [x.step(at) for x in self._together(rows)]

    def _together(self, rows: list[Any]) -> list[Rows]:
        needed = {self.nodes[-1]}
        for one in self.operations:
            if one not in rows:
                needed.update(one.inputs)
        outputs = [one.result for one in rows if one.result in needed]
        return [Rows(rows, outputs)] if rows else []


def _alone(node: Node) -> Any:
    """An operation that is not fused."""
    if node.kind == "linear":
        return Product(node, node)
    if node.kind == "norm":
        return Norm(node, node, node.inputs)
    if node.kind == "attention" and Attended.is_this(node):
        return Attended(node)
    return Activated(node) if node.kind in _ACTIVATIONS else Other(node)
