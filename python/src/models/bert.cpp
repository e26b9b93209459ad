// The class Bert, which headlane/models/_bert.py wraps.
#include <headlane/models/bert.hpp>

#include "models/models.hpp"

#include <nanobind/stl/string.h>
#include <optional>

namespace headlane::python {
namespace {

using models::Bert;
using models::EncodeProgress;
using models::Pooling;

Pooling pooling_named(const Call& call, nb::handle given) {
  const std::string name = call.text("pooling", given);
  std::string names;
  for (const auto& [known, pooling] : models::pooling_names) {
    if (name == known) return pooling;
    names.append(names.empty() ? "'" : ", '").append(known).append("'");
  }
  call.require(false, "pooling is '", name, "'; there are ", names);
  return Pooling::none;
}

/// The name of a pooling, or a tuple of names.
nb::object names_of(const std::vector<Pooling>& poolings) {
  nb::list names;
  for (const Pooling pooling : poolings)
    for (const auto& [known, value] : models::pooling_names)
      if (value == pooling) names.append(nb::str(known.data(), known.size()));
  return poolings.size() == 1 ? nb::object(names[0]) : nb::object(nb::tuple(names));
}

/// The number of tokens of each sentence, after truncation.
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

std::vector<std::vector<Index>> types_of(const Call& call, nb::handle types) {
  return types.is_none() ? std::vector<std::vector<Index>>() : sentences_of(call, "token_type_ids", types);
}

/// A call without sentences computes nothing, on all ranks of a team.
bool is_empty_on_all_ranks(const Bert& bert, const char* function, const std::vector<std::vector<Index>>& ids) {
  if (ids.empty() && bert.team() != nullptr && bert.team()->size() > 1) bert.team()->agree(function, "no sentences");
  return ids.empty();
}

nb::object embed(const Bert& bert, nb::handle given, nb::handle given_types, nb::handle pooling,
                 nb::handle given_normalize, nb::handle given_truncate, nb::handle out, nb::handle num_threads,
                 nb::handle given_prompt_tokens) {
  const Call call("embed");
  return on_ranks(call, bert.team(), "embed", [&] {
    const auto ids = sentences_of(call, "ids", given), types = types_of(call, given_types);
    std::optional<Pooling> pooled;
    if (!pooling.is_none()) pooled = pooling_named(call, pooling);
    const bool truncate = call.flag("truncate", given_truncate);
    std::optional<bool> normalize;
    if (!given_normalize.is_none()) normalize = call.flag("normalize", given_normalize);
    const Index prompt_tokens = call.integer("prompt_tokens", given_prompt_tokens);
    const bool pools = pooled.value_or(bert.config().pooling.front()) != Pooling::none;
    const Index rows = pools ? static_cast<Index>(ids.size()) : sum_of(lengths_of(bert, ids, truncate));
    const int threads = call.threads(num_threads);
    const Result result(call, {}, out, {rows, bert.embedding_size(pooled)});
    const View<float, 2> y = view_of<float, 2>(result.array());
    if (is_empty_on_all_ranks(bert, "embed", ids)) return result.object();
    Signals signals;
    call.compute([&] {
      bert.embed(ids, y,
                 {.pooling = pooled,
                  .normalize = normalize,
                  .token_type_ids = types,
                  .truncate = truncate,
                  .prompt_tokens = prompt_tokens,
                  .progress = [&](const EncodeProgress&) { signals(); },
                  .num_threads = threads});
    });
    return result.object();
  });
}

/// The states, and the number of rows of each sentence.
nb::tuple encode(const Bert& bert, nb::handle given, nb::handle given_types, nb::handle given_truncate,
                 nb::handle num_threads) {
  const Call call("encode");
  return on_ranks(call, bert.team(), "encode", [&] {
    const auto ids = sentences_of(call, "ids", given), types = types_of(call, given_types);
    const bool truncate = call.flag("truncate", given_truncate);
    const std::vector<Index> lengths = lengths_of(bert, ids, truncate);
    const int threads = call.threads(num_threads);
    const Result result(call, {}, nb::none(), {sum_of(lengths), bert.config().hidden_size});
    const View<float, 2> y = view_of<float, 2>(result.array());
    Signals signals;
    if (!is_empty_on_all_ranks(bert, "encode", ids))
      call.compute([&] {
        bert.encode(ids, y,
                    {.token_type_ids = types,
                     .truncate = truncate,
                     .progress = [&](const EncodeProgress&) { signals(); },
                     .num_threads = threads});
      });
    nb::list rows;
    for (const Index length : lengths) rows.append(length);
    return nb::make_tuple(result.object(), rows);
  });
}

/// None for "not set".
nb::object none_or(bool is_set, const nb::object& value) { return is_set ? value : nb::none(); }

nb::dict config_of(const Bert& bert) {
  using models::BertConfig;
  const BertConfig& config = bert.config();
  nb::dict result = dict_of(
      config, std::pair("vocab_size", &BertConfig::vocab_size), std::pair("hidden_size", &BertConfig::hidden_size),
      std::pair("num_hidden_layers", &BertConfig::num_hidden_layers),
      std::pair("num_attention_heads", &BertConfig::num_attention_heads),
      std::pair("intermediate_size", &BertConfig::intermediate_size),
      std::pair("max_position_embeddings", &BertConfig::max_position_embeddings),
      std::pair("type_vocab_size", &BertConfig::type_vocab_size),
      std::pair("layer_norm_eps", &BertConfig::layer_norm_eps), std::pair("normalize", &BertConfig::normalize),
      std::pair("max_seq_length", &BertConfig::max_seq_length),
      std::pair("include_prompt", &BertConfig::include_prompt), std::pair("do_lower_case", &BertConfig::do_lower_case));
  nb::dict prompts;
  for (const auto& [name, prompt] : config.prompts) prompts[name.c_str()] = prompt;
  result["pooling"] = names_of(config.pooling);
  result["truncate_dim"] = none_or(config.truncate_dim != 0, nb::int_(config.truncate_dim));
  result["prompts"] = prompts;
  result["default_prompt_name"] = none_or(!config.default_prompt_name.empty(), nb::cast(config.default_prompt_name));
  return result;
}

nb::object embedding_size_of(const Bert& bert, nb::handle pooling) {
  const Call call("embedding_size");
  return nb::int_(pooling.is_none() ? bert.embedding_size() : bert.embedding_size(pooling_named(call, pooling)));
}

}  // namespace

void add_bert(nb::module_& module) {
  nb::class_<Bert> bert = define_model<Bert>(module, "Bert");
  define(bert, "embed", &embed, "ids", "token_type_ids", "pooling", "normalize", "truncate", "out", "num_threads",
         "prompt_tokens");
  define(bert, "encode", &encode, "ids", "token_type_ids", "truncate", "num_threads");
  define(bert, "embedding_size", &embedding_size_of, "pooling");
  bert.def_prop_ro("config", &config_of).def_prop_ro("folder", [](const Bert& self) {
    const std::string name = self.folder().string();
    return nb::bytes(name.data(), name.size());
  });
}

}  // namespace headlane::python
