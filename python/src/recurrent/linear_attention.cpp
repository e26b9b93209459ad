// linear_attention: from arrays of two to four axes to the library's [batch, heads, length, dim].
#include <headlane/linear_attention.hpp>

#include "core/batch.hpp"
#include "core/define.hpp"
#include "core/functions.hpp"
#include "recurrent/recurrent.hpp"

namespace headlane::python {
namespace {

/// q, k and v, with a common batch axis if they have four axes.
struct Tokens {
  Tokens(const Call& call, nb::handle given_q, nb::handle given_k, nb::handle given_v)
      : q(call, "q", given_q, Floats()), k(call, "k", given_k, Floats()), v(call, "v", given_v, Floats()) {
    for (const Array* array : {&std::as_const(q), &std::as_const(k), &std::as_const(v)}) {
      array->require(2 <= array->rank() && array->rank() <= 4, " has shape ", *array,
                     ", wanted [batch, heads, length, dim], the first two or one of them at will");
      array->require(array->rank() == q.rank(), " has shape ", *array, ", q ", q, ": not as many axes");
      batch.widen(*array);
    }
  }

  Array q, k, v;
  Batch batch{3};

  [[nodiscard]] std::vector<Index> shape() const {
    std::vector<Index> result = v.shape();
    if (batch.rank() > 0) result[0] = batch.size(0);
    return result;
  }

  [[nodiscard]] Index heads() const { return v.rank() > 2 ? v.size(-3) : 1; }

  template <class T>
  [[nodiscard]] View<const T, 4> view(const Array& x) const {
    View<const T, 4> result = view_of<const T, 4>(x);
    if (batch.rank() > 0) {
      result.shape[0] = batch.size(0);
      result.strides[0] = batch.stride(x, 0);
    }
    return result;
  }
};

/// An option, broadcast to `shape`, which gets axes of size 1 before it until there are `rank`.
/// `what`: the name of this shape in messages.
AnyView<const float> broadcast(const Array& x, const std::vector<Index>& shape, int rank, const char* what) {
  AnyView<const float> view;
  view.data = x.data<float>();
  view.rank = rank;
  const std::size_t missing = static_cast<std::size_t>(rank) - shape.size();
  std::fill_n(view.shape.begin(), missing, 1);
  std::copy(shape.begin(), shape.end(), view.shape.begin() + static_cast<std::ptrdiff_t>(missing));
  broadcast_strides(x, shape, view.strides.data() + missing, what);
  return view;
}

/// Decays of a token have an axis less than v, those of the elements of a key as many.
AnyView<const float> decays(const Array& x, const Tokens& of) {
  std::vector<Index> shape = of.shape();
  if (x.rank() >= of.v.rank()) {
    shape.back() = of.k.size(-1);
    return broadcast(x, shape, 4, "the tokens, ");
  }
  shape.pop_back();
  return broadcast(x, shape, 3, "the tokens, ");
}

View<const float, 3> betas(const Array& x, const Tokens& of) {
  std::vector<Index> shape = of.shape();
  shape.pop_back();
  const AnyView<const float> view = broadcast(x, shape, 3, "the tokens, ");
  return {
      view.data, {view.shape[0], view.shape[1], view.shape[2]}, {view.strides[0], view.strides[1], view.strides[2]}};
}

constexpr const char* of_heads = "the heads, ";

/// A number for each head.
View<const float, 1> of_each_head(const Array& x, const Tokens& of) {
  const AnyView<const float> view = broadcast(x, {of.heads()}, 1, of_heads);
  return {view.data, {view.shape[0]}, {view.strides[0]}};
}

/// Biases of heads, or of the elements of their keys; without the heads' axis if v has none.
AnyView<const float> biases(const Array& x, const Tokens& of, bool has_row_decays) {
  const Index key_dim = of.k.size(-1);
  if (of.v.rank() > 2)
    return x.rank() > 1 ? broadcast(x, {of.heads(), key_dim}, 2, of_heads) : broadcast(x, {of.heads()}, 1, of_heads);
  return x.rank() > 0 && has_row_decays ? broadcast(x, {key_dim}, 2, "the key, ") : broadcast(x, {1}, 1, of_heads);
}

const char* state_of_rank(int rank) {
  return rank == 4   ? "[batch, heads, key_dim, value_dim]"
         : rank == 3 ? "[heads, key_dim, value_dim]"
                     : "[key_dim, value_dim]";
}

nb::object linear_attention_of(nb::handle q, nb::handle k, nb::handle v, nb::handle log_decay, nb::handle beta,
                               nb::handle state, nb::handle a_log, nb::handle dt_bias, nb::handle discretize,
                               nb::handle min_step, nb::handle max_step, nb::handle sigmoid_beta, nb::handle beta_scale,
                               nb::handle skip, nb::handle scale, nb::handle normalize, nb::handle eps, nb::handle out,
                               nb::handle num_threads) {
  const Call call("linear_attention");
  Tokens of(call, q, k, v);
  const std::optional<Array> of_decay = optional_array(call, "log_decay", log_decay, Element::float32),
                             of_beta = optional_array(call, "beta", beta, Element::float32),
                             of_rates = optional_array(call, "a_log", a_log, Element::float32),
                             of_biases = optional_array(call, "dt_bias", dt_bias, Element::float32),
                             of_skip = optional_array(call, "skip", skip, Element::float32);
  State of_state(call, state, of.v.rank(), state_of_rank(of.v.rank()));
  LinearAttentionOptions options{.normalize = call.flag("normalize", normalize),
                                 .eps = call.float32("eps", eps),
                                 .discretize = call.flag("discretize", discretize),
                                 .min_step = call.float32("min_step", min_step),
                                 .max_step = call.float32("max_step", max_step),
                                 .sigmoid_beta = call.flag("sigmoid_beta", sigmoid_beta),
                                 .beta_scale = call.float32("beta_scale", beta_scale),
                                 .num_threads = call.threads(num_threads)};
  if (!scale.is_none()) options.scale = call.float32("scale", scale);
  if (of_decay) options.log_decay = decays(*of_decay, of);
  if (of_beta) options.beta = betas(*of_beta, of);
  if (of_rates) options.a_log = of_each_head(*of_rates, of);
  if (of_biases) options.dt_bias = biases(*of_biases, of, options.log_decay.rank == 4);
  if (of_skip) options.skip = of_each_head(*of_skip, of);
  Result result(call, of.q.like(), out, of.shape(), Floats());
  of_state.finish(result);
  options.state = of_state.view<4>();
  compute_in_own_type(call, {&of.q, &of.k, &of.v}, result, [&]<class T>(T) {
    linear_attention(of.view<T>(of.q), of.view<T>(of.k), of.view<T>(of.v), view_of<T, 4>(result.array()), options);
  });
  of_state.announce();
  return result.object();
}

}  // namespace

void add_linear_attention(nb::module_& module) {
  define(module, "linear_attention", &linear_attention_of, "q", "k", "v", "log_decay", "beta", "state", "a_log",
         "dt_bias", "discretize", "min_step", "max_step", "sigmoid_beta", "beta_scale", "skip", "scale", "normalize",
         "eps", "out", "num_threads");
}

}  // namespace headlane::python
