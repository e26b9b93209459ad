#include "position/angles.hpp"

#include "core/round.hpp"
#include "core/scratch.hpp"
#include "position/double_double.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

constexpr DoubleDouble turns_of_radian{0x1.45f306dc9c883p-3, -0x1.6b01ec5417056p-57};
constexpr std::uint64_t low_mask = (std::uint64_t{1} << 31) - 1;

/// The fraction of a turn, in units of 2^-63, rounded; whole turns are dropped.
std::uint64_t phase_of(DoubleDouble radians) {
  if (radians.high < 0) return -phase_of({-radians.high, -radians.low});
  const DoubleDouble turns = radians * turns_of_radian;
  const double scaled = (turns.high - std::floor(turns.high)) * 0x1p63;
  const auto whole = static_cast<std::uint64_t>(scaled);
  const double rest = (scaled - static_cast<double>(whole)) + turns.low * 0x1p63;
  return whole + static_cast<std::uint64_t>(static_cast<std::int64_t>(std::floor(rest + 0.5)));  // wraps
}

void split(std::uint64_t phase, std::uint32_t& high, std::uint32_t& low) {
  high = static_cast<std::uint32_t>(phase >> 31);  // the bit above 2^63 falls off
  low = static_cast<std::uint32_t>(phase & low_mask);
}

std::uint64_t joined(std::uint32_t high, std::uint32_t low) { return std::uint64_t{high} << 31 | low; }

/// Memory for the frequencies of the calling thread; elements after `count` are 0.
struct Memory {
  explicit Memory(Index count) {
    const Index padded = round_up(count, kernels::lanes);
    high = reinterpret_cast<std::uint32_t*>(scratch(Purpose::frequencies, 2 * padded));
    low = high + padded;
    std::fill_n(high, 2 * padded, 0u);
  }
  std::uint32_t *high, *low;
};

/// The arguments of the frequencies in memory, those of frequencies_of_base(), unless they were
/// freed since.
struct Kept {
  double base = 0;
  Index factor = 0, dim = 0;
  unsigned epoch = 0;
  bool operator==(const Kept&) const = default;
};
constinit thread_local Kept kept{};
constinit thread_local const std::uint32_t *kept_high = nullptr, *kept_low = nullptr;

}  // namespace

void check_positions(Caller caller, const char* name, Index offset, Index length) {
  caller.require(-max_position <= offset && offset <= max_position && length <= max_position + 1 - offset, name, " is ",
                 offset, " and there are ", length, " rows; positions are ", -max_position, " to ", max_position);
}

void check_base(Caller caller, double base) {
  caller.require(base >= 1 && std::isfinite(base), "base is ", base, ", the minimum is 1, and it is finite");
}

Frequencies frequencies_of_base(double base, Index factor, Index dim) {
  const Index count = ceil_div(dim, 2);
  Kept wanted{base, factor, dim, scratch_epoch()};
  if (wanted == kept) return {count, kept_high, kept_low};
  kept = {};
  const Memory memory(count);
  const DoubleDouble exponent = DoubleDouble{static_cast<double>(-factor)} / DoubleDouble{static_cast<double>(dim)};
  const DoubleDouble ratio = count > 1 ? exp(log(base) * exponent) : DoubleDouble{};
  DoubleDouble frequency{1};
  for (Index j = 0; j < count; ++j, frequency = frequency * ratio)
    split(phase_of(frequency), memory.high[j], memory.low[j]);
  wanted.epoch = scratch_epoch();  // the memory may have grown
  kept = wanted;
  kept_high = memory.high;
  kept_low = memory.low;
  return {count, kept_high, kept_low};
}

Frequencies frequencies_of(const View<const float, 1>& frequencies) {
  kept = {};
  const Index count = frequencies.size(0);
  const Memory memory(count);
  for (Index j = 0; j < count; ++j) split(phase_of({double{frequencies(j)}}), memory.high[j], memory.low[j]);
  return {count, memory.high, memory.low};
}

Index Angles::floats_for(Index count) { return 2 * round_up(count, kernels::lanes); }

Angles::Angles(const Frequencies& frequencies, float* memory)
    : frequencies_(frequencies),
      high_(reinterpret_cast<std::uint32_t*>(memory)),
      low_(high_ + round_up(frequencies.count, kernels::lanes)) {
  std::fill_n(high_, floats_for(frequencies.count), 0u);
}

void Angles::seek(Index position) {
  if (position == at_) return;
  for (Index j = 0; j < frequencies_.count; ++j)
    split(joined(frequencies_.high[j], frequencies_.low[j]) * static_cast<std::uint64_t>(position), high_[j], low_[j]);
  at_ = position;
}

void Angles::rows(const kernels::KernelTable& kernel, Index position, Index rows, float* sin, float* cos,
                  Index row_step, Index columns) {
  seek(position);
  kernel.sin_cos_rows(
      {{frequencies_.count, high_, low_, frequencies_.high, frequencies_.low}, rows, sin, cos, row_step, columns});
  at_ += rows;
}

}  // namespace headlane::internal
