// Calls of a Bert, and comparison with the reference in double.
#pragma once

#include "bert_case.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

namespace headlane::test {

using models::Bert;
using models::Pooling;

// Far above rounding errors (the maximum is printed), far below the effect of a fault.
inline constexpr double tolerance = 2e-5;

struct Loaded {
  explicit Loaded(const BertCase& given, const std::string& prefix = "", bool old = false) {
    given.write(folder, prefix, "", old);
    bert.emplace(folder.path());
  }
  Folder folder;
  std::optional<Bert> bert;
};

using Poolings = std::vector<Pooling>;
inline const Poolings all_poolings{Pooling::mean,         Pooling::cls,
                                   Pooling::max,          Pooling::mean_sqrt_len_tokens,
                                   Pooling::weightedmean, Pooling::lasttoken};

inline std::vector<float> embedded(const Bert& bert, const Sentences& ids, const models::EmbedOptions& options = {}) {
  const Index size = bert.embedding_size(options.pooling);
  std::vector<float> out(ids.size() * static_cast<std::size_t>(size), nan);
  bert.embed(ids, {out.data(), {static_cast<Index>(ids.size()), size}}, options);
  return out;
}

inline std::vector<float> encoded(const Bert& bert, const Sentences& ids, const models::EncodeOptions& options = {}) {
  Index tokens = 0;
  for (const auto& sentence : ids)
    tokens += std::min(static_cast<Index>(sentence.size()),
                       options.truncate ? bert.config().max_seq_length : static_cast<Index>(sentence.size()));
  std::vector<float> out(static_cast<std::size_t>(tokens * bert.config().hidden_size), nan);
  bert.encode(ids, {out.data(), {tokens, bert.config().hidden_size}}, options);
  return out;
}

inline bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

inline double largest_error = 0;

inline void check_close(std::span<const float> got, const std::vector<double>& wanted, std::size_t sentence) {
  REQUIRE(got.size() == wanted.size());
  double worst = 0;
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    const double error = std::abs(static_cast<double>(got[j]) - wanted[j]);
    worst = std::isnan(error) ? static_cast<double>(infinity) : std::max(worst, error);
  }
  largest_error = std::max(largest_error, worst);
  CHECK_MESSAGE(worst <= tolerance, "sentence ", sentence, ": error ", worst);
}

}  // namespace headlane::test
