// Checks that functions of KvCache share.
#pragma once

#include "attention/kv_pages.hpp"
#include "core/check.hpp"

#include <span>

namespace headlane::internal {

/// Throws unless there is such a sequence.
void check_sequence(const KvPages& pages, Caller caller, Index sequence);

/// Throws if one of these sequences, which are there, is named twice.
void check_named_once(KvPages& pages, Caller caller, std::span<const Index> sequences);

/// Throws unless k and v [..., kv_heads, tokens, columns] are keys and values of these pages.
void check_pair(const KvPages& pages, const Operand& k, const Operand& v);

}  // namespace headlane::internal
