#include "attention/memory.hpp"

#include "attention/key_block.hpp"
#include "attention/visible_keys.hpp"

#include <cstdint>

namespace headlane::internal {
namespace {

Index shared_floats(Arena arena, const TaskPlan& plan) {
  if (plan.strategy == Strategy::by_rows) arena.take(plan.heads_per_round * plan.blocks.floats());
  else if (plan.key_parts > 1) arena.take(plan.tasks / plan.key_parts * plan.blocks.count * plan.state_floats());
  return arena.used();
}

}  // namespace

ThreadBuffers carve_row_buffers(Arena& arena, const AttentionProblem& p, Index rows, bool rows_are_heads) {
  ThreadBuffers buffers{};
  buffers.q = arena.take(rows * kernels::packed_row_stride);
  buffers.scores = arena.take(kernels::max_tile_rows * kernels::packed_row_stride);
  buffers.per_row = arena.take(2 * max_rows);
  if (p.options.relative_bias.table)
    buffers.distances = arena.take(relative_bias_floats(max_rows, rows_are_heads ? rows : 1));
  return buffers;
}

AttentionMemory::AttentionMemory(const AttentionProblem& p, const TaskPlan& plan)
    : p_(p),
      plan_(plan),
      shared_floats_(shared_floats(Arena(), plan)),
      thread_floats_(measured([&](Arena& arena) { return carve(arena); })) {}

ThreadBuffers AttentionMemory::carve(Arena& arena) const {
  ThreadBuffers buffers = carve_row_buffers(arena, p_, plan_.rows_per_task, plan_.rows_are_heads);
  buffers.state = arena.take(plan_.state_floats());
  if (plan_.few_keys) buffers.queries = arena.take(p_.q.shape[3] * kernels::panel_columns);
  if (plan_.strategy == Strategy::in_place) buffers.unpacked = arena.take(unpacked_floats(p_, plan_.rows_per_task));
  // One pass over the keys packs one block at a time; several passes keep all blocks.
  if (plan_.strategy == Strategy::by_head)
    buffers.packed = arena.take(plan_.parts == 1 ? plan_.blocks.block_floats() : plan_.blocks.floats());
  return buffers;
}

std::size_t AttentionMemory::bytes() const {
  constexpr Index line = 16;  // floats, to begin with one
  return static_cast<std::size_t>(shared_floats_ + p_.threads * thread_floats_ + line) * sizeof(float);
}

void AttentionMemory::open(Caller caller) {
  const std::span<std::byte> given = p_.options.workspace;
  if (given.data() != nullptr) {
    caller.require(given.size() >= bytes(), "workspace has ", static_cast<Index>(given.size()), " bytes, ",
                   static_cast<Index>(bytes()), " are needed with ", Index{p_.threads}, " threads");
    const auto address = reinterpret_cast<std::uintptr_t>(given.data());
    workspace_ = reinterpret_cast<float*>(given.data() + (64 - address % 64) % 64);
    shared_ = workspace_;
  } else if (shared_floats_ > 0) {
    shared_ = scratch(Purpose::shared, shared_floats_);
  }
}

ThreadBuffers AttentionMemory::of_thread(int thread) const {
  Arena arena(workspace_ == nullptr ? scratch(Purpose::rows, thread_floats_)
                                    : workspace_ + shared_floats_ + thread * thread_floats_);
  return carve(arena);
}

}  // namespace headlane::internal
