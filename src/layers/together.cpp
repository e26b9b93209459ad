#include "layers/together.hpp"

#include <headlane/runtime.hpp>

namespace headlane::internal {
namespace {

constinit thread_local bool compared = false;

}  // namespace

ComparedScope::ComparedScope(Team* team) noexcept : outer_(compared), guard_(team) { compared = true; }
ComparedScope::~ComparedScope() { compared = outer_; }

bool compares(const Team* team) { return team != nullptr && team->size() > 1 && !compared; }

void add_version(Description& description) { description.add("headlane", version()); }

}  // namespace headlane::internal
