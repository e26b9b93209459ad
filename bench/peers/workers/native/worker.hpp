// What the two compiled workers share: the buffers and the protocol, one command a line (worker.py speaks it too). The parent has a
// worker prepare a case, run it once and write the result to a file, and time calls; it looks at the results itself.
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
  [[nodiscard]] std::string text(const std::string& key) const;  ///< "" if it is not there
  [[nodiscard]] Index number(const std::string& key) const;
  /// A file in the folder of the case's inputs.
  [[nodiscard]] std::string input(const std::string& name) const { return text("folder") + "/" + name; }

 private:
  std::map<std::string, std::string> values_;
};

/// Aligned memory. Where it is large, huge pages are asked for, as NumPy does.
class Array {
 public:
  /// All NaN, so that an element that is never written is seen.
  explicit Array(Index floats);
  /// Holds the bytes of a file.
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

/// A case that is ready to run; the output is the last array.
struct Job {
  std::vector<Array> arrays;
  std::function<void()> call;
};

/// What a worker can do. Whatever it throws is reported to the parent.
struct Worker {
  std::string about;  ///< "key=value" fields with tabs between: at least version
  std::function<Job(const Arguments&)> prepare;
  std::function<std::string(const Arguments&)> measure;  ///< a limit of the machine; none if empty
};

/// Answers the commands that standard input brings, until it ends.
void serve(const Worker& worker);

}  // namespace peers
