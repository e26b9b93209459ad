// Shared by the two compiled workers: buffers and the protocol, one command per line, which
// workers/operations.py implements too. The parent has a worker prepare a case, run it once and
// write the result to a file, and time calls; the parent checks the results.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace peers {

using Index = std::ptrdiff_t;

/// The "key=value" words of a command.
class Arguments {
 public:
  explicit Arguments(const std::string& words);
  [[nodiscard]] std::string text(const std::string& key) const;  ///< "" if absent
  [[nodiscard]] Index number(const std::string& key) const;
  /// A file in the folder of the case's inputs.
  [[nodiscard]] std::string input(const std::string& name) const { return text("folder") + "/" + name; }

 private:
  std::map<std::string, std::string> values_;
};

/// Aligned memory. Requests huge pages where it is large, as NumPy does.
class Array {
 public:
  /// All NaN, so that an element that is never written is noticed.
  explicit Array(Index floats);
  /// The contents of a file.
  explicit Array(const std::string& file);

  [[nodiscard]] float* data() const { return static_cast<float*>(data_.get()); }
  [[nodiscard]] const bool* flags() const { return static_cast<const bool*>(data_.get()); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  void write(const std::string& file) const;

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::size_t bytes_;
  std::unique_ptr<void, Free> data_;
};

/// A case ready to run; the last array is the output.
struct Job {
  std::vector<Array> arrays;
  std::function<void()> call;
};

/// The commands of a worker. Exceptions are reported to the parent.
struct Worker {
  std::string about;  ///< "key=value" fields separated by tabs, at least version
  std::function<Job(const Arguments&)> prepare;
  std::function<std::string(const Arguments&)> measure;  ///< measures a limit of the machine; may be empty
};

/// Answers the commands on standard input until it ends.
void serve(const Worker& worker);

}  // namespace peers
