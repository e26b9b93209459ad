#include "description.hpp"

#include <ios>
#include <optional>
#include <sstream>
#include <string_view>
#include <type_traits>

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

void describe(std::ostream& text, const AttentionOptions& options) {
  text << std::hexfloat;  // exact
  for_each_option(options, [&](const char* name, const auto& option) {
    using Option = std::remove_cvref_t<decltype(option)>;
    if constexpr (std::is_same_v<Option, std::optional<float>>) {
      if (option) text << ", " << name << ' ' << *option;
    } else if constexpr (std::is_same_v<Option, bool>) {
      text << (option ? ", " : ", not ") << name;
    } else if constexpr (std::is_arithmetic_v<Option>) {
      if (name != std::string_view("num_threads")) text << ", " << name << ' ' << option;
    } else if constexpr (std::is_same_v<Option, View<const Index, 1>>) {
      add_values(text, name, option);
    } else if constexpr (requires { option.shape; }) {
      if (is_given(option)) text << ", with " << name;
    }
  });
}

std::string description_of(const SequenceCall& call) {
  std::ostringstream text;
  text << "batch " << call.batch() << ", " << call.q_heads() << " heads on " << call.kv_heads() << ", head_dim "
       << call.head_dim() << ", value_dim " << call.value_dim();
  add_cut(text, "keys", call.cut.keys);
  if (call.cut.queries) add_cut(text, "queries", *call.cut.queries);
  else text << ", all " << call.q.shape[2] << " queries";
  describe(text, call.options);
  return text.str();
}

}  // namespace headlane::mpi::internal
