#include <headlane/mpi/communicator.hpp>

#include "error.hpp"

#include <headlane/runtime.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace headlane::mpi {

using namespace internal;
namespace {

/// MPI counts with int: longer messages are sent in pieces.
constexpr std::size_t max_message = std::size_t{1} << 30;

/// An error breaks the communicator.
void check(const char* function, int error, Transport& of) {
  if (error == MPI_SUCCESS) return;
  of.mark_broken();
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  fail<std::runtime_error>("mpi::Communicator: ", function, ": ",
                           std::string_view(text, static_cast<std::size_t>(length)));
}

/// Calls f(piece, bytes) for each piece of a message; an empty message is one, too.
template <class Byte, class F>
void for_each_piece(Byte* data, std::size_t bytes, const F& f) {
  do {
    const std::size_t piece = std::min(bytes, max_message);
    f(data, static_cast<int>(piece));
    data += piece;
    bytes -= piece;
  } while (bytes > 0);
}

void check_initialised() {
  int initialised = 0, finalised = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  if (initialised == 0) fail("mpi::Communicator: MPI is not initialised: call MPI_Init_thread first");
  MPI_Finalized(&finalised);
  if (finalised != 0) fail("mpi::Communicator: MPI was finalised, after which nothing can be sent");
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_FUNNELED)
    fail(
        "mpi::Communicator: MPI was initialised for programs without threads, and OpenMP starts some: call "
        "MPI_Init_thread with MPI_THREAD_FUNNELED or a higher level");
}

/// MPI's default handler would end the job.
void check_kind(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) fail("mpi::Communicator: the communicator is MPI_COMM_NULL");
  int is_inter = 0;
  MPI_Comm_test_inter(comm, &is_inter);
  if (is_inter != 0) fail("mpi::Communicator: the communicator connects two groups, an intra-communicator is wanted");
}

}  // namespace

/// The requests of a ticket are those of its pieces; the tickets waited for are used again.
struct Communicator::State {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  std::vector<std::vector<MPI_Request>> pending;
  std::vector<Ticket> free;

  std::vector<MPI_Request>& requests(Ticket ticket) { return pending[static_cast<std::size_t>(ticket)]; }

  Ticket open() {
    if (free.empty()) {
      free.push_back(static_cast<Ticket>(pending.size()));
      pending.emplace_back();
    }
    const Ticket ticket = free.back();
    free.pop_back();
    return ticket;
  }
};

Communicator::Communicator(MPI_Comm comm) : state_(std::make_unique<State>()) {
  check_initialised();
  check_kind(comm);
  check("MPI_Comm_dup", MPI_Comm_dup(comm, &state_->comm), *this);
  check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN), *this);
  MPI_Comm_rank(state_->comm, &state_->rank);
  MPI_Comm_size(state_->comm, &state_->size);
  try {
    agree("mpi::Communicator", std::string("headlane ").append(version()));
  } catch (...) {
    MPI_Comm_free(&state_->comm);
    throw;
  }
}

Communicator::~Communicator() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised == 0 && !is_broken()) MPI_Comm_free(&state_->comm);  // other ranks may wait elsewhere
}

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size; }

void Communicator::all_gather(float* buffer, std::span<const Index> begins) {
  require_intact("mpi::Communicator");
  const auto ranks = static_cast<std::size_t>(state_->size);
  if (begins.size() != ranks + 1 || begins.front() != 0)
    fail("Team::all_gather: begins has ", begins.size(), " elements, there are ", ranks, " ranks");
  if (begins.back() <= static_cast<Index>(max_message / sizeof(float))) {
    std::vector<int> counts, offsets;
    for (std::size_t r = 0; r < ranks; ++r) {
      counts.push_back(static_cast<int>(begins[r + 1] - begins[r]));
      offsets.push_back(static_cast<int>(begins[r]));
    }
    return check(
        "MPI_Allgatherv",
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, buffer, counts.data(), offsets.data(), MPI_FLOAT, state_->comm),
        *this);
  }
  for (std::size_t r = 0; r < ranks; ++r)
    broadcast(buffer + begins[r], static_cast<std::size_t>(begins[r + 1] - begins[r]) * sizeof(float),
              static_cast<int>(r));
}

Transport::Ticket Communicator::start_send(int to, const void* data, std::size_t bytes) {
  require_intact("mpi::Communicator");
  const Ticket ticket = state_->open();
  for_each_piece(static_cast<const char*>(data), bytes, [&](const char* piece, int count) {
    check("MPI_Isend", MPI_Isend(piece, count, MPI_BYTE, to, 0, state_->comm, &state_->requests(ticket).emplace_back()),
          *this);
  });
  return ticket;
}

Transport::Ticket Communicator::start_receive(int from, void* data, std::size_t bytes) {
  require_intact("mpi::Communicator");
  const Ticket ticket = state_->open();
  for_each_piece(static_cast<char*>(data), bytes, [&](char* piece, int count) {
    check("MPI_Irecv",
          MPI_Irecv(piece, count, MPI_BYTE, from, 0, state_->comm, &state_->requests(ticket).emplace_back()), *this);
  });
  return ticket;
}

void Communicator::wait(Ticket ticket) {
  std::vector<MPI_Request>& requests = state_->requests(ticket);
  // One by one: MPI_Waitall would return that there is an error in a status.
  for (MPI_Request& request : requests) check("MPI_Wait", MPI_Wait(&request, MPI_STATUS_IGNORE), *this);
  requests.clear();
  state_->free.push_back(ticket);
}

void Communicator::progress() {
  int any = 0;
  check("MPI_Iprobe", MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, state_->comm, &any, MPI_STATUS_IGNORE), *this);
}

void Communicator::broadcast(void* data, std::size_t bytes, int root) {
  require_intact("mpi::Communicator");
  for_each_piece(static_cast<char*>(data), bytes, [&](char* piece, int count) {
    check("MPI_Bcast", MPI_Bcast(piece, count, MPI_BYTE, root, state_->comm), *this);
  });
}

}  // namespace headlane::mpi
