// The class Bert; headlane/models/_bert.py gives it names, defaults and documentation.
#include "call.hpp"
#include "models.hpp"
#include "products.hpp"

#include <headlane/models/bert.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <new>
#include <string_view>

namespace headlane::python {
namespace {

using models::Bert;
using models::Pooling;

Pooling pooling_named(const char* function, std::string_view name) {
  std::string names;
  for (const auto& [known, pooling] : models::pooling_names) {
    if (name == known) return pooling;
    names.append(names.empty() ? "'" : ", '").append(known).append("'");
  }
  require(false, function, ": pooling is '", name, "'; there are ", names);
  return Pooling::none;
}

/// A name, or a tuple of several.
nb::object names_of(const std::vector<Pooling>& poolings) {
  nb::list names;
  for (const Pooling pooling : poolings)
    for (const auto& [known, value] : models::pooling_names)
      if (value == pooling) names.append(nb::str(known.data(), known.size()));
  return poolings.size() == 1 ? nb::object(names[0]) : nb::object(nb::tuple(names));
}

/// For each sentence, how many of its tokens count.
std::vector<Index> lengths_of(const Bert& bert, const std::vector<std::vector<Index>>& ids, bool truncate) {
  std::vector<Index> lengths;
  for (const std::vector<Index>& sentence : ids) {
    const auto length = static_cast<Index>(sentence.size());
    lengths.push_back(truncate ? std::min(length, bert.config().max_seq_length) : length);
  }
  return lengths;
}

Index sum_of(const std::vector<Index>& values) {
  Index sum = 0;
  for (const Index value : values) sum += value;
  return sum;
}

std::vector<std::vector<Index>> types_of(const char* function, nb::handle types) {
  return types.is_none() ? std::vector<std::vector<Index>>() : sentences_of(function, "token_type_ids", types);
}

nb::object embed(const Bert& bert, nb::handle given, nb::handle given_types, std::optional<std::string_view> pooling,
                 std::optional<bool> normalize, bool truncate, nb::handle out, std::optional<int> num_threads,
                 Index prompt_tokens) {
  constexpr const char* function = "embed";
  const auto ids = sentences_of(function, "ids", given), types = types_of(function, given_types);
  std::optional<Pooling> how;
  if (pooling) how = pooling_named(function, *pooling);
  const bool pools = how.value_or(bert.config().pooling.front()) != Pooling::none;
  const Index rows = pools ? static_cast<Index>(ids.size()) : sum_of(lengths_of(bert, ids, truncate));
  const int threads = threads_of(function, num_threads);
  const Result result(function, nb::none(), out, {rows, bert.embedding_size(how)});
  const View<float, 2> y = matrix_of<float>(result.array());
  compute(function, [&] {
    bert.embed(ids, y,
               {.pooling = how,
                .normalize = normalize,
                .token_type_ids = types,
                .truncate = truncate,
                .num_threads = threads,
                .prompt_tokens = prompt_tokens});
  });
  return result.object();
}

/// The states, and for each sentence how many rows are its.
nb::tuple encode(const Bert& bert, nb::handle given, nb::handle given_types, bool truncate, nb::handle out,
                 std::optional<int> num_threads) {
  constexpr const char* function = "encode";
  const auto ids = sentences_of(function, "ids", given), types = types_of(function, given_types);
  const std::vector<Index> lengths = lengths_of(bert, ids, truncate);
  const int threads = threads_of(function, num_threads);
  const Result result(function, nb::none(), out, {sum_of(lengths), bert.config().hidden_size});
  const View<float, 2> y = matrix_of<float>(result.array());
  compute(function,
          [&] { bert.encode(ids, y, {.token_type_ids = types, .truncate = truncate, .num_threads = threads}); });
  nb::list rows;
  for (const Index length : lengths) rows.append(length);
  return nb::make_tuple(result.object(), rows);
}

nb::dict config_of(const Bert& bert) {
  const models::BertConfig& config = bert.config();
  nb::dict result;
  result["vocab_size"] = config.vocab_size;
  result["hidden_size"] = config.hidden_size;
  result["num_hidden_layers"] = config.num_hidden_layers;
  result["num_attention_heads"] = config.num_attention_heads;
  result["intermediate_size"] = config.intermediate_size;
  result["max_position_embeddings"] = config.max_position_embeddings;
  result["type_vocab_size"] = config.type_vocab_size;
  result["layer_norm_eps"] = config.layer_norm_eps;
  result["pooling"] = names_of(config.pooling);
  result["normalize"] = config.normalize;
  result["max_seq_length"] = config.max_seq_length;
  result["truncate_dim"] = config.truncate_dim == 0 ? nb::none() : nb::object(nb::int_(config.truncate_dim));
  result["include_prompt"] = config.include_prompt;
  nb::dict prompts;
  for (const auto& [name, prompt] : config.prompts) prompts[name.c_str()] = prompt;
  result["prompts"] = prompts;
  result["default_prompt_name"] =
      config.default_prompt_name.empty() ? nb::none() : nb::object(nb::cast(config.default_prompt_name));
  result["do_lower_case"] = config.do_lower_case;
  return result;
}

}  // namespace

void add_bert(nb::module_& module) {
  using nb::arg;
  nb::class_<Bert>(module, "Bert", nb::is_final())
      .def(
          "__init__",
          [](Bert* self, const std::string& folder) {
            compute("Bert", [&] { new (self) Bert(std::filesystem::path(folder)); });
          },
          arg("folder"))
      .def("embed", &embed, arg("ids"), arg("token_type_ids").none(), arg("pooling").none(), arg("normalize").none(),
           arg("truncate"), arg("out").none(), arg("num_threads").none(), arg("prompt_tokens"))
      .def("encode", &encode, arg("ids"), arg("token_type_ids").none(), arg("truncate"), arg("out").none(),
           arg("num_threads").none())
      .def(
          "embedding_size",
          [](const Bert& bert, std::optional<std::string_view> pooling) {
            return pooling ? bert.embedding_size(pooling_named("embedding_size", *pooling)) : bert.embedding_size();
          },
          arg("pooling").none())
      .def_prop_ro("config", &config_of)
      .def_prop_ro("folder", [](const Bert& bert) { return bert.folder().string(); });
}

}  // namespace headlane::python
