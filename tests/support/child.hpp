// Runs this test program again in another environment: for state that is decided once per process.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace headlane::test {

/// Tasks of a child process by name, called by main(). The value returned is the exit code.
inline std::map<std::string, std::function<int()>>& child_tasks() {
  static std::map<std::string, std::function<int()>> tasks{{"nothing", [] { return 0; }}};
  return tasks;
}

/// The variable that names the task.
inline constexpr const char* child_variable = "HEADLANE_TEST_CHILD";

struct ChildResult {
  int status = -1;     ///< exit code; not_started if the program could not be started again, as under an emulator
  std::string output;  ///< standard output
};

inline constexpr int not_started = 99;
/// A variable's value that is set and has no characters.
inline constexpr const char* empty_value = "(empty)";

/// Starts a child that does `task` with these environment variables set ("" unsets), and waits for
/// it.
inline ChildResult run_child(const std::string& task,
                             const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  ChildResult result;
  int ends[2];
  if (pipe(ends) != 0) return result;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    setenv(child_variable, task.c_str(), 1);
    for (const auto& [name, value] : environment) {
      if (value.empty()) unsetenv(name.c_str());
      else setenv(name.c_str(), value == empty_value ? "" : value.c_str(), 1);
    }
    execl("/proc/self/exe", "child", static_cast<char*>(nullptr));
    _exit(not_started);
  }
  close(ends[1]);
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    result.output.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

inline bool can_start_children() {
  const bool can = run_child("nothing").status != not_started;
  if (!can) MESSAGE("this program cannot start itself again here: skipped");
  return can;
}

}  // namespace headlane::test
