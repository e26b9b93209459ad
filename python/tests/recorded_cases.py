"""What tests of recorded code in headlane.torch are given."""

import headlane.torch
import torch
from headlane.torch._arguments import Input
from headlane.torch._cached import CacheValue
from headlane.torch._graph import Graph
from headlane.torch._nodes import Node, Size
from headlane.torch._values import Value


class Given:
    """Two tensors of 4 heads of 8, two tables, one of complex numbers, and what was appended to a cache: 12 and 2
    numbers of each position.
    """

    def __init__(self, dtype=torch.float32):
        self.graph, sizes = Graph(dtype), (Size(), Size())
        self.x, self.y = (self.value(sizes, 32).view(*sizes, 4, 8).transpose(1, 2) for _ in range(2))
        self.cos, self.sin = (self.value(sizes, None) for _ in range(2))
        self.turns = Input("complex").value(self.graph)
        cache = CacheValue(self.graph.add(Node("input")), object, self.graph.updates, self.graph.states)
        latent, key = (self.value(sizes, width).view(*sizes[:1], 1, sizes[1], width) for width in (12, 2))
        self.latent, self.key = cache.update(latent, key, 0)
        self.others = cache.update(latent, key, 1)
        linear = torch.nn.Sequential(torch.nn.Linear(12, 40, bias=False), torch.nn.Linear(12, 40))
        self.linear, self.with_bias = headlane.torch.optimize(linear.eval())

    def value(self, sizes, width):
        node = self.graph.add(Node("input"))
        node.sizes, node.width = sizes, width
        return Value(self.graph, node)

    def product(self, module=None):
        """4 heads of 10."""
        batch, _, length, _ = self.latent.shape
        return (
            self.graph.call(module or self.linear, (self.latent,), {})
            .view((batch, length, -1, 10))
            .transpose(1, 2)
        )
