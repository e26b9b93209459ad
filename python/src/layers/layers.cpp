// The classes Linear, Embedding and FeedForward, and state dicts. Layers are immutable.
#include "layers/layers.hpp"

#include "core/array_kinds.hpp"
#include "core/define.hpp"
#include "core/dtype.hpp"
#include "gemm/products.hpp"

#include <algorithm>

namespace headlane::python {

Tensors::Tensors(const Call& call, nb::handle state, nb::handle prefix, const std::vector<std::string_view>& parts)
    : call_(&call), prefix_(call.text("prefix", prefix)) {
  if (!nb::hasattr(state, "items")) call.refuse_type("state", state, "a dict");
  for (const nb::handle item : state.attr("items")()) {
    const nb::object key = item[0], value = item[1];
    const std::string name = call.text("a name in state", key);
    const auto fits = [&](std::string_view part) {
      return name.starts_with(prefix_) && std::string_view(name).substr(prefix_.size()).starts_with(part);
    };
    if (std::none_of(parts.begin(), parts.end(), fits)) continue;
    names_.push_back(name);
    if (const PackedMatrix* const packed = call.instance<PackedMatrix>(name, value)) {
      packed_.push_back(value);
      dict_.packed[name] = packed;
      continue;
    }
    dict_[name] = any_view<const float>(arrays_.emplace_back(call, names_.back().c_str(), value, Element::float32));
  }
}

namespace {

nb::object linear_forward(const Linear& self, nb::handle x, nb::handle activation, nb::handle residual, nb::handle out,
                          nb::handle num_threads) {
  const Call call("Linear.forward");
  LinearOptions options{.activation = activation_named(call, activation), .num_threads = call.threads(num_threads)};
  const Rows rows(call, x, out, self.out_features());
  const std::optional<Array> added = optional_array(call, "residual", residual, Floats());
  if (added) options.residual = typed(rows_of<const float>(*added), *added);
  call.compute([&] { self.forward(rows.x(), rows.y(), options); });
  return rows.object();
}

/// An Embedding and its max_length, which the library's class does not tell.
struct LimitedEmbedding {
  Embedding layer;
  Index max_length;
};

nb::object embedding_forward(const LimitedEmbedding& self, nb::handle ids, nb::handle scale, nb::handle given_add,
                             nb::handle given_truncate, nb::handle out) {
  const Call call("Embedding.forward");
  const bool add = call.flag("add", given_add), truncate = call.flag("truncate", given_truncate);
  const float factor = call.float32("scale", scale);
  const nb::object numbers = int64_array(call, "ids", ids);
  const Array of_ids(call, "ids", numbers);
  of_ids.require(of_ids.rank() == 1 || of_ids.rank() == 2, " has shape ", of_ids,
                 "; wanted: [batch, length] or [length]");
  call.require(!add || !out.is_none(), "add is True, and out None");
  const View<const Index, 2> view = view_of<const Index, 2>(of_ids);
  std::vector<Index> shape = of_ids.shape();
  if (truncate && self.max_length > 0) shape.back() = std::min(shape.back(), self.max_length);
  shape.push_back(self.layer.embedding_dim());
  const Result result(call, {}, out, shape, add ? Access::update : Access::write);
  const View<float, 3> y = rows_of<float>(result.array());
  call.compute([&] { self.layer.forward(view, y, {.scale = factor, .add = add, .truncate = truncate}); });
  return result.object();
}

void add_linear(nb::module_& module) {
  nb::class_<Linear> linear(module, "Linear");
  define(
      linear, "__init__",
      [](Linear* self, nb::handle state, nb::handle prefix, nb::handle weights, nb::handle activations) {
        const Call call("Linear");
        construct(self, Tensors(call, state, prefix, {"weight", "bias"}), dtype_named(call, "weights", weights),
                  activations_named(call, activations));
      },
      "state", "prefix", "weights", "activations");
  define(linear, "forward", &linear_forward, "x", "activation", "residual", "out", "num_threads");
  define(linear, "state_dict", &state_of<Linear>);
  linear.def_prop_ro("in_features", &Linear::in_features).def_prop_ro("out_features", &Linear::out_features);
}

void add_embedding(nb::module_& module) {
  nb::class_<LimitedEmbedding> embedding(module, "Embedding");
  define(
      embedding, "__init__",
      [](LimitedEmbedding* self, nb::handle state, nb::handle prefix, nb::handle tied, nb::handle max_length,
         nb::handle weights, nb::handle activations) {
        const Call call("Embedding");
        const Tensors tensors(call, state, prefix, {"weight"});
        EmbeddingOptions options{.tied = call.flag("tied", tied),
                                 .weights = dtype_named(call, "weights", weights),
                                 .activations = activations_named(call, activations)};
        if (!max_length.is_none()) options.max_length = call.integer("max_length", max_length);
        call.require(options.max_length > 0 || max_length.is_none(), "max_length is ", options.max_length,
                     ", the minimum is 1");
        new (self) LimitedEmbedding{layer_of<Embedding>(tensors, options), options.max_length};
      },
      "state", "prefix", "tied", "max_length", "weights", "activations");
  define(embedding, "forward", &embedding_forward, "ids", "scale", "add", "truncate", "out");
  define(
      embedding, "logits",
      [](const LimitedEmbedding& self, nb::handle x, nb::handle out, nb::handle num_threads) {
        const Call call("Embedding.logits");
        const int threads = call.threads(num_threads);
        const Rows rows(call, x, out, self.layer.num_embeddings());
        call.compute([&] { self.layer.logits(rows.x(), rows.y(), threads); });
        return rows.object();
      },
      "x", "out", "num_threads");
  define(embedding, "state_dict", [](const LimitedEmbedding& self) { return state_of(self.layer); });
  embedding.def_prop_ro("num_embeddings", [](const LimitedEmbedding& self) { return self.layer.num_embeddings(); })
      .def_prop_ro("embedding_dim", [](const LimitedEmbedding& self) { return self.layer.embedding_dim(); });
}

void add_feed_forward(nb::module_& module) {
  nb::class_<FeedForward> feed_forward(module, "FeedForward");
  define(
      feed_forward, "__init__",
      [](FeedForward* self, nb::handle state, nb::handle prefix, nb::handle activation, nb::handle weights,
         nb::handle activations) {
        const Call call("FeedForward");
        const FeedForwardOptions options{.activation = activation_named(call, activation),
                                         .weights = dtype_named(call, "weights", weights),
                                         .activations = activations_named(call, activations)};
        construct(self, Tensors(call, state, prefix, {"linear1.", "linear2.", "linear_gate."}), options);
      },
      "state", "prefix", "activation", "weights", "activations");
  define(
      feed_forward, "forward",
      [](const FeedForward& self, nb::handle x, nb::handle out, nb::handle num_threads) {
        const Call call("FeedForward.forward");
        const int threads = call.threads(num_threads);
        const Rows rows(call, x, out, self.d_model());
        call.compute([&] { self.forward(rows.x(), rows.y(), threads); });
        return rows.object();
      },
      "x", "out", "num_threads");
  define(feed_forward, "state_dict", &state_of<FeedForward>);
  feed_forward.def_prop_ro("d_model", &FeedForward::d_model).def_prop_ro("d_ff", &FeedForward::d_ff);
}

}  // namespace

void add_layers(nb::module_& module) {
  add_linear(module);
  add_embedding(module);
  add_feed_forward(module);
}

}  // namespace headlane::python
