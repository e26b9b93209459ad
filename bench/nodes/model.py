"""The time of headlane::mpi on nodes whose links have a latency and a bandwidth.

Every function returns seconds. docs/site/nodes.md has the formulas and how far they are right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import cuts
from .cuts import Piece

CHUNK = 8 << 20  # bytes of the messages in which keys and values travel
SMALL = 64 << 10  # bytes up to which an all-gather doubles what each rank has
AGREEMENT = 16  # bytes of each rank by which ranks compare their arguments
HIDDEN = 1 << 20  # elements of the hidden layer that are computed and gathered at a time, of these rows:
ROWS, LEAST_ROWS = 24, 96  # a multiple, and at least
FLOAT = 4


@dataclass(frozen=True)
class Links:
    """Each node sends and receives with this bandwidth at the same time."""

    latency: float
    bandwidth: float  # bytes per second

    def message(self, size: float) -> float:
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Node:
    attention: float  # operations per second
    products: float
    memory: float  # bytes per second
    region: float = 0.0  # seconds that a parallel region takes beside its work
    call: float = 0.0  # seconds that a call of headlane::mpi takes beside its work
    fresh: float = math.inf  # bytes per second: memory that a call allocates, written by one thread


@dataclass(frozen=True)
class Heads:
    q: int
    kv: int
    dim: int

    @property
    def bytes_of_key(self) -> int:
        """Of a key and its value."""
        return 2 * self.kv * self.dim * FLOAT

    @property
    def bytes_of_partial(self) -> int:
        """Of a partial result of one query, which has a maximum and a sum for each head."""
        return self.q * (self.dim + 2) * FLOAT

    @property
    def bytes_of_result(self) -> int:
        return self.q * self.dim * FLOAT


def doublings(ranks: int) -> int:
    return math.ceil(math.log2(ranks))


def all_gather(size: float, ranks: int, links: Links) -> float:
    """A buffer of which each rank has a part: by doubling if small, else around a ring."""
    if ranks == 1:
        return 0.0
    steps = doublings(ranks) if size <= SMALL and ranks & (ranks - 1) == 0 else ranks - 1
    return steps * links.latency + size * (ranks - 1) / ranks / links.bandwidth


def broadcast(size: float, ranks: int, links: Links) -> float:
    """A binomial tree."""
    return doublings(ranks) * links.message(size)


def agreement(ranks: int, links: Links) -> float:
    return all_gather(AGREEMENT * ranks, ranks, links)


CUTS = {"contiguous": cuts.contiguous, "zigzag": cuts.zigzag, "cyclic": cuts.cyclic}


@dataclass(frozen=True)
class Attention:
    """Self-attention over a sequence that is cut over ranks; keys travel in a ring."""

    heads: Heads
    length: int
    causal: bool
    cut: str

    def pieces(self, ranks: int) -> list[Piece]:
        return CUTS[self.cut](self.length, ranks)

    def chunks(self, ranks: int) -> list[list[Piece]]:
        return cuts.chunks(self.pieces(ranks), self.heads.bytes_of_key, CHUNK)

    def bytes_sent(self, rank: int, ranks: int) -> int:
        """SequencePlan::bytes_sent: all keys but those of the right neighbour."""
        return self.bytes_but_of((rank + 1) % ranks, ranks)

    def bytes_received(self, rank: int, ranks: int) -> int:
        return self.bytes_but_of(rank, ranks)

    def bytes_but_of(self, rank: int, ranks: int) -> int:
        return sum(piece.size for piece in self.pieces(ranks) if piece.rank != rank) * self.heads.bytes_of_key

    def computing(self, rows: list[Piece], keys: Piece, node: Node) -> float:
        pairs = sum(cuts.pairs(own, keys, self.causal) for own in rows)
        return 4 * pairs * self.heads.q * self.heads.dim / node.attention + node.region * (pairs > 0)

    def allocating(self, ranks: int, node: Node) -> float:
        """Two chunks in the beginning, and in the end the results of the rank's own queries. One rank alone
        gets the memory of its last call."""
        if ranks == 1:
            return 0.0
        longest = max(sum(part.size for part in chunk) for chunk in self.chunks(ranks))
        states = self.length / ranks * self.heads.bytes_of_partial
        return (2 * longest * self.heads.bytes_of_key + states) / node.fresh

    def time(self, ranks: int, node: Node, links: Links) -> float:
        """Chunk by chunk: a rank begins one when it has done the one before, has sent that, and has it. It sends
        its own part when it begins the chunk before, and passes on the others when it has done that.
        """
        pieces = self.pieces(ranks)
        rows = [[piece for piece in pieces if piece.rank == rank] for rank in range(ranks)]
        began, done, sent = [0.0] * ranks, [0.0] * ranks, [0.0] * ranks
        for chunk in self.chunks(ranks):
            before, ready = sent[:], done[:]
            for hop in range(1, ranks):
                has = ready[:]
                for part in chunk:
                    rank, left = (part.rank + hop) % ranks, (part.rank + hop - 1) % ranks
                    leaves = max(began[left] if hop == 1 else has[left], sent[left])
                    sent[left] = leaves + part.size * self.heads.bytes_of_key / links.bandwidth
                    ready[rank] = max(ready[rank], sent[left] + links.latency)
            keys = Piece(0, chunk[0].begin, chunk[-1].end)
            began = [max(times) for times in zip(ready, before)]
            done = [start + self.computing(own, keys, node) for start, own in zip(began, rows)]
        return agreement(ranks, links) + node.call + self.allocating(ranks, node) + max(done + sent)


@dataclass(frozen=True)
class Decoding:
    """One query over a cache that is cut over ranks; partial results travel."""

    heads: Heads
    length: int

    def bytes_sent(self, rank: int, ranks: int) -> int:
        """To the rank of the next keys; the results are broadcast."""
        return self.heads.bytes_of_partial if rank < len(cuts.contiguous(self.length, ranks)) - 1 else 0

    def time(self, ranks: int, node: Node, links: Links) -> float:
        pieces = cuts.contiguous(self.length, ranks)
        partial = self.heads.bytes_of_partial
        ready = 0.0
        for hop, piece in enumerate(pieces):
            own = piece.size * self.heads.bytes_of_key / node.memory + node.region
            merging = -(-piece.size // cuts.GRID) * partial / node.memory
            ready = max(ready + (links.message(partial) if hop else 0.0), own) + merging
        return (
            agreement(ranks, links) + node.call + ready + broadcast(self.heads.bytes_of_result, ranks, links)
        )


@dataclass(frozen=True)
class Layer:
    """A transformer layer of a team: each rank has some heads, and some columns of the products.

    Attention of `length` queries over as many keys for each of `batch` sequences; a single query attends
    to one key. Norms, residuals and activations of the whole width are computed by every rank.
    """

    width: int
    hidden: int
    batch: int
    length: int
    regions = 10  # parallel regions: four products, attention, two norms, three copies of what is gathered
    passes = 10  # how often rows × width elements are read or written by norms, residuals and copies

    @property
    def rows(self) -> int:
        return self.batch * self.length

    @property
    def weights(self) -> int:
        return 4 * self.width**2 + 2 * self.width * self.hidden

    @property
    def operations(self) -> int:
        """Of the products."""
        return 2 * self.rows * self.weights

    def gathered(self) -> list[int]:
        """Bytes: the heads, the projection of them; of some rows at a time the hidden layer, the output."""
        most = max(LEAST_ROWS, HIDDEN // self.hidden // ROWS * ROWS)
        counts = [self.rows, self.rows]
        widths = [self.width, self.width]
        for begin in range(0, self.rows, most):
            counts += 2 * [min(most, self.rows - begin)]
            widths += [self.hidden, self.width]
        return [rows * width * FLOAT for rows, width in zip(counts, widths)]

    def bytes_sent(self, ranks: int) -> float:
        return sum(self.gathered()) * (ranks - 1) / ranks

    def attending(self, node: Node) -> float:
        return 4 * self.rows * self.length * self.width / node.attention

    def replicated(self, node: Node) -> float:
        return self.passes * self.rows * self.width * FLOAT / node.memory

    def time(self, ranks: int, node: Node, links: Links) -> float:
        products = max(self.operations / node.products, self.weights * FLOAT / node.memory)
        divided = (products + self.attending(node)) / ranks
        gathers = agreement(ranks, links) + sum(all_gather(size, ranks, links) for size in self.gathered())
        return divided + self.replicated(node) + self.regions * node.region + gathers


@dataclass(frozen=True)
class Pieces:
    """Data parallelism: ranks take pieces of a job from a counter, which is a message to and fro."""

    items: int
    of_piece: int
    rate: float  # items per second of a node

    def time(self, ranks: int, links: Links) -> float:
        rounds = math.ceil(math.ceil(self.items / self.of_piece) / ranks)
        to_and_fro = 2 * links.latency if ranks > 1 else 0.0
        return rounds * (self.of_piece / self.rate + to_and_fro)


def efficiency(times: dict[int, float]) -> dict[int, float]:
    """The share of each node's time that the same job takes on one node alone."""
    return {ranks: times[1] / (ranks * time) for ranks, time in times.items()}
