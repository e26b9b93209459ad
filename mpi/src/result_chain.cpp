#include "result_chain.hpp"

#include <algorithm>

namespace headlane::mpi::internal {

ResultChain::ResultChain(Transport& transport, std::span<const ChainElement> elements, int num_threads)
    : transport_(transport),
      elements_(elements),
      num_threads_(num_threads),
      own_(elements.size(), 0),
      results_(elements.size()) {
  std::size_t hops = 0;
  for (const ChainElement& element : elements) hops = std::max(hops, element.pieces.size());
  // All elements hop by hop: while one is with other ranks, this rank merges the next ones. Every
  // rank goes in this order, so messages from one to another arrive in the order of their receives.
  for (std::size_t hop = 0; hop < hops; ++hop)
    for (std::size_t e = 0; e < elements.size(); ++e)
      if (hop < elements[e].pieces.size() && elements[e].pieces[hop].rank == transport.rank()) run_hop(e, hop);
  for (const Transport::Ticket ticket : sent_) transport.wait(ticket);
}

PartialResult ResultChain::allocate(const PartialResult& like) {
  PartialResult result = like;
  result.data = memory_.emplace_back(static_cast<std::size_t>(like.size())).data();
  return result;
}

void ResultChain::run_hop(std::size_t element, std::size_t hop) {
  const ChainElement& e = elements_[element];
  const PartialResult& blocks = e.blocks[own_[element]++];
  std::vector<AttentionPart> parts;
  if (hop > 0) {
    const PartialResult before = allocate(e.state);
    transport_.wait(transport_.start_receive(e.pieces[hop - 1].rank, before.data, before.bytes()));
    parts.push_back(before.part(0));
  }
  for (Index i = 0; i < blocks.count; ++i) parts.push_back(blocks.part(i));
  const PartialResult merged = allocate(e.state);
  merge(parts, merged.out(), {.lse = merged.max(), .sum = merged.sum(), .num_threads = num_threads_});
  results_[element] = merged;
  if (hop + 1 < e.pieces.size())
    sent_.push_back(transport_.start_send(e.pieces[hop + 1].rank, merged.data, merged.bytes()));
}

}  // namespace headlane::mpi::internal
