// Operands as rectangles: a range of addresses times an interval of the pitch, which repeats in
// that range. A sweep over the addresses keeps the intervals of the open rectangles in Fenwick
// trees (Fenwick 1994).
#include "core/overlap.hpp"

#include "core/scratch.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace headlane::internal {
namespace {

/// Counts numbers of 0 … size - 1, and how many of them are below a bound.
class Counts {
 public:
  void clear(std::size_t size) { sums_.assign(size + 1, 0); }
  void add(Index at, int change) {
    for (auto i = static_cast<std::size_t>(at) + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += change;
  }
  [[nodiscard]] Index below(Index at) const {
    Index sum = 0;
    for (auto i = static_cast<std::size_t>(at); i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return sum;
  }

 private:
  std::vector<Index> sums_;
};

/// The open intervals [begin, end) of a sweep.
class OpenIntervals {
 public:
  void clear(std::size_t size) { begins_.clear(size), ends_.clear(size); }
  void change(Index begin, Index end, int by) { begins_.add(begin, by), ends_.add(end, by); }
  /// True if an open interval meets this one: more of them begin before its end than end before its
  /// beginning.
  [[nodiscard]] bool meet(Index begin, Index end) const { return begins_.below(end) > ends_.below(begin + 1); }

 private:
  Counts begins_, ends_;
};

/// A rectangle of an operand, which has two where its interval wraps around the pitch.
struct Rectangle {
  Range range;
  Index begin, end;
  bool written;
};

struct Event {
  std::uintptr_t address;
  bool opens;  // at the same address, rectangles that end come first
  std::size_t rectangle;
  bool operator<(const Event& other) const {
    return address != other.address ? address < other.address : !opens && other.opens;
  }
};

/// Memory of a call, kept for the next one of the thread.
struct Sweep {
  std::vector<Rectangle> rectangles;
  std::vector<Event> events;
  std::vector<Index> places;
  OpenIntervals all, written;

  /// Replaces places by their ranks.
  void number_places() {
    places.clear();
    for (const Rectangle& r : rectangles) places.insert(places.end(), {r.begin, r.end});
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (Rectangle& r : rectangles)
      for (Index* place : {&r.begin, &r.end})
        *place = std::lower_bound(places.begin(), places.end(), *place) - places.begin();
    all.clear(places.size() + 1), written.clear(places.size() + 1);
  }
};

/// Checks operands of a common pitch that may overlap. The two rectangles of one operand do not
/// meet.
bool sweep(std::span<const Extent> extents, Index pitch) {
  Sweep& s = kept_object<Sweep>();
  s.rectangles.clear();
  const Index size = extents.front().element_size;
  for (const Extent& e : extents) {
    if (e.element_size != size || e.data % static_cast<std::uintptr_t>(size) != 0) return false;
    const Index length = std::min(e.runs.length, pitch);
    const auto begin =
        static_cast<Index>(e.data / static_cast<std::uintptr_t>(size) % static_cast<std::uintptr_t>(pitch));
    s.rectangles.push_back({e.range, begin, std::min(begin + length, pitch), e.written});
    if (begin + length > pitch) s.rectangles.push_back({e.range, 0, begin + length - pitch, e.written});
  }
  s.number_places();
  s.events.clear();
  for (std::size_t i = 0; i < s.rectangles.size(); ++i) {
    s.events.push_back({s.rectangles[i].range.first, true, i});
    s.events.push_back({s.rectangles[i].range.end, false, i});
  }
  std::sort(s.events.begin(), s.events.end());
  for (const Event& event : s.events) {
    const Rectangle& r = s.rectangles[event.rectangle];
    if (event.opens && (r.written ? s.all : s.written).meet(r.begin, r.end)) return false;
    s.all.change(r.begin, r.end, event.opens ? 1 : -1);
    if (r.written) s.written.change(r.begin, r.end, event.opens ? 1 : -1);
  }
  return true;
}

}  // namespace

Extent extent_of(const Operand& operand, bool written) {
  const Runs runs = runs_of(operand);
  const auto data = reinterpret_cast<std::uintptr_t>(operand.data);
  return {range_of(operand), runs, data + static_cast<std::uintptr_t>(runs.first) * operand.element_size,
          static_cast<Index>(operand.element_size), written};
}

bool surely_apart(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& x, const Extent& y) { return x.range.first < y.range.first; });
  // Groups of operands with connected ranges; most have one operand, or none that is written.
  for (std::size_t first = 0, end = 0; first < extents.size(); first = end) {
    std::uintptr_t reach = extents[first].range.end;
    Index pitch = 0;
    bool written = false;
    for (; end < extents.size() && (end == first || extents[end].range.first < reach); ++end) {
      reach = std::max(reach, extents[end].range.end);
      pitch = std::gcd(pitch, extents[end].runs.pitch);
      written = written || extents[end].written;
    }
    if (!written || end - first == 1) continue;
    if (pitch == 0 || !sweep({extents.data() + first, end - first}, pitch)) return false;
  }
  return true;
}

}  // namespace headlane::internal
