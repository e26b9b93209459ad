// Input data that is the same on every platform and compiler (integer arithmetic only, no libm),
// strided tensors in buffers of sentinels, and buffers between guard pages.
#pragma once

#include <headlane/view.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace headlane::test {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// A NaN with bits that no operation returns: reading it shows in the result, overwriting it in the
/// buffer.
inline constexpr std::uint32_t sentinel_bits = 0x7fc5a5a5u;

inline bool is_sentinel(float x) { return std::bit_cast<std::uint32_t>(x) == sentinel_bits; }

/// Lengths around the sizes of tails, tiles and blocks.
inline constexpr std::array<Index, 17> tail_sizes{0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65, 127, 129, 500, 513, 1023};

/// splitmix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// low … high, both included.
  Index integer(Index low, Index high) {
    return low + static_cast<Index>(next() % static_cast<std::uint64_t>(high - low + 1));
  }

  /// Uniform in [-1, 1): a multiple of 2^-23, hence exact.
  float uniform() { return static_cast<float>(static_cast<std::int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23f; }

  /// Approximately normal, variance 1: the sum of twelve 16-bit integers (Irwin and Hall), again
  /// exact.
  float normal() {
    std::int32_t sum = 0;
    for (int word = 0; word < 3; ++word) {
      const std::uint64_t bits = next();
      for (unsigned shift = 0; shift < 64; shift += 16) sum += static_cast<std::int32_t>((bits >> shift) & 0xffffu);
    }
    return static_cast<float>(sum - 6 * 65536) * 0x1p-16f;
  }

  template <class T>
  const T& pick(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(integer(0, static_cast<Index>(choices.size()) - 1))];
  }

 private:
  std::uint64_t state_;
};

/// The order of axes in memory.
enum class Order {
  rows,     ///< as in the shape
  columns,  ///< the last two axes exchanged: a transpose
  middle    ///< axes 1 and 2 exchanged: [batch, sequence, head, dim] viewed as [batch, head, sequence, dim]
};

struct Layout {
  const char* name = "dense";
  Order order = Order::rows;
  Index step = 1;          ///< stride of the innermost axis
  Index padding = 0;       ///< floats between rows that belong to nobody
  bool reversed = false;   ///< all strides negative
  Index misalignment = 0;  ///< floats past a cache line
};

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {},
      {"transposed", Order::columns},
      {.name = "padded", .padding = 5},
      {.name = "padded transposed", .order = Order::columns, .padding = 3},
      {.name = "inner stride 3", .step = 3, .padding = 2},
      {.name = "reversed", .reversed = true},
      {.name = "reversed transposed stride 2", .order = Order::columns, .step = 2, .padding = 1, .reversed = true},
      {.name = "misaligned", .misalignment = 7}};
  return all;
}

/// Calls f(position) for every position of a shape, in row-major order.
template <std::size_t Rank, class F>
void for_each_position(const std::array<Index, Rank>& shape, F f) {
  if (std::any_of(shape.begin(), shape.end(), [](Index n) { return n <= 0; })) return;
  std::array<Index, Rank> at{};
  while (true) {
    f(std::as_const(at));
    std::size_t axis = Rank;
    while (axis > 0 && ++at[axis - 1] == shape[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

template <std::size_t Rank>
Index offset_of(const std::array<Index, Rank>& at, const std::array<Index, Rank>& strides) {
  Index offset = 0;
  for (std::size_t axis = 0; axis < Rank; ++axis) offset += at[axis] * strides[axis];
  return offset;
}

/// Offsets of the first and the last element in memory.
struct Reach {
  Index low = 0, high = 0;
};

template <std::size_t Rank>
Reach reach_of(const std::array<Index, Rank>& shape, const std::array<Index, Rank>& strides) {
  Reach reach;
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    const Index step = std::max<Index>(shape[axis] - 1, 0) * strides[axis];
    (step < 0 ? reach.low : reach.high) += step;
  }
  return reach;
}

/// Calls f(element) in row-major order of the shape, so that the values do not depend on the
/// strides.
template <class T, int Rank, class F>
void for_each(const View<T, Rank>& view, F f) {
  for_each_position(view.shape, [&](const auto& at) { f(view.data[offset_of(at, view.strides)]); });
}

template <int Rank>
void fill_uniform(const View<float, Rank>& view, Random& random) {
  for_each(view, [&](float& x) { x = random.uniform(); });
}

template <int Rank>
void fill_normal(const View<float, Rank>& view, Random& random) {
  for_each(view, [&](float& x) { x = random.normal(); });
}

template <int Rank>
void fill_integers(const View<float, Rank>& view, Random& random, Index limit) {
  for_each(view, [&](float& x) { x = static_cast<float>(random.integer(-limit, limit)); });
}

template <int Rank>
void copy(const View<const float, Rank>& from, const View<float, Rank>& to) {
  for_each_position(
      from.shape, [&](const auto& at) { to.data[offset_of(at, to.strides)] = from.data[offset_of(at, from.strides)]; });
}

/// The elements in row-major order.
template <class T, int Rank>
std::vector<float> elements(const View<T, Rank>& view) {
  std::vector<float> result;
  for_each(view, [&](const float& x) { result.push_back(x); });
  return result;
}

/// Owns a strided array in a larger buffer of sentinels. Movable only: `view` points into it.
template <int Rank>
class Tensor {
 public:
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  explicit Tensor(const Shape& shape, const Layout& layout = {}) {
    view.shape = shape;
    std::array<std::size_t, static_cast<std::size_t>(Rank)> axes{};
    for (std::size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axis;
    if (layout.order == Order::columns && Rank >= 2) std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    if (layout.order == Order::middle && Rank >= 3) std::swap(axes[1], axes[2]);
    Index stride = layout.step;
    Index last = 0;
    for (std::size_t i = axes.size(); i-- > 0;) {
      const Index size = std::max<Index>(shape[axes[i]], 1);
      view.strides[axes[i]] = layout.reversed ? -stride : stride;
      last += (size - 1) * stride;
      stride = stride * size + layout.padding;
    }
    allocate(last + 1, layout.misalignment);
    view.data = first_ + (layout.reversed ? last : 0);
  }
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  /// Whether only elements of the view were written.
  [[nodiscard]] bool surroundings_untouched() const {
    std::vector<bool> own(storage_.size(), false);
    for_each(view, [&](const float& x) { own[static_cast<std::size_t>(&x - storage_.data())] = true; });
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      if (!own[i] && !is_sentinel(storage_[i])) return false;
    }
    return true;
  }

  View<float, Rank> view;

 private:
  void allocate(Index size, Index misalignment) {
    constexpr Index line = 16, margin = 32;
    storage_.assign(static_cast<std::size_t>(size + misalignment + line + 2 * margin),
                    std::bit_cast<float>(sentinel_bits));
    const auto past = static_cast<Index>((reinterpret_cast<std::uintptr_t>(storage_.data()) / sizeof(float)) % line);
    first_ = storage_.data() + margin + (line - past) + misalignment;
  }

  std::vector<float> storage_;
  float* first_ = nullptr;
};

template <int Rank>
Tensor<Rank> random_tensor(const std::array<Index, static_cast<std::size_t>(Rank)>& shape, Random& random,
                           const Layout& layout = {}) {
  Tensor<Rank> result(shape, layout);
  fill_uniform(result.view, random);
  return result;
}

/// Bits of a float; all NaNs are the same, since sign and payload depend on the machine.
inline std::uint32_t bits_of(float x) { return x != x ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x); }

/// Number of elements that differ in a bit.
template <class A, class B, int Rank>
Index different_bits(const View<A, Rank>& x, const View<B, Rank>& y) {
  Index count = 0;
  for_each_position(x.shape, [&](const auto& at) {
    count += bits_of(x.data[offset_of(at, x.strides)]) != bits_of(y.data[offset_of(at, y.strides)]) ? 1 : 0;
  });
  return count;
}

enum class Place { start, end };

/// Memory between two inaccessible pages: any access beyond it, even a read, crashes.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(Index capacity) {
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (static_cast<std::size_t>(capacity) * sizeof(float) + page_ - 1) / page_ * page_;
    void* mapped = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    mapped_ = static_cast<char*>(mapped);
    if (mprotect(mapped_ + page_, bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  ~GuardedBuffer() { munmap(mapped_, bytes_ + 2 * page_); }

  /// Returns `size` floats, `gap` floats from the page before or after them; the rest is sentinels.
  float* place(Index size, Index gap, Place where) {
    if (size + gap > capacity()) throw std::length_error("GuardedBuffer: too small");
    begin_ = where == Place::start ? gap : capacity() - size - gap;
    end_ = begin_ + size;
    std::fill_n(floats(), capacity(), std::bit_cast<float>(sentinel_bits));
    return floats() + begin_;
  }

  [[nodiscard]] bool surroundings_untouched() const {
    return std::all_of(floats(), floats() + begin_, is_sentinel) &&
           std::all_of(floats() + end_, floats() + capacity(), is_sentinel);
  }

 private:
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(mapped_ + page_); }
  [[nodiscard]] Index capacity() const { return static_cast<Index>(bytes_ / sizeof(float)); }

  char* mapped_ = nullptr;
  std::size_t page_ = 0, bytes_ = 0;
  Index begin_ = 0, end_ = 0;
};

}  // namespace headlane::test
