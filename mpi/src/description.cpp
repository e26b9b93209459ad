#include "description.hpp"

#include <ios>
#include <sstream>

namespace headlane::mpi::internal {
namespace {

void add_values(std::ostream& text, const char* name, const View<const Index, 1>& values) {
  if (!values) return;
  text << ", " << name;
  for (Index i = 0; i < values.shape[0]; ++i) text << ' ' << values(i);
}

void add_cut(std::ostream& text, const char* name, const SequenceCut& cut) {
  text << ", " << name << ' ' << cut.length() << " cut at";
  for (const SequencePiece& piece : cut.pieces()) text << ' ' << piece.begin << " for rank " << piece.rank;
}

}  // namespace

std::string description_of(const AttentionOptions& o) {
  std::ostringstream text;
  text << std::hexfloat;  // exact
  if (o.scale) text << "scale " << *o.scale << ", ";
  text << "softcap " << o.softcap << (o.causal ? ", causal" : ", not causal") << ", causal_offset " << o.causal_offset
       << ", window " << o.window_left << ' ' << o.window_right << ", relative_bias.max_distance "
       << o.relative_bias.max_distance << (o.relative_bias.bidirectional ? "" : ", of one direction");
  add_values(text, "causal_offsets", o.causal_offsets);
  add_values(text, "query_lengths", o.query_lengths);
  add_values(text, "key_lengths", o.key_lengths);
  for_each_option(o, [&](const char* name, const auto& member) {
    if constexpr (requires { member.shape; })
      if (is_given(member)) text << ", with " << name;
  });
  return text.str();
}

std::string description_of(const SequenceCall& call) {
  std::ostringstream text;
  text << "batch " << call.batch() << ", " << call.q_heads() << " heads on " << call.kv_heads() << ", head_dim "
       << call.head_dim() << ", value_dim " << call.value_dim();
  add_cut(text, "keys", call.cut.keys);
  if (call.cut.queries) add_cut(text, "queries", *call.cut.queries);
  else text << ", all " << call.q.shape[2] << " queries";
  text << ", " << description_of(call.options);
  return text.str();
}

}  // namespace headlane::mpi::internal
