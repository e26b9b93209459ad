// attention() over a cut sequence: the entry, its checks, and what travels.
#include <headlane/mpi/attention.hpp>

#include "attention_check.hpp"
#include "core/floating_point_scope.hpp"
#include "description.hpp"
#include "sequence_call.hpp"
#include "together.hpp"

#include <headlane/attention.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace headlane::mpi {

using namespace internal;

namespace {

void check_rows(const char* name, const View<const float, 4>& view, Index expected, int rank, const char* of) {
  refuse_unless(view.shape[2] == expected, name, " has ", view.shape[2], " rows, the cut gives rank ", rank, " ",
                expected, " of the ", of);
}

void check_cut(const SequenceCall& call, int ranks) {
  const AttentionCut& cut = call.cut;
  refuse_unless(cut.keys.ranks() == ranks, "the cut of the keys is for ", cut.keys.ranks(), " ranks, there are ",
                ranks);
  check_rows("k", call.k, cut.keys.length_of(call.rank), call.rank, "keys");
  check_rows("v", call.v, cut.keys.length_of(call.rank), call.rank, "keys");
  refuse_unless(call.out.shape[2] == call.q.shape[2], "out has ", call.out.shape[2], " rows, q has ", call.q.shape[2]);
  if (!cut.queries) return;
  refuse_unless(cut.queries->ranks() == ranks, "the cut of the queries is for ", cut.queries->ranks(),
                " ranks, there are ", ranks);
  check_rows("q", call.q, cut.queries->length_of(call.rank), call.rank, "queries");
}

void check_refused(const AttentionOptions& o) {
  refuse_unless(!o.query_starts && !o.key_starts,
                "query_starts or key_starts is given; call it for each sequence, with a cut of its own");
  check_options_of_ranks(o);
}

void check_lengths(const char* name, const View<const Index, 1>& lengths, const SequenceCall& call, Index max) {
  if (!lengths) return;
  refuse_unless(lengths.shape[0] == call.batch(), name, " has ", lengths.shape[0], " elements, there are ",
                call.batch(), " batch elements");
  for (Index b = 0; b < lengths.shape[0]; ++b)
    refuse_unless(lengths(b) >= 0 && lengths(b) <= max, name, "[", b, "] is ", lengths(b), ", the sequence has ", max);
}

/// Calls f(q, out, options) for pieces of the rank's queries, with the options of attention() over
/// all keys.
template <class F>
void for_each_call(const SequenceCall& call, std::span<const Rows> pieces, const F& f) {
  for (const Rows& rows : pieces) {
    const auto own = [&](const auto& view) { return view.slice(2, rows.local, rows.local + rows.count); };
    PartOptions part(call.options, rows, {0, call.cut.keys.length()});
    part.options.sinks = call.options.sinks;
    if (call.options.lse) part.options.lse = own(call.options.lse);
    f(own(call.q), own(call.out), part.options);
  }
}

/// Has the plan of attention() over all keys check shapes and options, for each piece of queries; a
/// rank without queries has keys and values that others receive.
void check_as_attention(const SequenceCall& call) {
  const Index keys = call.cut.keys.length();
  View<const float, 4> k = call.k, v = call.v;
  k.shape[2] = v.shape[2] = keys;
  k.data = v.data = nullptr;
  std::vector<Rows> pieces = call.rows_of(call.rank);
  if (pieces.empty()) pieces.emplace_back();
  for_each_call(call, pieces, [&](const auto& q, const auto& out, const AttentionOptions& options) {
    (void)headlane::plan_attention(q, k, v, out, options);
  });
}

bool is_empty(const AnyView<const float>& view) {
  return std::any_of(view.shape.begin(), view.shape.begin() + view.rank, [](Index n) { return n == 0; });
}

/// Data are given, and outputs overlap nothing.
void check_data(const SequenceCall& call) {
  const auto given = [](const char* name, const auto& view) {
    refuse_unless(view.data != nullptr || is_empty(AnyView<const float>(view)), name, " has no data");
  };
  given("q", call.q);
  given("k", call.k);
  given("v", call.v);
  given("out", View<const float, 4>(call.out));
  check_outputs(call.out, {{"q", call.q}, {"k", call.k}, {"v", call.v}}, call.options);
}

void check(const SequenceCall& call, int ranks) {
  check_refused(call.options);
  check_cut(call, ranks);
  check_lengths("query_lengths", call.options.query_lengths, call,
                call.cut.queries ? call.cut.queries->length() : call.q.shape[2]);
  check_lengths("key_lengths", call.options.key_lengths, call, call.cut.keys.length());
  check_as_attention(call);
  check_data(call);
}

/// Bytes of the rank that sends or receives most.
std::size_t most_bytes(const std::vector<SequencePlan>& plans) {
  std::size_t most = 0;
  for (const SequencePlan& plan : plans)
    most = std::max(most, std::max(plan.bytes_sent, plan.bytes_received) + plan.bytes_collective);
  return most;
}

/// The plans of all ranks, in a time that is proportional to the number of ranks and pieces.
std::vector<SequencePlan> plans_of(const SequenceCall& call) {
  const AttentionOptions& o = call.options;
  if (!call.cut.queries) return plans_of_result_chain(call);
  std::vector<SequencePlan> ring = plans_of_key_ring(call);
  if (is_given(o.mask) || is_given(o.mask_bits) || is_given(o.bias) || call.cut.keys.length() == 0) return ring;
  std::vector<SequencePlan> chain = plans_of_result_chain(call);
  return most_bytes(ring) <= most_bytes(chain) ? ring : chain;
}

}  // namespace

std::vector<Index> internal::lengths_of(const SequenceCut& cut) {
  std::vector<Index> lengths(static_cast<std::size_t>(cut.ranks()), 0);
  for (const SequencePiece& piece : cut.pieces()) lengths[static_cast<std::size_t>(piece.rank)] += piece.size();
  return lengths;
}

std::vector<Rows> internal::SequenceCall::rows_of(int of_rank) const {
  if (!cut.queries) return {{0, 0, q.shape[2]}};
  std::vector<Rows> result;
  for (const SequencePiece& piece : cut.queries->pieces())
    if (piece.rank == of_rank) result.push_back({piece.begin, piece.local, piece.size()});
  return result;
}

SequencePlan plan_attention(int rank, View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                            const AttentionCut& cut, const AttentionOptions& options) {
  const SequenceCall call{q, k, v, {nullptr, {q.shape[0], q.shape[1], q.shape[2], v.shape[3]}}, cut, options, rank};
  refuse_unless(rank >= 0 && rank < cut.keys.ranks(), "rank is ", rank, ", there are ", cut.keys.ranks());
  check_refused(options);
  check_cut(call, cut.keys.ranks());
  if (cut.keys.ranks() == 1) return {.travels = Travels::keys};
  return plans_of(call)[static_cast<std::size_t>(rank)];
}

void attention(Transport& transport, View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
               View<float, 4> out, const AttentionCut& cut, const AttentionOptions& options) {
  const headlane::internal::FloatingPointScope scope;
  const SequenceCall call{q, k, v, out, cut, options, transport.rank()};
  check_together(
      transport, attention_name, [&] { return description_of(call); }, [&] { check(call, transport.size()); });
  if (transport.size() == 1 || cut.keys.length() == 0) {
    // A piece at a time: without keys a rank has two.
    for_each_call(call, call.rows_of(call.rank),
                  [&](const auto& own_q, const auto& own_out, const AttentionOptions& of_rows) {
                    headlane::attention(own_q, k, v, own_out, of_rows);
                  });
    return;
  }
  Messages messages(transport);
  if (plans_of(call).front().travels == Travels::keys) run_key_ring(messages, call);
  else run_result_chain(messages, call);
}

}  // namespace headlane::mpi
