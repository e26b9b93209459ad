// The workers' commands, a line each: about, prepare, run, time, release, measure. Each is answered
// by a line, "ok …" or "error …".
#include "worker.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>

#include <sys/mman.h>
#include <sys/prctl.h>

namespace peers {

namespace {

void* allocate(std::size_t bytes) {
  constexpr std::size_t huge_page = 2u << 20;
  const std::size_t alignment = bytes >= 2 * huge_page ? huge_page : 64;
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, size);
  if (data == nullptr) throw std::bad_alloc();
  if (alignment == huge_page) madvise(data, size, MADV_HUGEPAGE);  // if refused, the memory is ordinary
  return data;
}

std::string seconds_of(const Job& job, Index warm, Index calls) {
  for (Index i = 0; i < warm; ++i) job.call();
  const auto begin = std::chrono::steady_clock::now();
  for (Index i = 0; i < calls; ++i) job.call();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::ostringstream text;
  text.precision(9);
  text << seconds.count();
  return text.str();
}

// Resident bytes: VmRSS now, VmHWM at the peak.
long long memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// Calls once. Returns the seconds, and the peak of resident bytes beyond those before the call.
std::string first_call(const Job& job) {
  std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM
  const long long before = memory("VmRSS");
  const std::string seconds = seconds_of(job, 0, 1);
  return seconds + ' ' + std::to_string(memory("VmHWM") - before);
}

std::string answer(const Worker& worker, Job& job, const std::string& command, const Arguments& arguments) {
  if (command == "about") return worker.about;
  if (command == "measure" && worker.measure) return worker.measure(arguments);
  if (command == "prepare") {
    job = worker.prepare(arguments);
    return "";
  }
  if (command == "release") {
    job = {};
    return "";
  }
  if (!job.call) throw std::runtime_error("no case is prepared");
  if (command == "time") return seconds_of(job, arguments.number("warm"), arguments.number("calls"));
  if (command == "run") {
    std::string reply = first_call(job);
    job.arrays.back().write(arguments.text("output"));
    return reply;
  }
  throw std::runtime_error("unknown command '" + command + "'");
}

}  // namespace

Arguments::Arguments(const std::string& words) {
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) values_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

std::string Arguments::text(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

Index Arguments::number(const std::string& key) const { return std::stol(text(key)); }

Array::Array(Index floats) : bytes_(static_cast<std::size_t>(floats) * sizeof(float)), data_(allocate(bytes_)) {
  std::fill_n(data(), floats, std::numeric_limits<float>::quiet_NaN());
}

Array::Array(const std::string& file) : bytes_(std::filesystem::file_size(file)), data_(allocate(bytes_)) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream.read(static_cast<char*>(data_.get()), static_cast<std::streamsize>(bytes_))) {
    throw std::runtime_error("could not read " + file);
  }
}

void Array::write(const std::string& file) const {
  std::ofstream stream(file, std::ios::binary);
  stream.write(static_cast<const char*>(data_.get()), static_cast<std::streamsize>(bytes_));
  if (!stream.flush()) throw std::runtime_error("could not write " + file);
}

void serve(const Worker& worker) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a stopped worker would outlive a parent that was killed
  Job job;
  for (std::string line; std::getline(std::cin, line);) {
    std::string reply;
    try {
      reply = "ok " + answer(worker, job, line.substr(0, line.find(' ')), Arguments(line));
    } catch (const std::exception& error) {
      reply = std::string("error ") + error.what();
    }
    std::replace(reply.begin(), reply.end(), '\n', ' ');
    std::cout << reply << '\n' << std::flush;
  }
}

}  // namespace peers
