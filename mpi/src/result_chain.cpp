#include "result_chain.hpp"

#include <algorithm>

namespace headlane::mpi::internal {
namespace {

/// Of the results that the rank receives: each has the same size.
Index floats_received(std::span<const ChainElement> elements, int rank) {
  for (const ChainElement& element : elements)
    for (std::size_t hop = 1; hop < element.pieces.size(); ++hop)
      if (element.pieces[hop].rank == rank) return element.state.size();
  return 0;
}

}  // namespace

ResultChain::ResultChain(Messages& messages, std::span<const ChainElement> elements, int num_threads)
    : messages_(messages),
      elements_(elements),
      num_threads_(num_threads),
      own_(elements.size(), 0),
      results_(elements.size()),
      received_(messages, floats_received(elements, messages.rank())) {
  std::size_t hops = 0;
  for (const ChainElement& element : elements) hops = std::max(hops, element.pieces.size());
  // All elements hop by hop: while one is with other ranks, this rank merges the next ones. Every
  // rank goes in this order, so messages from one to another arrive in the order of their receives.
  for (std::size_t hop = 0; hop < hops; ++hop)
    for (std::size_t e = 0; e < elements.size(); ++e)
      if (hop < elements[e].pieces.size() && elements[e].pieces[hop].rank == messages.rank()) run_hop(e, hop);
  for (const Transport::Ticket ticket : sent_) messages.wait(ticket);
}

void ResultChain::run_hop(std::size_t element, std::size_t hop) {
  const ChainElement& e = elements_[element];
  const PartialResult& blocks = e.blocks[own_[element]++];
  std::vector<AttentionPart> parts;
  if (hop > 0) {
    PartialResult before = e.state;
    before.data = received_.data();
    messages_.wait(messages_.start_receive(e.pieces[hop - 1].rank, before.data, before.bytes()));
    parts.push_back(before.part(0));
  }
  for (Index i = 0; i < blocks.count; ++i) parts.push_back(blocks.part(i));
  PartialResult merged = e.state;
  merged.data = memory_.emplace_back(messages_, merged.size()).data();
  merge(parts, merged.out(), {.lse = merged.max(), .sum = merged.sum(), .num_threads = num_threads_});
  results_[element] = merged;
  if (hop + 1 < e.pieces.size())
    sent_.push_back(messages_.start_send(e.pieces[hop + 1].rank, merged.data, merged.bytes()));
}

}  // namespace headlane::mpi::internal
