// Slow links between the ranks of one machine: a library for LD_PRELOAD that holds messages of MPI
// back. Ranks are nodes, each with a link that sends and one that receives.
//
//   HEADLANE_ALPHA_US  latency of a message in microseconds, 0 unless given
//   HEADLANE_GBIT      bandwidth of each link in Gbit/s, without limit unless given
//   HEADLANE_CLOCK     "wall", the default: ranks do wait, by the clock of the machine
//                      "virtual": each rank has a clock of its own: the processor time that its
//                      thread computes outside of MPI, and what it waits for messages. Ranks may be
//                      more than the processors, and other programs may run. One thread a rank
//
// A message that is started at s leaves its rank at d = max(s, d of the message before) + bytes /
// bandwidth and arrives at d + latency, whatever the ranks compute meanwhile. MPI itself delivers
// it at another time; MPI_Wait and MPI_Waitall hold a receive back until the message arrives, and a
// send until it has left. The time of arrival travels in a message of its own. Two messages that
// arrive at one rank at a time do not slow each other.
//
// MPI_Bcast is a binomial tree of such messages. MPI_Allgatherv doubles what each rank has in each
// step if that is at most 64 KiB in the end and the ranks are a power of two, otherwise parts go
// around in a ring: what Open MPI does, but for the sizes at which it changes. MPI_Barrier takes no
// time: it is part of a measurement.
//
// Not slowed is everything that headlane::mpi does not use. Communicators must have the ranks of
// MPI_COMM_WORLD, and receives from one rank must be posted in the order of its sends.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <mpi.h>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Seconds = double;

constexpr int time_tag = 1, collective_tag = 2, collective_time_tag = 3;
constexpr std::size_t max_doubling = std::size_t{64} << 10;

Seconds processor_time() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Seconds>(time.tv_sec) + static_cast<Seconds>(time.tv_nsec) * 1e-9;
}

Seconds number(const char* name, Seconds otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atof(text);
}

/// A message under way: `until` is when it has left, or on the rank that receives it, when it
/// arrives, which `request` brings.
struct Message {
  Seconds until = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  bool sent = false;
  Seconds left = 0;
};

bool is_virtual_clock() {
  const char* const text = std::getenv("HEADLANE_CLOCK");
  return text != nullptr && std::string_view(text) == "virtual";
}

struct Links {
  MPI_Comm times = MPI_COMM_NULL;
  Seconds latency = number("HEADLANE_ALPHA_US", 0) * 1e-6;
  Seconds of_byte = 8e-9 / number("HEADLANE_GBIT", std::numeric_limits<Seconds>::infinity());
  Seconds free = 0;  // when the last message has left
  bool has_virtual_clock = is_virtual_clock();
  Seconds clock = 0, left_mpi = 0;  // of the virtual clock; processor time at the end of the last call
  // Short sends that MPI completes at once may share a request.
  std::multimap<MPI_Request, std::unique_ptr<Message>> messages;
};

Links& links() {
  static Links all;
  return all;
}

/// A call of MPI. Its own processor time does not count.
class Call {
 public:
  Call() { links().clock += processor_time() - links().left_mpi; }
  ~Call() { links().left_mpi = processor_time(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

Seconds now() {
  if (links().has_virtual_clock) return links().clock;
  return std::chrono::duration<Seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<std::size_t>(count) * static_cast<std::size_t>(size);
}

/// Sleeps while there is time, and lets other messages make progress.
void hold_until(Seconds time) {
  if (links().has_virtual_clock) links().clock = std::max(links().clock, time);
  constexpr Seconds nap = 1e-3, inexact = 2e-4;
  while (time > now()) {
    int any = 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, links().times, &any, MPI_STATUS_IGNORE);
    const Seconds left = time - now();
    if (left > inexact) std::this_thread::sleep_for(std::chrono::duration<Seconds>(std::min(left - inexact, nap)));
  }
}

std::unique_ptr<Message> begin_send(std::size_t bytes, int to, int tag) {
  Links& l = links();
  auto message = std::make_unique<Message>();
  l.free = std::max(l.free, now()) + static_cast<Seconds>(bytes) * l.of_byte;
  message->sent = true;
  message->left = l.free;
  message->until = l.free + l.latency;
  PMPI_Isend(&message->until, 1, MPI_DOUBLE, to, tag, l.times, &message->request);
  return message;
}

std::unique_ptr<Message> begin_receive(int from, int tag) {
  auto message = std::make_unique<Message>();
  PMPI_Irecv(&message->until, 1, MPI_DOUBLE, from, tag, links().times, &message->request);
  return message;
}

void finish(Message& message) {
  PMPI_Wait(&message.request, MPI_STATUS_IGNORE);
  hold_until(message.sent ? message.left : message.until);
}

/// A message that is part of a collective operation.
struct Part {
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<Message> message;

  static Part send(const void* data, std::size_t bytes, int to) {
    Part part;
    part.message = begin_send(bytes, to, collective_time_tag);
    PMPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, collective_tag, links().times, &part.request);
    return part;
  }
  static Part receive(void* data, std::size_t bytes, int from) {
    Part part;
    part.message = begin_receive(from, collective_time_tag);
    PMPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, collective_tag, links().times, &part.request);
    return part;
  }
  void wait() {
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
    finish(*message);
  }
};

struct Place {
  int rank = 0, size = 1;
  explicit Place(MPI_Comm comm) {
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
  }
};

/// Sends own … own_end-1 of a buffer to one rank and receives other … other_end-1 from one.
void exchange(char* buffer, std::size_t own, std::size_t own_end, int to, std::size_t other, std::size_t other_end,
              int from) {
  Part receive = Part::receive(buffer + other, other_end - other, from);
  Part send = Part::send(buffer + own, own_end - own, to);
  receive.wait();
  send.wait();
}

/// begins: of the parts of all ranks, which lie one after the other, and the end of the last one.
void all_gather(char* buffer, const std::vector<std::size_t>& begins, const Place& here) {
  const auto at = [&](int rank) { return begins[static_cast<std::size_t>(rank)]; };
  if (begins.back() <= max_doubling && std::has_single_bit(static_cast<unsigned>(here.size))) {
    for (int have = 1; have < here.size; have *= 2) {
      const int first = here.rank / have * have, other = first ^ have, partner = here.rank ^ have;
      exchange(buffer, at(first), at(first + have), partner, at(other), at(other + have), partner);
    }
    return;
  }
  const auto around = [&](int rank) { return (rank + here.size) % here.size; };
  for (int step = 0; step + 1 < here.size; ++step) {
    const int own = around(here.rank - step), other = around(here.rank - step - 1);
    exchange(buffer, at(own), at(own + 1), around(here.rank + 1), at(other), at(other + 1), around(here.rank - 1));
  }
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): MPI's names
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): each MPI has its own names
extern "C" {

int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  const int error = PMPI_Init_thread(count, words, required, provided);
  PMPI_Comm_dup(MPI_COMM_WORLD, &links().times);
  return error;
}

int MPI_Finalize() {
  PMPI_Comm_free(&links().times);
  return PMPI_Finalize();
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const Call call;
  std::unique_ptr<Message> message = begin_send(bytes_of(count, type), to, time_tag);
  const int error = PMPI_Isend(data, count, type, to, tag, comm, request);
  links().messages.emplace(*request, std::move(message));
  return error;
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  const Call call;
  const int error = PMPI_Irecv(data, count, type, from, tag, comm, request);
  links().messages.emplace(*request, begin_receive(from, time_tag));
  return error;
}

int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  const Call call;
  std::vector<std::unique_ptr<Message>> messages;
  for (int i = 0; i < count; ++i)
    if (const auto found = links().messages.lower_bound(requests[i]);
        found != links().messages.end() && found->first == requests[i]) {
      messages.push_back(std::move(found->second));
      links().messages.erase(found);
    }
  const int error = PMPI_Waitall(count, requests, statuses);
  for (const auto& message : messages) finish(*message);
  return error;
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  return MPI_Waitall(1, request, status == MPI_STATUS_IGNORE ? MPI_STATUSES_IGNORE : status);
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  const Call call;
  return PMPI_Iprobe(from, tag, comm, found, status);
}

double MPI_Wtime() {
  const Call call;
  return now();
}

int MPI_Barrier(MPI_Comm comm) {
  const Call call;
  return PMPI_Allreduce(MPI_IN_PLACE, &links().clock, 1, MPI_DOUBLE, MPI_MAX, comm);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const Call call;
  const Place here(comm);
  const std::size_t bytes = bytes_of(count, type);
  const int from_root = (here.rank - root + here.size) % here.size;
  std::vector<Part> sends;
  for (int have = 1; have < here.size; have *= 2) {
    const auto rank = [&](int relative) { return (relative + root) % here.size; };
    if (from_root < have && from_root + have < here.size)
      sends.push_back(Part::send(data, bytes, rank(from_root + have)));
    else if (from_root >= have && from_root < 2 * have) Part::receive(data, bytes, rank(from_root - have)).wait();
  }
  for (Part& send : sends) send.wait();
  return MPI_SUCCESS;
}

int MPI_Allgatherv(const void* own, int own_count, MPI_Datatype own_type, void* all, const int counts[],
                   const int offsets[], MPI_Datatype type, MPI_Comm comm) {
  const Call call;
  const Place here(comm);
  std::vector<std::size_t> begins;
  for (int r = 0; r < here.size; ++r) begins.push_back(bytes_of(offsets[r], type));
  begins.push_back(bytes_of(offsets[here.size - 1] + counts[here.size - 1], type));
  auto* const buffer = static_cast<char*>(all);
  if (own != MPI_IN_PLACE)
    std::memcpy(buffer + begins[static_cast<std::size_t>(here.rank)], own, bytes_of(own_count, own_type));
  all_gather(buffer, begins, here);
  return MPI_SUCCESS;
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
// NOLINTEND(readability-identifier-naming)
