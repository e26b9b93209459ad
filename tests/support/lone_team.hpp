// One rank of a team, alone.
#pragma once

#include <headlane/team.hpp>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace headlane::test {

/// Rank 1 of three, whose others have computed zeros.
class LoneTeam final : public Team {
 public:
  [[nodiscard]] int rank() const override { return 1; }
  [[nodiscard]] int size() const override { return 3; }
  void all_gather(float* buffer, std::span<const Index> begins) override {
    if (fails) throw std::runtime_error("the network is down");
    std::fill(buffer, buffer + begins[1], 0.0f);
    std::fill(buffer + begins[2], buffer + begins[3], 0.0f);
  }
  void agree(std::string_view, std::string_view mine) override { agrees = !mine.starts_with("an error"); }
  void abandoned() noexcept override { is_abandoned = true; }

  bool fails = false, agrees = false, is_abandoned = false;
};

}  // namespace headlane::test
