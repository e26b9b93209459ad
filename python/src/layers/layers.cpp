// The classes Linear, Embedding and FeedForward, and what all layers share. Layers do not change once they are made.
#include "layers/layers.hpp"

#include "core/array_kinds.hpp"
#include "gemm/products.hpp"

#include <algorithm>

namespace headlane::python {

Tensors::Tensors(const char* layer, nb::handle state, const std::string& prefix,
                 std::initializer_list<std::string_view> parts) {
  if (!nb::hasattr(state, "items"))
    throw nb::type_error(
        (std::string(layer) + ": state has type " + nb::type_name(state.type()).c_str() + "; wanted: a dict").c_str());
  for (const nb::handle item : state.attr("items")()) {
    const nb::object key = item[0], value = item[1];
    const std::string name = text_of(layer, "a name in state", key);
    const auto fits = [&](std::string_view part) {
      return name.starts_with(prefix) && std::string_view(name).substr(prefix.size()).starts_with(part);
    };
    if (std::none_of(parts.begin(), parts.end(), fits)) continue;
    names_.push_back(name);
    const Array& array = arrays_.emplace_back(layer, names_.back().c_str(), value);
    array.require_float();
    dict_[name] = any_view<const float>(array);
  }
}

Integers::Integers(const char* function, const char* name, nb::handle given) {
  if (given.is_none()) return;
  array_.emplace(function, name, int64_array(function, name, given));
  require(array_->rank() == 1, function, ": ", name, " has shape ", *array_, "; wanted: one axis");
}

View<const Index, 1> Integers::view() const {
  if (!array_) return {};
  return {array_->integers(), {array_->size(0)}, {array_->stride(0)}};
}

namespace {

nb::object linear_forward(const Linear& self, nb::handle x, nb::handle activation, nb::handle residual, nb::handle out,
                          nb::handle num_threads) {
  constexpr const char* function = "Linear.forward";
  LinearOptions options{.activation = activation_named(function, activation),
                        .num_threads = threads_of(function, num_threads)};
  const Rows rows(function, x, out, self.out_features());
  std::optional<Array> added;
  if (!residual.is_none()) {
    added.emplace(function, "residual", residual);
    options.residual = rows_of<const float>(function, *added);
  }
  compute_layer(function, [&] { self.forward(rows.x(), rows.y(), options); });
  return rows.object();
}

/// Embedding, and the length that it does not tell.
struct LimitedEmbedding {
  Embedding layer;
  Index max_length;
};

nb::object embedding_forward(const LimitedEmbedding& self, nb::handle ids, nb::handle scale, nb::handle given_add,
                             nb::handle given_truncate, nb::handle out) {
  constexpr const char* function = "Embedding.forward";
  const bool add = flag_of(function, "add", given_add), truncate = flag_of(function, "truncate", given_truncate);
  const float factor = float_of(function, "scale", scale);
  const nb::object numbers = int64_array(function, "ids", ids);
  const Array of_ids(function, "ids", numbers);
  require(of_ids.rank() == 1 || of_ids.rank() == 2, function, ": ids has shape ", of_ids,
          "; wanted: [batch, length] or [length]");
  require(!add || !out.is_none(), function, ": add is True, and out None");
  const bool batch = of_ids.rank() == 2;
  const View<const Index, 2> view(of_ids.integers(), {batch ? of_ids.size(0) : 1, of_ids.size(-1)},
                                  {batch ? of_ids.stride(0) : 0, of_ids.stride(-1)});
  std::vector<Index> shape = of_ids.shape();
  if (truncate && self.max_length > 0) shape.back() = std::min(shape.back(), self.max_length);
  shape.push_back(self.layer.embedding_dim());
  const Result result(function, numbers, out, shape);
  const View<float, 3> y = rows_of<float>(function, result.array());
  compute_layer(function, [&] { self.layer.forward(view, y, {.scale = factor, .add = add, .truncate = truncate}); });
  return result.object();
}

}  // namespace

void add_layers(nb::module_& module) {
  using nb::arg;
  nb::class_<Linear>(module, "Linear")
      .def(
          "__init__",
          [](Linear* self, nb::handle state, nb::handle given_prefix) {
            const std::string prefix = text_of("Linear", "prefix", given_prefix);
            construct(self, "Linear", Tensors("Linear", state, prefix, {"weight", "bias"}), prefix);
          },
          arg("state").none(), arg("prefix").none())
      .def("forward", &linear_forward, arg("x").none(), arg("activation").none(), arg("residual").none(),
           arg("out").none(), arg("num_threads").none())
      .def("state_dict", &state_of<Linear>)
      .def_prop_ro("in_features", &Linear::in_features)
      .def_prop_ro("out_features", &Linear::out_features);

  nb::class_<LimitedEmbedding>(module, "Embedding")
      .def(
          "__init__",
          [](LimitedEmbedding* self, nb::handle state, nb::handle given_prefix, nb::handle tied,
             nb::handle max_length) {
            const std::string prefix = text_of("Embedding", "prefix", given_prefix);
            const Tensors tensors("Embedding", state, prefix, {"weight"});
            EmbeddingOptions options{.tied = flag_of("Embedding", "tied", tied)};
            if (!max_length.is_none()) options.max_length = integer_of("Embedding", "max_length", max_length);
            require(options.max_length > 0 || max_length.is_none(), "Embedding: max_length is ", options.max_length,
                    ", the least is 1");
            std::optional<Embedding> layer;
            compute_layer("Embedding", [&] { layer.emplace(tensors.dict(), prefix, options); });
            new (self) LimitedEmbedding{std::move(*layer), options.max_length};
          },
          arg("state").none(), arg("prefix").none(), arg("tied").none(), arg("max_length").none())
      .def("forward", &embedding_forward, arg("ids").none(), arg("scale").none(), arg("add").none(),
           arg("truncate").none(), arg("out").none())
      .def(
          "logits",
          [](const LimitedEmbedding& self, nb::handle x, nb::handle out, nb::handle num_threads) {
            constexpr const char* function = "Embedding.logits";
            const int threads = threads_of(function, num_threads);
            const Rows rows(function, x, out, self.layer.num_embeddings());
            compute_layer(function, [&] { self.layer.logits(rows.x(), rows.y(), threads); });
            return rows.object();
          },
          arg("x").none(), arg("out").none(), arg("num_threads").none())
      .def("state_dict", [](const LimitedEmbedding& self) { return state_of(self.layer); })
      .def_prop_ro("num_embeddings", [](const LimitedEmbedding& self) { return self.layer.num_embeddings(); })
      .def_prop_ro("embedding_dim", [](const LimitedEmbedding& self) { return self.layer.embedding_dim(); });

  nb::class_<FeedForward>(module, "FeedForward")
      .def(
          "__init__",
          [](FeedForward* self, nb::handle state, nb::handle given_prefix, nb::handle activation) {
            const std::string prefix = text_of("FeedForward", "prefix", given_prefix);
            const FeedForwardOptions options{.activation = activation_named("FeedForward", activation)};
            construct(self, "FeedForward",
                      Tensors("FeedForward", state, prefix, {"linear1.", "linear2.", "linear_gate."}), prefix, options);
          },
          arg("state").none(), arg("prefix").none(), arg("activation").none())
      .def(
          "forward",
          [](const FeedForward& self, nb::handle x, nb::handle out, nb::handle num_threads) {
            constexpr const char* function = "FeedForward.forward";
            const int threads = threads_of(function, num_threads);
            const Rows rows(function, x, out, self.d_model());
            compute_layer(function, [&] { self.forward(rows.x(), rows.y(), threads); });
            return rows.object();
          },
          arg("x").none(), arg("out").none(), arg("num_threads").none())
      .def("state_dict", &state_of<FeedForward>)
      .def_prop_ro("d_model", &FeedForward::d_model)
      .def_prop_ro("d_ff", &FeedForward::d_ff);
}

}  // namespace headlane::python
