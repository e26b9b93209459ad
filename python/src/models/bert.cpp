// The class Bert; headlane/models/_bert.py gives it names, defaults and documentation.
#include <headlane/models/bert.hpp>

#include "core/call.hpp"
#include "gemm/products.hpp"
#include "models/models.hpp"

#include <nanobind/stl/string.h>
#include <new>
#include <optional>
#include <string>

namespace headlane::python {
namespace {

using models::Bert;
using models::EncodeProgress;
using models::Pooling;

Pooling pooling_named(const char* function, nb::handle given) {
  const std::string name = text_of(function, "pooling", given);
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

nb::object embed(const Bert& bert, nb::handle given, nb::handle given_types, nb::handle pooling,
                 nb::handle given_normalize, nb::handle given_truncate, nb::handle out, nb::handle num_threads,
                 nb::handle given_prompt_tokens) {
  constexpr const char* function = "embed";
  const auto ids = sentences_of(function, "ids", given), types = types_of(function, given_types);
  std::optional<Pooling> how;
  if (!pooling.is_none()) how = pooling_named(function, pooling);
  const bool truncate = flag_of(function, "truncate", given_truncate);
  std::optional<bool> normalize;
  if (!given_normalize.is_none()) normalize = flag_of(function, "normalize", given_normalize);
  const Index prompt_tokens = integer_of(function, "prompt_tokens", given_prompt_tokens);
  const bool pools = how.value_or(bert.config().pooling.front()) != Pooling::none;
  const Index rows = pools ? static_cast<Index>(ids.size()) : sum_of(lengths_of(bert, ids, truncate));
  const int threads = threads_of(function, num_threads);
  const Result result(function, nb::none(), out, {rows, bert.embedding_size(how)});
  const View<float, 2> y = matrix_of<float>(result.array());
  if (ids.empty()) return result.object();
  Signals signals;
  compute(function, [&] {
    bert.embed(ids, y,
               {.pooling = how,
                .normalize = normalize,
                .token_type_ids = types,
                .truncate = truncate,
                .prompt_tokens = prompt_tokens,
                .progress = [&](const EncodeProgress&) { signals(); },
                .num_threads = threads});
  });
  return result.object();
}

/// The states, and for each sentence how many rows are its.
nb::tuple encode(const Bert& bert, nb::handle given, nb::handle given_types, nb::handle given_truncate,
                 nb::handle num_threads) {
  constexpr const char* function = "encode";
  const auto ids = sentences_of(function, "ids", given), types = types_of(function, given_types);
  const bool truncate = flag_of(function, "truncate", given_truncate);
  const std::vector<Index> lengths = lengths_of(bert, ids, truncate);
  const int threads = threads_of(function, num_threads);
  const Result result(function, nb::none(), nb::none(), {sum_of(lengths), bert.config().hidden_size});
  const View<float, 2> y = matrix_of<float>(result.array());
  Signals signals;
  if (!ids.empty())
    compute(function, [&] {
      bert.encode(ids, y,
                  {.token_type_ids = types,
                   .truncate = truncate,
                   .progress = [&](const EncodeProgress&) { signals(); },
                   .num_threads = threads});
    });
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
          [](Bert* self, const nb::bytes& folder) {
            const std::filesystem::path path = folder_of(folder);
            compute("Bert", [&] { new (self) Bert(path); });
          },
          arg("folder"))
      .def("embed", &embed, arg("ids"), arg("token_type_ids").none(), arg("pooling").none(), arg("normalize").none(),
           arg("truncate").none(), arg("out").none(), arg("num_threads").none(), arg("prompt_tokens").none())
      .def("encode", &encode, arg("ids"), arg("token_type_ids").none(), arg("truncate").none(),
           arg("num_threads").none())
      .def(
          "embedding_size",
          [](const Bert& bert, nb::handle pooling) {
            return pooling.is_none() ? bert.embedding_size()
                                     : bert.embedding_size(pooling_named("embedding_size", pooling));
          },
          arg("pooling").none())
      .def_prop_ro("config", &config_of)
      .def_prop_ro("folder", [](const Bert& bert) {
        const std::string name = bert.folder().string();
        return nb::bytes(name.data(), name.size());
      });
}

}  // namespace headlane::python
