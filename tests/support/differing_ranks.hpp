// Ranks of a team one of which makes another layer or another call than the others: the same
// exception on all of them, and then they go on.
#pragma once

#include "support/team_case.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace headlane::test {

/// What the ranks of a team throw, one of which makes another call than the others. That rank and
/// the numbers of ranks vary.
class Differing {
 public:
  using Call = std::function<void(Team&, bool other)>;

  /// All ranks throw one std::invalid_argument, which has these words; then they go on.
  void add(const std::string& what, const Call& call, const std::vector<std::string>& words = {}) {
    for (const auto& [size, odd] : {std::pair{2, 0}, {2, 1}, {3, 2}}) {
      const std::vector<std::string> errors = run(size, odd, call);
      for (const std::string& error : errors) CHECK_MESSAGE(error == errors.front(), what);
      CHECK_MESSAGE(errors.front().starts_with("refused: "), what << ": " << errors.front());
      const std::string name = "rank " + std::to_string(odd) + " has ";
      CHECK_MESSAGE(errors.front().find(name) != std::string::npos, what << ": " << errors.front());
      for (const std::string& word : words)
        CHECK_MESSAGE(errors.front().find(word) != std::string::npos, what << ": " << errors.front());
    }
    ++count;
  }
  /// No rank throws.
  static void add_same(const std::string& what, const Call& call) {
    for (const std::string& error : run(3, 1, call)) CHECK_MESSAGE(error.empty(), what << ": " << error);
  }

  int count = 0;

 private:
  static std::vector<std::string> run(int size, int odd, const Call& call) {
    return run_ranks(size, [&](ThreadTeam& team) {
      try {
        call(team, team.rank() == odd);
      } catch (const std::invalid_argument& error) {
        team.agree("afterwards", "the ranks are in step");
        throw std::runtime_error(std::string("refused: ") + error.what());
      }
      team.agree("afterwards", "the ranks are in step");
    });
  }
};

inline const LayerSizes differing_sizes{
    .d_model = 70, .heads = 4, .kv_heads = 4, .head_dim = 13, .memory_width = 70, .d_ff = 130};

}  // namespace headlane::test
