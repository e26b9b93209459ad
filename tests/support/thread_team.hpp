// A team whose ranks are threads of this process.
#pragma once

#include <headlane/team.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace headlane::test {

/// What the ranks of a team share.
class TeamHub {
 public:
  explicit TeamHub(int size) : buffers(size_of(size)), begins(size_of(size)), texts(size_of(size)) {}

  /// Waits until all ranks are here. Throws if one has ended: the others would wait forever.
  void meet() {
    std::unique_lock lock(mutex_);
    const std::size_t round = round_;
    if (++waiting_ == buffers.size()) {
      waiting_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || ended_; });
    if (round_ == round) throw std::logic_error("a rank has ended before the others");
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::vector<float*> buffers;
  std::vector<std::vector<Index>> begins;
  std::vector<std::string> texts;

 private:
  static std::size_t size_of(int size) { return static_cast<std::size_t>(size); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t waiting_ = 0, round_ = 0;
  bool ended_ = false;
};

class ThreadTeam final : public Team {
 public:
  ThreadTeam(TeamHub& hub, int rank) : hub_(hub), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(hub_.buffers.size()); }

  /// Throws std::logic_error if the ranks disagree on begins, or these are not what they must be.
  void all_gather(float* buffer, std::span<const Index> begins) override {
    const auto me = static_cast<std::size_t>(rank_);
    hub_.buffers[me] = buffer;
    hub_.begins[me].assign(begins.begin(), begins.end());
    hub_.meet();
    const std::vector<Index>& all = hub_.begins.front();
    const bool fits =
        all.size() == hub_.buffers.size() + 1 && all.front() == 0 && std::is_sorted(all.begin(), all.end());
    if (!fits || hub_.begins[me] != all) throw std::logic_error("begins differ, or are no shares");
    for (std::size_t r = 0; r < hub_.buffers.size(); ++r)
      if (r != me) std::copy(hub_.buffers[r] + all[r], hub_.buffers[r] + all[r + 1], buffer + all[r]);
    ++gathered;
    floats += all.back();
    hub_.meet();
  }

  void agree(std::string_view what, std::string_view mine) override {
    hub_.texts[static_cast<std::size_t>(rank_)] = mine;
    hub_.meet();
    std::string message(what);
    bool same = true;
    for (std::size_t r = 0; r < hub_.texts.size(); ++r) {
      same = same && hub_.texts[r] == hub_.texts[0];
      message += (r == 0 ? ": rank " : "; rank ") + std::to_string(r) + " has " + hub_.texts[r];
    }
    ++agreed;
    hub_.meet();
    if (!same) throw std::invalid_argument(message);
  }

  Index gathered = 0, floats = 0, agreed = 0;  ///< calls so far, and the floats of all of them

 private:
  TeamHub& hub_;
  int rank_;
};

/// Calls f(team) on a thread for each rank. Returns what() of the exception of each rank; empty if
/// it threw none.
inline std::vector<std::string> run_ranks(int size, const std::function<void(ThreadTeam&)>& f) {
  TeamHub hub(size);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ThreadTeam team(hub, rank);
      try {
        f(team);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
        hub.end();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline constexpr int team_sizes[] = {1, 2, 3, 5, 8};

}  // namespace headlane::test
