// The class Experts: the gated feed-forward networks of a mixture of experts, of which each token
// takes some. It is immutable.
#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "core/parallel.hpp"
#include "core/result.hpp"
#include "gemm/products.hpp"

#include <headlane/gemm_gated.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace headlane::python {
namespace {

/// The matrices of an expert: gate and up [width, hidden], down [hidden, width].
struct Expert {
  const PackedMatrix *gate, *up, *down;
};

/// A token that takes an expert, and the factor of its result.
struct Taken {
  Index token;
  float factor;
};

/// Tokens of an expert that are computed together: as many as need no more than most_bytes, but not
/// fewer than the least, which would read the weights again for little work.
constexpr Index chunk_tokens = 512, least_tokens = 24, most_bytes = Index{16} << 20;
/// Columns that a thread gathers or adds, of all tokens: one may take an expert twice.
constexpr Index task_columns = 256;

class Experts {
 public:
  Experts(const Call& call, nb::handle gate, nb::handle up, nb::handle down, Activation activation, DType activations)
      : gated_{.activation = activation, .activations = activations} {
    const std::vector<const PackedMatrix*> of_gate = own(call, "gate", gate), of_up = own(call, "up", up),
                                           of_down = own(call, "down", down);
    call.require(!of_gate.empty(), "there are no experts");
    call.require(of_up.size() == of_gate.size() && of_down.size() == of_gate.size(), "gate has ", of_gate.size(),
                 " matrices, up ", of_up.size(), ", down ", of_down.size());
    width_ = of_gate[0]->rows();
    hidden_ = of_gate[0]->columns();
    for (std::size_t i = 0; i < of_gate.size(); ++i) {
      const auto check = [&](const char* name, const PackedMatrix& matrix, Index rows, Index columns) {
        call.require(matrix.rows() == rows && matrix.columns() == columns, name, "[", i, "] has shape [", matrix.rows(),
                     ", ", matrix.columns(), "], wanted: [", rows, ", ", columns, "]");
      };
      check("gate", *of_gate[i], width_, hidden_);
      check("up", *of_up[i], width_, hidden_);
      check("down", *of_down[i], hidden_, width_);
      experts_.push_back({of_gate[i], of_up[i], of_down[i]});
    }
  }

  [[nodiscard]] Index count() const { return static_cast<Index>(experts_.size()); }
  [[nodiscard]] Index width() const { return width_; }

  /// out = the sum over the experts of a token, by their numbers, of factor × result; the product
  /// and each sum are rounded. `index`: [tokens, taken]; count() stands for no expert.
  void forward(const View<const float, 2>& x, const View<const Index, 2>& index, const View<const float, 2>& factors,
               const View<float, 2>& out, int num_threads) const {
    const Index tokens = x.shape[0];
    if (tokens == 0 || width_ == 0) return;
    std::vector<Index> ends(experts_.size() + 2);
    for (Index t = 0; t < tokens; ++t)
      for (Index i = 0; i < index.shape[1]; ++i) ++ends[static_cast<std::size_t>(index(t, i)) + 1];
    for (std::size_t e = 1; e < ends.size(); ++e) ends[e] += ends[e - 1];
    std::vector<Taken> taken(static_cast<std::size_t>(ends.back()));
    for (Index t = 0; t < tokens; ++t)
      for (Index i = 0; i < index.shape[1]; ++i)
        taken[static_cast<std::size_t>(ends[static_cast<std::size_t>(index(t, i))]++)] = {t, factors(t, i)};
    // Each end is now that of its own expert.
    columns(tokens, num_threads, [&](Index first, Index end) {
      for (Index t = 0; t < tokens; ++t) std::fill_n(&out(t, first), end - first, 0.0f);
    });
    const Index fitting = most_bytes / static_cast<Index>(sizeof(float)) / width_of_rows();
    const Index chunk = std::clamp(fitting, least_tokens, chunk_tokens);
    const auto memory = std::make_unique_for_overwrite<float[]>(
        static_cast<std::size_t>(std::min(chunk, static_cast<Index>(taken.size())) * width_of_rows()));
    Index begin = 0;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      while (begin < ends[e]) {
        const Index count = std::min(chunk, ends[e] - begin);
        add(experts_[e], x, {taken.data() + begin, static_cast<std::size_t>(count)}, out, memory.get(), num_threads);
        begin += count;
      }
    }
  }

 private:
  /// The matrices of a sequence, which live as long as the experts.
  std::vector<const PackedMatrix*> own(const Call& call, const char* name, nb::handle sequence) {
    std::vector<const PackedMatrix*> matrices;
    for (const nb::handle object : sequence) {
      matrices.push_back(call.instance<PackedMatrix>(name, object));
      if (matrices.back() == nullptr) call.refuse_type(name, object, "a PackedMatrix in each place");
      require_stored_for(call, gated_.activations, name, matrices.back());
      owners_.append(object);
    }
    return matrices;
  }

  /// Floats for a token between its gathering and the sum.
  [[nodiscard]] Index width_of_rows() const { return 2 * width_ + hidden_; }

  /// Calls f(first, end) for ranges of the columns of that many rows.
  template <class F>
  void columns(Index rows, int num_threads, const F& f) const {
    const double elements = 3.0 * static_cast<double>(rows) * static_cast<double>(width_);
    internal::parallel_parts(width_, task_columns, internal::useful_threads(0, elements, num_threads), f);
  }

  /// Adds the results of an expert for some tokens. `memory`: width_of_rows() for each.
  void add(const Expert& expert, const View<const float, 2>& x, std::span<const Taken> taken, const View<float, 2>& out,
           float* memory, int num_threads) const {
    const auto rows = static_cast<Index>(taken.size());
    const View<float, 2> inner(memory + rows * width_, {rows, hidden_});
    const View<float, 2> result(inner.data + rows * hidden_, {rows, width_});
    View<const float, 2> from(&x(taken[0].token, 0), {1, width_}, {0, x.strides[1]});
    if (rows > 1) {
      columns(rows, num_threads, [&](Index first, Index end) {
        for (Index i = 0; i < rows; ++i)
          for (Index j = first; j < end; ++j) memory[i * width_ + j] = x(taken[static_cast<std::size_t>(i)].token, j);
      });
      from = View<const float, 2>(memory, {rows, width_});
    }
    GemmGatedOptions gated = gated_;
    gated.num_threads = num_threads;
    gemm_gated(from, *expert.gate, *expert.up, inner, gated);
    gemm(inner, *expert.down, result, {.activations = gated_.activations, .num_threads = num_threads});
    columns(rows, num_threads, [&](Index first, Index end) {
      for (Index i = 0; i < rows; ++i) {
        const auto& [token, factor] = taken[static_cast<std::size_t>(i)];
        float* const to = &out(token, 0);
        for (Index j = first; j < end; ++j) to[j] += factor * result.data[i * width_ + j];
      }
    });
  }

  nb::list owners_;
  std::vector<Expert> experts_;
  Index width_ = 0, hidden_ = 0;
  GemmGatedOptions gated_;
};

/// [tokens, …]
void require_rows(const Array& array, Index rows, Index columns) {
  array.require(array.rank() == 2 && array.size(0) == rows && array.size(1) == columns, " has shape ", array,
                ", wanted: [", rows, ", ", columns, "]");
}

nb::object forward(const Experts& self, nb::handle given_x, nb::handle given_index, nb::handle given_factors,
                   nb::handle num_threads) {
  const Call call("Experts.forward");
  const int threads = call.threads(num_threads);
  const Array x(call, "x", given_x, Element::float32), index(call, "index", given_index, Element::int64);
  const Array factors(call, "factors", given_factors, Element::float32);
  require_matrix(x);
  require_matrix(index);
  const Index tokens = x.size(0), taken = index.size(1);
  require_rows(x, tokens, self.width());
  require_rows(index, tokens, taken);
  require_rows(factors, tokens, taken);
  const View<const Index, 2> numbers = view_of<const Index, 2>(index);
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < taken; ++i)
      index.require(numbers(t, i) >= 0 && numbers(t, i) <= self.count(), "[", t, ", ", i, "] is ", numbers(t, i),
                    ", there are ", self.count(), " experts");
  const Result result(call, x.like(), nb::none(), {tokens, self.width()});
  call.compute([&] {
    self.forward(view_of<const float, 2>(x), numbers, view_of<const float, 2>(factors),
                 view_of<float, 2>(result.array()), threads);
  });
  return result.object();
}

}  // namespace

void add_experts(nb::module_& module) {
  nb::class_<Experts> experts(module, "Experts");
  define(
      experts, "__init__",
      [](Experts* self, nb::handle gate, nb::handle up, nb::handle down, nb::handle activation,
         nb::handle activations) {
        const Call call("Experts");
        new (self)
            Experts(call, gate, up, down, activation_named(call, activation), activations_named(call, activations));
      },
      "gate", "up", "down", "activation", "activations");
  define(experts, "forward", &forward, "x", "index", "factors", "num_threads");
}

}  // namespace headlane::python
