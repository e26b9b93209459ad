// Transport::agree: ranks compare hashes, and only if these differ the texts.
#include <headlane/mpi/transport.hpp>

#include "error.hpp"
#include "floats.hpp"
#include "together.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace headlane::mpi {

using namespace internal;
namespace {

/// FNV-1a (Fowler, Noll, Vo 1991), 64 bits.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

/// What each rank has in `mine`, equally long everywhere.
template <class T>
std::vector<T> all_of(Transport& transport, const T& mine) {
  constexpr std::size_t floats = sizeof(T) / sizeof(float);
  const auto ranks = static_cast<std::size_t>(transport.size());
  const Floats buffer(ranks * floats);
  std::vector<Index> begins;
  for (std::size_t r = 0; r <= ranks; ++r) begins.push_back(static_cast<Index>(r * floats));
  std::memcpy(buffer.data() + begins[static_cast<std::size_t>(transport.rank())], &mine, sizeof(T));
  transport.all_gather(buffer.data(), begins);
  std::vector<T> all(ranks);
  std::memcpy(all.data(), buffer.data(), ranks * sizeof(T));
  return all;
}

/// The texts of all ranks.
std::vector<std::string> texts_of(Transport& transport, std::string_view mine, const std::vector<Index>& lengths) {
  std::vector<Index> begins{0};
  for (const Index length : lengths) begins.push_back(begins.back() + (length + 3) / 4);
  const Floats buffer(static_cast<std::size_t>(begins.back()));
  const auto at = [&](std::size_t rank) { return buffer.data() + begins[rank]; };
  if (!mine.empty()) std::memcpy(at(static_cast<std::size_t>(transport.rank())), mine.data(), mine.size());
  transport.all_gather(buffer.data(), begins);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.emplace_back(reinterpret_cast<const char*>(at(r)), static_cast<std::size_t>(lengths[r]));
  return texts;
}

/// Removes what all texts begin and end with, up to a comma: "a, b, c" and "a, d, c" leave b and d.
void keep_differences(std::vector<std::string>& texts) {
  const auto cut = [&](bool front) {
    std::size_t same = texts.front().size();
    for (const std::string& text : texts) {
      const auto at = [&](const std::string& of, std::size_t i) { return front ? of[i] : of[of.size() - 1 - i]; };
      same = std::min(same, text.size());
      for (std::size_t i = 0; i < same; ++i)
        if (at(text, i) != at(texts.front(), i)) same = i;
    }
    const std::string& first = texts.front();
    const std::size_t comma = front ? first.substr(0, same).rfind(", ") : first.find(", ", first.size() - same);
    if (comma == std::string::npos) return;
    const std::size_t removed = front ? comma + 2 : first.size() - comma;
    for (std::string& text : texts) text.erase(front ? 0 : text.size() - removed, removed);
  };
  cut(true);
  cut(false);
}

/// "ranks 0, 1 have …; ranks 2 have …", in the order of the first rank of each text; a long list of
/// ranks is shortened.
std::string difference(const std::vector<std::string>& texts) {
  constexpr std::size_t most = 8;
  std::vector<std::string> different;
  std::vector<std::vector<std::size_t>> ranks_of;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const auto found = std::find(different.begin(), different.end(), texts[r]);
    if (found == different.end()) ranks_of.emplace_back();
    ranks_of[static_cast<std::size_t>(found - different.begin())].push_back(r);
    if (found == different.end()) different.push_back(texts[r]);
  }
  const auto is_error = [](const std::string& text) { return text.starts_with("an error"); };
  if (std::none_of(different.begin(), different.end(), is_error)) keep_differences(different);
  std::string result;
  for (std::size_t g = 0; g < different.size(); ++g) {
    const std::vector<std::size_t>& ranks = ranks_of[g];
    result += result.empty() ? "" : "; ";
    result += ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size() && i < most; ++i)
      result += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (ranks.size() > most) result += ", … (" + std::to_string(ranks.size()) + " ranks)";
    result += (ranks.size() == 1 ? " has " : " have ") + different[g];
  }
  return result;
}

/// The texts of all ranks; none if they are the same.
std::vector<std::string> differing_texts(Transport& transport, std::string_view mine) {
  const StepGuard guard(&transport);
  struct Summary {
    std::uint64_t hash;
    Index length;
  };
  const std::vector<Summary> all = all_of(transport, Summary{hash_of(mine), static_cast<Index>(mine.size())});
  bool same = true;
  std::vector<Index> lengths;
  for (const Summary& one : all) {
    same = same && one.hash == all.front().hash && one.length == all.front().length;
    lengths.push_back(one.length);
  }
  return same ? std::vector<std::string>() : texts_of(transport, mine, lengths);
}

}  // namespace

void Transport::require_intact(std::string_view what) const {
  if (broken_)
    fail<std::runtime_error>(what,
                             ": an earlier call on this transport ended with an exception that other ranks may "
                             "not have: it is out of step with them, the job has to end");
}

void Transport::agree(std::string_view what, std::string_view mine) {
  require_intact(what);
  std::vector<std::string> texts = differing_texts(*this, std::string(what).append("\n").append(mine));
  if (texts.empty()) return;
  // The message has the function of each rank only if these differ, and begins with that of rank 0.
  const std::string first = texts.front().substr(0, texts.front().find('\n') + 1);
  const bool same = std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text.starts_with(first); });
  for (std::string& text : texts) {
    if (same) text.erase(0, first.size());
    else text.replace(text.find('\n'), 1, ": ");
  }
  fail(std::string_view(first).substr(0, first.size() - 1), ": the ranks differ: ", difference(texts));
}

}  // namespace headlane::mpi
