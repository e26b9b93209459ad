#include "mpi/transport.hpp"

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace headlane::python {
namespace {

/// Calls a method with the GIL; its exception goes on through the library.
template <class... Arguments>
nb::object call_method(const nb::object& object, const char* name, Arguments... arguments) {
  return object.attr(name)(arguments...);
}

/// What is being handled; false if it must reach the caller as it is, as KeyboardInterrupt.
struct Handled {
  std::string text;
  bool is_refusal = true;
};
Handled handled() {
  try {
    throw;
  } catch (const nb::python_error& error) {
    const std::string name = nb::type_name(error.type()).c_str();
    const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
    if (!text.is_valid()) PyErr_Clear();
    return {name + ": " + (text.is_valid() ? nb::borrow<nb::str>(text).c_str() : "?"), error.matches(PyExc_Exception)};
  } catch (const std::exception& error) {
    return {error.what()};
  }
}

constexpr std::string_view refusal = "an error";

std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

}  // namespace

PythonTransport::PythonTransport(const Call& call, const char* name, nb::handle object) : object_(nb::borrow(object)) {
  for (const char* method : {"_all_gather", "_start_send", "_start_receive", "_wait", "_progress", "_broadcast"})
    if (!nb::hasattr(object, method)) call.refuse_type(name, object, "headlane.mpi.Communicator");
  rank_ = static_cast<int>(call.integer("rank", object.attr("rank")));
  size_ = static_cast<int>(call.integer("size", object.attr("size")));
}

void PythonTransport::agree(std::string_view what, std::string_view mine) {
  stage_ = Stage::computing;
  try {
    Transport::agree(what, mine);
  } catch (const std::invalid_argument&) {
    stage_ = Stage::refused;
    throw;
  }
  if (mine.starts_with(refusal)) stage_ = Stage::refused;
}

void PythonTransport::refuse(const Call& call, const char* function, const std::string& reason) {
  try {
    agree(function, std::string(refusal).append(", ").append(reason));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(call.prefixed(error.what()));
  }
}

void PythonTransport::failed(const Call& call, const char* function) {
  const GilAcquire gil;
  if (stage_ == Stage::begun) {
    const Handled error = handled();
    try {
      refuse(call, function, error.text);
    } catch (const std::invalid_argument&) {
      if (error.is_refusal) throw;
    }
  } else if (stage_ == Stage::computing && PyObject_SetAttrString(object_.ptr(), "_broken", Py_True) != 0) {
    PyErr_Clear();
  }
}

void PythonTransport::all_gather(float* buffer, std::span<const Index> begins) {
  const GilAcquire gil;
  nb::list positions;
  for (const Index begin : begins) positions.append(begin);
  call_method(object_, "_all_gather", address(buffer), positions);
}

mpi::Transport::Ticket PythonTransport::start_send(int to, const void* data, std::size_t bytes) {
  const GilAcquire gil;
  return nb::cast<int>(call_method(object_, "_start_send", to, address(data), bytes));
}

mpi::Transport::Ticket PythonTransport::start_receive(int from, void* data, std::size_t bytes) {
  const GilAcquire gil;
  return nb::cast<int>(call_method(object_, "_start_receive", from, address(data), bytes));
}

void PythonTransport::wait(Ticket ticket) {
  const GilAcquire gil;
  call_method(object_, "_wait", ticket);
}

void PythonTransport::progress() {
  const GilAcquire gil;
  call_method(object_, "_progress");
}

void PythonTransport::broadcast(void* data, std::size_t bytes, int root) {
  const GilAcquire gil;
  call_method(object_, "_broadcast", address(data), bytes, root);
}

mpi::Transport* team_of(const Call& call, nb::handle given) {
  if (given.is_none()) return nullptr;
  if (auto* team = call.instance<PythonTransport>("team", given)) return team;
  call.refuse_type("team", given, "headlane.mpi.Communicator");
}

mpi::SequenceCut cut_of(const Call& call, const char* name, nb::handle given) {
  if (!nb::hasattr(given, "ranks") || !nb::hasattr(given, "pieces"))
    call.refuse_type(name, given, "headlane.mpi.SequenceCut");
  const Index ranks = call.integer(joined(name, ".ranks"), given.attr("ranks"));
  call.require(std::in_range<int>(ranks), name, ".ranks is ", ranks, ", which is no number of ranks");
  std::vector<mpi::SequencePiece> pieces;
  for (const nb::handle piece : given.attr("pieces")) {
    const std::vector<Index> numbers = call.integers(joined(name, ".pieces"), piece);
    call.require(numbers.size() == 3, name, ".pieces are tuples (rank, begin, end)");
    call.require(std::in_range<int>(numbers[0]), name, ".pieces have the rank ", numbers[0], ", there are ", ranks);
    pieces.push_back({.rank = static_cast<int>(numbers[0]), .begin = numbers[1], .end = numbers[2]});
  }
  return {static_cast<int>(ranks), std::move(pieces)};
}

}  // namespace headlane::python
