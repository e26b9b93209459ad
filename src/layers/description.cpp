#include "layers/description.hpp"

#include "kernels/args/sizes.hpp"
#include "layers/digest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <type_traits>

namespace headlane::internal {
namespace {

/// The digest does not depend on strides: elements are taken by runs of so many.
constexpr Index run = 512;

template <class T>
void add_row(ElementDigest& digest, const T* row, Index count, Index stride) {
  std::array<T, run> copy;
  for (Index first = 0; first < count; first += run) {
    const Index size = std::min(run, count - first);
    const T* from = row + first * stride;
    if (stride != 1) {
      for (Index i = 0; i < size; ++i) copy[static_cast<std::size_t>(i)] = from[i * stride];
      from = copy.data();
    }
    digest.add(from, static_cast<std::size_t>(size) * sizeof(T));
  }
}

template <class T>
std::uint64_t digest_of(const View<const T, 2>& x) {
  ElementDigest digest;
  for (Index i = 0; i < x.shape[0]; ++i) add_row(digest, x.data + i * x.strides[0], x.shape[1], x.strides[1]);
  return digest.value();
}
template <class T>
std::uint64_t digest_of(const View<const T, 1>& x) {
  return digest_of(View<const T, 2>(x.data, {1, x.shape[0]}, {0, x.strides[0]}));
}

template <class T>
constexpr bool is_view = requires(const T& x) { x.data, x.shape, x.strides; };

/// Digits of a number, in memory of its own.
class Digits {
 public:
  template <class Number, class... Base>
  explicit Digits(Number value, Base... base) {
    end_ = std::to_chars(digits_.data(), digits_.data() + digits_.size(), value, base...).ptr;
  }
  Digits(const Digits&) = delete;
  Digits& operator=(const Digits&) = delete;
  [[nodiscard]] std::string_view text() const { return {digits_.data(), end_}; }

 private:
  std::array<char, 40> digits_{};
  char* end_ = nullptr;
};

}  // namespace

Description& Description::add(std::string_view name) {
  text_.append(text_.empty() ? "" : ", ").append(name);
  return *this;
}
Description& Description::with(std::string_view word) {
  text_.append(" ").append(word);
  return *this;
}
Description& Description::with(Index number) { return with(Digits(number).text()); }
Description& Description::with_digest(std::uint64_t digest) {
  return with("with elements").with(Digits(digest, 16).text());
}
Description& Description::with_shape(std::span<const Index> shape) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) with("x");
    with(shape[axis]);
  }
  return *this;
}

Description& Description::add(std::string_view name, std::string_view value) { return add(name).with(value); }
Description& Description::add(std::string_view name, Index value) { return add(name).with(value); }
Description& Description::add(std::string_view name, float value) { return add(name, Digits(value).text()); }

// Strides decide whether rows are one matrix, and with it how many products there are. Of an axis
// of one element the stride is arbitrary.
Description& Description::add_strided(std::string_view name, std::span<const Index> shape,
                                      std::span<const Index> strides, DType type) {
  add(name).with_shape(shape).with("of").with(name_of(type)).with("by strides");
  for (std::size_t axis = 0; axis < shape.size(); ++axis) with(shape[axis] > 1 && !is_empty(shape) ? strides[axis] : 0);
  return *this;
}

Description& Description::add_ids(std::string_view name, const View<const Index, 2>& ids) {
  add(name).with_shape(ids.shape);
  return is_empty(ids) ? *this : with_digest(digest_of(ids));
}

Description& Description::add_options(const AttentionOptions& options) {
  for_each_option(options, [&](const char* option, const auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    const std::string_view name = option;
    if constexpr (std::is_same_v<Member, std::optional<float>>) {
      if (member) add(name, *member);
    } else if constexpr (std::is_arithmetic_v<Member>) {
      if (name != "num_threads") add(name, member);
    } else if constexpr (is_view<Member>) {
      if (!member) return;
      add(name).with_shape(member.shape);
      if constexpr (requires { member.type; }) with("of").with(name_of(member.type));
      else if constexpr (requires { digest_of(member); })
        if (!is_empty(member)) with_digest(digest_of(member));
    }
  });
  return *this;
}

Description& Description::add_tensors(const StateDict& state, std::string_view prefix, std::string_view part,
                                      std::span<const char* const> names) {
  for (const char* const name : names) {
    const std::string of_part = std::string(part).append(name);
    add_tensor(state, std::string(prefix).append(of_part), of_part);
  }
  return *this;
}

void Description::add_tensor(const StateDict& state, const std::string& full_name, std::string_view name) {
  if (const auto packed = state.packed.find(full_name); packed != state.packed.end() && packed->second != nullptr) {
    const PackedMatrix& matrix = *packed->second;
    add(name).with(matrix.columns()).with("x").with(matrix.rows()).with("packed as").with(name_of(matrix.type()));
    if (matrix.columns() % kernels::panel_columns != 0) return;  // some have no meaning
    ElementDigest digest;
    digest.add(matrix.data(), matrix.bytes());
    with_digest(digest.value());
    return;
  }
  const auto found = state.find(full_name);
  if (found == state.end()) return;
  const AnyView<const float>& tensor = found->second;
  add(name);
  if (tensor.rank < 1 || tensor.rank > 2) return;  // no layer reads it
  if (const auto share = state.shares.find(full_name); share != state.shares.end()) {
    with("a share of").with(share->second).with("rows").with("of").with(tensor.shape[1]);
    return;
  }
  with_shape({tensor.shape.data(), static_cast<std::size_t>(tensor.rank)});
  if (tensor.data == nullptr || is_empty(tensor)) return;
  const bool vector = tensor.rank == 1;
  const View<const float, 2> rows(tensor.data, {vector ? 1 : tensor.shape[0], tensor.shape[vector ? 0 : 1]},
                                  {vector ? 0 : tensor.strides[0], tensor.strides[vector ? 0 : 1]});
  with_digest(digest_of(rows));
}

}  // namespace headlane::internal
