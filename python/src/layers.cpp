// The classes Linear, Embedding and FeedForward, and what all layers share. Layers do not change once they are made.
#include "layers.hpp"

#include "products.hpp"

#include <algorithm>

namespace headlane::python {

Tensors::Tensors(const char* layer, nb::handle state, const std::string& prefix,
                 std::initializer_list<std::string_view> parts) {
  if (!nb::hasattr(state, "items"))
    throw nb::type_error(
        (std::string(layer) + ": state has type " + nb::type_name(state.type()).c_str() + "; wanted: a dict").c_str());
  for (const nb::handle item : state.attr("items")()) {
    const nb::object key = item[0], value = item[1];
    const std::string name = nb::str(key).c_str();
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

nb::object integers_of(const char* function, const char* name, nb::handle given) {
  const nb::object array = nb::module_::import_("numpy").attr("asarray")(given), dtype = array.attr("dtype");
  const std::string kind = nb::str(dtype.attr("kind")).c_str();
  if (kind != "i" && kind != "u" && nb::cast<Index>(array.attr("size")) > 0)
    throw nb::type_error((std::string(function) + ": " + name + " has dtype " + nb::str(nb::handle(dtype)).c_str() +
                          "; wanted: integers")
                             .c_str());
  return array.attr("astype")("int64", nb::arg("copy") = false);
}

Integers::Integers(const char* function, const char* name, nb::handle given) {
  if (given.is_none()) return;
  array_.emplace(function, name, integers_of(function, name, given));
  require(array_->rank() == 1, function, ": ", name, " has shape ", *array_, "; wanted: one axis");
}

View<const Index, 1> Integers::view() const {
  if (!array_) return {};
  return {array_->integers(), {array_->size(0)}, {array_->stride(0)}};
}

namespace {

constexpr const char* of_linear =
    R"(torch.nn.Linear with the weight [out_features, in_features] and, if it is there, the bias of a state dict.

state: a dict of float32 arrays of any kind, as state_dict() of a PyTorch module is; the tensors are prefix + "weight" and prefix + "bias".
The weight is packed once and neither is needed afterwards. A layer never changes; any number of threads may use it.)";

constexpr const char* of_embedding =
    R"(torch.nn.Embedding: prefix + "weight" [num_embeddings, embedding_dim] of a state dict (see Linear).

tied: the weight is the output layer's as well, for logits(). It is kept once.
max_length: tokens that a sequence may have; None: any number.)";

constexpr const char* of_feed_forward =
    R"(linear2(activation(linear1(x))), as torch.nn.TransformerEncoderLayer has it; the hidden layer is never stored whole.

state: "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias" (see Linear); with "linear_gate.weight" it is gated:
linear2(activation(linear_gate(x)) * linear1(x)). Biases may be absent.
activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf" or None.)";

constexpr const char* forward_linear =
    R"(activation(x @ weight.T + bias) + residual of x [batch, length, in_features] or [length, in_features].

activation: as in FeedForward. residual: of the result's shape. out: where to write the result; must overlap nothing.
num_threads: for this call; num_threads() if None.)";

constexpr const char* forward_embedding =
    R"(The vectors of ids, integers [batch, length] or [length], times scale: sqrt(d_model) in the paper.

truncate: of longer sequences the first max_length tokens, instead of an error.
add: adds to what out holds, for the sum of several embeddings. The result is a NumPy array if out is None.)";

nb::object linear_forward(const Linear& self, nb::handle x, std::optional<std::string_view> activation,
                          nb::handle residual, nb::handle out, std::optional<int> num_threads) {
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

nb::object embedding_forward(const Embedding& self, Index max_length, nb::handle ids, float scale, bool add,
                             bool truncate, nb::handle out) {
  constexpr const char* function = "Embedding.forward";
  const nb::object numbers = integers_of(function, "ids", ids);
  const Array of_ids(function, "ids", numbers);
  require(of_ids.rank() == 1 || of_ids.rank() == 2, function, ": ids has shape ", of_ids,
          "; wanted: [batch, length] or [length]");
  require(!add || !out.is_none(), function, ": add is True, and out None");
  const bool batch = of_ids.rank() == 2;
  const View<const Index, 2> view(of_ids.integers(), {batch ? of_ids.size(0) : 1, of_ids.size(-1)},
                                  {batch ? of_ids.stride(0) : 0, of_ids.stride(-1)});
  std::vector<Index> shape = of_ids.shape();
  if (truncate && max_length > 0) shape.back() = std::min(shape.back(), max_length);
  shape.push_back(self.embedding_dim());
  const Result result(function, numbers, out, shape);
  const View<float, 3> y = rows_of<float>(function, result.array());
  compute_layer(function, [&] { self.forward(view, y, {.scale = scale, .add = add, .truncate = truncate}); });
  return result.object();
}

/// Embedding, and the length that it does not tell.
struct LimitedEmbedding {
  Embedding layer;
  Index max_length;
};

}  // namespace

void add_layers(nb::module_& module) {
  using nb::arg;
  const auto forward = [](auto& one, const char* name, auto function, const auto&... extra) {
    one.def(name, function, extra...).def("__call__", function, extra...);
  };
  nb::class_<Linear> linear(module, "Linear", nb::is_final(), of_linear);
  linear.def(
      "__init__",
      [](Linear* self, nb::handle state, const std::string& prefix) {
        construct(self, "Linear", Tensors("Linear", state, prefix, {"weight", "bias"}), prefix);
      },
      arg("state").none(), arg("prefix") = "");
  forward(linear, "forward", &linear_forward, arg("x").none(), nb::kw_only(), arg("activation").none() = nb::none(),
          arg("residual").none() = nb::none(), arg("out").none() = nb::none(), arg("num_threads").none() = nb::none(),
          forward_linear);
  linear.def_prop_ro("in_features", &Linear::in_features).def_prop_ro("out_features", &Linear::out_features);

  nb::class_<LimitedEmbedding> embedding(module, "Embedding", nb::is_final(), of_embedding);
  embedding.def(
      "__init__",
      [](LimitedEmbedding* self, nb::handle state, const std::string& prefix, bool tied,
         std::optional<Index> max_length) {
        const Tensors tensors("Embedding", state, prefix, {"weight"});
        const EmbeddingOptions options{.tied = tied, .max_length = max_length.value_or(0)};
        require(options.max_length > 0 || !max_length, "Embedding: max_length is ", options.max_length,
                ", the least is 1");
        std::optional<Embedding> layer;
        compute_layer("Embedding", [&] { layer.emplace(tensors.dict(), prefix, options); });
        new (self) LimitedEmbedding{std::move(*layer), options.max_length};
      },
      arg("state").none(), arg("prefix") = "", nb::kw_only(), arg("tied") = false,
      arg("max_length").none() = nb::none());
  forward(
      embedding, "forward",
      [](const LimitedEmbedding& self, nb::handle ids, float scale, bool add, bool truncate, nb::handle out) {
        return embedding_forward(self.layer, self.max_length, ids, scale, add, truncate, out);
      },
      arg("ids").none(), nb::kw_only(), arg("scale") = 1.0f, arg("add") = false, arg("truncate") = false,
      arg("out").none() = nb::none(), forward_embedding);
  embedding.def(
      "logits",
      [](const LimitedEmbedding& self, nb::handle x, nb::handle out, std::optional<int> num_threads) {
        constexpr const char* function = "Embedding.logits";
        const int threads = threads_of(function, num_threads);
        const Rows rows(function, x, out, self.layer.num_embeddings());
        compute_layer(function, [&] { self.layer.logits(rows.x(), rows.y(), threads); });
        return rows.object();
      },
      arg("x").none(), nb::kw_only(), arg("out").none() = nb::none(), arg("num_threads").none() = nb::none(),
      "x @ weight.T, [..., length, num_embeddings]; of a tied embedding.");
  embedding.def_prop_ro("num_embeddings", [](const LimitedEmbedding& self) { return self.layer.num_embeddings(); })
      .def_prop_ro("embedding_dim", [](const LimitedEmbedding& self) { return self.layer.embedding_dim(); });

  nb::class_<FeedForward> feed_forward(module, "FeedForward", nb::is_final(), of_feed_forward);
  feed_forward.def(
      "__init__",
      [](FeedForward* self, nb::handle state, const std::string& prefix, std::optional<std::string_view> activation) {
        const FeedForwardOptions options{.activation = activation_named("FeedForward", activation)};
        construct(self, "FeedForward", Tensors("FeedForward", state, prefix, {"linear1.", "linear2.", "linear_gate."}),
                  prefix, options);
      },
      arg("state").none(), arg("prefix") = "", nb::kw_only(), arg("activation").none() = "relu");
  forward(
      feed_forward, "forward",
      [](const FeedForward& self, nb::handle x, nb::handle out, std::optional<int> num_threads) {
        constexpr const char* function = "FeedForward.forward";
        const int threads = threads_of(function, num_threads);
        const Rows rows(function, x, out, self.d_model());
        compute_layer(function, [&] { self.forward(rows.x(), rows.y(), threads); });
        return rows.object();
      },
      arg("x").none(), nb::kw_only(), arg("out").none() = nb::none(), arg("num_threads").none() = nb::none(),
      "The layer of x [batch, length, d_model] or [length, d_model]; out may be x itself.");
  feed_forward.def_prop_ro("d_model", &FeedForward::d_model).def_prop_ro("d_ff", &FeedForward::d_ff);
}

}  // namespace headlane::python
