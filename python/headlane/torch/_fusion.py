"""Which operations of a module become one."""

from __future__ import annotations

from typing import Any

from ._attended import Attended, AttendedCache
from ._kept import AttendedKept
from ._nodes import Node
from ._operations import (
    ACTIVATIONS,
    Elementwise,
    Gated,
    Named,
    Norm,
    Other,
    Product,
    Rows,
    Step,
)
from ._with_states import KINDS

_ALONE = (Other, AttendedKept)  # operations that run by themselves


class Fusion:
    """The operations of a module, some of which are several of its nodes.

    modules: Only nodes of one of these become one operation; None if it does not matter.
    made: What computes a node: itself, or a fused operation whose last node it is.
    absorbed: The other nodes of fused operations.
    has_room: Whether attention with a cache is an operation on rows, which needs room in it.
    """

    def __init__(self, nodes: list[Node], modules: set[Any] | None, has_room: bool = False) -> None:
        self.nodes = nodes
        self.modules = modules
        self.has_room = has_room
        self.made: dict[Node, Any] = {}
        self.absorbed: set[Node] = set()
        for node in nodes:
            if node.kind == "linear" and node not in self.absorbed:
                self._fuse_linear(node)
        for node in nodes:
            if node.kind == "norm":
                total = node.inputs[0]
                if total.kind == "add" and self._only_user(total) is node and self._is_free(total):
                    self._fuse([total], Norm(node, node.what, total.inputs))
        kept: dict[Node, set[Node]] = {x: _from_sources(x) for x in nodes if AttendedKept.is_this(x)}
        inside = set().union(*kept.values())
        self.operations = [
            AttendedKept(x, self._rows_of(kept[x], x)) if x in kept else self._operation_of(x)
            for x in nodes
            if x.kind != "input" and x not in self.absorbed and x not in inside
        ]

    def _operation_of(self, node: Node) -> Any:
        return self.made.get(node) or _alone(node, self.has_room)

    def _rows_of(self, inside: set[Node], attention: Node) -> Rows:
        """Those that compute keys and values from their sources."""
        read = attention.what.read(attention.inputs)
        outputs = list(dict.fromkeys((read.key, read.value)))
        return Rows([self._operation_of(x) for x in self.nodes if x in inside], outputs)

    def _is_free(self, node: Node) -> bool:
        return node not in self.made and node not in self.absorbed

    def _together(self, one: Node, other: Node) -> bool:
        """Whether they may be fused."""
        return self.modules is None or (one.module is other.module and one.module in self.modules)

    def _only_user(self, node: Node) -> Node | None:
        """The only operation that reads a value, if it is not part of a fused one, and may be fused with it."""
        user = node.users[0] if len(node.users) == 1 else None
        return user if user is not None and self._is_free(user) and self._together(node, user) else None

    def _fuse(self, others: list[Node], made: Any) -> None:
        self.absorbed.update(others)
        self.made[made.result] = made

    def _fuse_linear(self, node: Node) -> None:
        chain, activation = [node], None
        user = self._only_user(node)
        if user is not None and user.kind in ACTIVATIONS:
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

    def steps(self) -> list[tuple[Step, list[int], bool]]:
        """The calls, the values that none reads after each, and whether it changes a cache.

        Operations on rows that follow each other are one call, for each layer of a stack.
        """
        at = {node: number for number, node in enumerate(self.nodes)}
        # What PyTorch computes reads inputs alone.
        calls: list[Any] = [x for x in self.operations if x.result.kind == "torch"]
        rows: list[Any] = []
        for one in [*(x for x in self.operations if x.result.kind != "torch"), None]:
            if rows and (one is None or isinstance(one, _ALONE) or self._begins_layer(one, rows)):
                calls.append(self._as_one(rows))
                rows = []
            if isinstance(one, _ALONE):
                calls.append(one)
            elif one is not None:
                rows.append(one)
        last = {node: number for number, call in enumerate(calls) for node in call.reads}
        unread: list[list[int]] = [[] for _ in calls]
        for node, number in last.items():
            if node.kind != "input":
                unread[number].append(at[node])
        return [(call.step(at), places, call.changes_cache) for call, places in zip(calls, unread)]

    def _begins_layer(self, one: Any, before: list[Any]) -> bool:
        """Whether the operations before have an attention, and this one makes what the next attends with: not of
        a layer with a cache, which is one call, as it could not be undone after its cache was changed.
        """
        if self.has_room or not any(isinstance(x, Attended) for x in before):
            return False
        users = [user for x in one.result.users for user in ((x, *x.users) if x.kind == "scale" else (x,))]
        return any(x.kind == "attention" for x in users)

    def _as_one(self, rows: list[Any]) -> Rows:
        results = {one.result for one in rows}
        needed = {self.nodes[-1]}
        for one in self.operations:
            if one.result not in results:
                needed.update(one.inputs)
        return Rows(rows, [one.result for one in rows if one.result in needed])


def _from_sources(attention: Node) -> set[Node]:
    """The nodes between the sources of keys and values, and these."""
    read = attention.what.read(attention.inputs)
    found: set[Node] = set()
    rest = [read.key, read.value]
    while rest:
        node = rest.pop()
        if node not in found and node is not read.key_source and node is not read.value_source:
            found.add(node)
            rest += node.inputs
    return found


def _alone(node: Node, has_room: bool) -> Any:
    """An operation that is not fused."""
    if node.kind == "linear":
        return Product(node, node)
    if node.kind == "norm":
        return Norm(node, node.what, node.inputs)
    if node.kind == "head_norm":
        return Norm(node, node.what[0], node.inputs, node.what[1])
    if node.kind == "attention" and Attended.is_this(node):
        return Attended(node)
    if node.kind == "attention" and has_room and AttendedCache.is_this(node):
        return AttendedCache(node)
    if node.kind in KINDS:
        return KINDS[node.kind](node)
    if Named.is_this(node):
        return Named(node)
    return Elementwise(node) if Elementwise.is_this(node) else Other(node)
