// The layers of a transformer, built from the functions of this library. Weights are packed once.
//
// Weights: a layer is constructed from a state dict with the tensor names and layouts of the
//   torch.nn module of the same name. It looks up prefix + name, for instance
//   "encoder.layers.0." + "linear1.weight", and copies what it needs. Biases are optional.
//   Numbers of heads and other settings that no tensor tells are options.
//   state_dict() returns the same tensors bit for bit, names prefixed. A layer constructed from
//   them with the same options computes the same bits.
//   Matrices may be packed beforehand (StateDict::packed): weights that a file stores in fewer
//   bits are kept as they are. state_dict() returns their float32 values; packing those anew may
//   find other scales.
//   A layer that was default-constructed or moved from accepts only rows of 0 elements; if it has
//   attention, it accepts nothing.
// Shapes: x and y are [batch, length, d_model], any strides. Padding is described by lengths,
//   masks or variable-length sequences in AttentionOptions (attention.hpp), with the shapes of
//   the layer's heads.
// Types: x, y and memory are float32, or all bfloat16 or float16, with the result of float32
//   rounded once. State dicts and the tensors of options are float32.
// Teams: with the option `team` (team.hpp), a layer is one rank's part of a layer that several
//   processes compute together. It packs only its share of each weight: of the heads of attention,
//   and of the columns of all other products (Shares); norms and biases are small. Every rank makes
//   it with the same arguments, or every rank with a state dict that has only its own rows
//   (StateDict::shares).
//   Making it, and every call that computes, but project_memory(), is collective: each rank makes
//   it with the same arguments, of the same shapes and strides, and gets the same y. num_threads,
//   instruction sets and addresses may differ. Caches are those of the heads of the rank. The
//   columns of a product are gathered; no sum is cut over ranks, so the bits are those of one rank,
//   whatever the number. A layer refers to its team, which must outlive it; one thread at a time
//   calls the layers of a team.
//   Ranks compare (Team::agree) what they make: version, options, names, shapes, types and elements
//   of the tensors, of own rows and of packed matrices whose columns are no multiple of 32 only the
//   shapes; and each call before it sends anything else: shapes and types, options (masks and
//   biases by shape, all others by value), ids, and the lengths and types of caches. What differs,
//   or what one rank refuses, is the same std::invalid_argument on all ranks, which names them, and
//   they may go on. A layer within another one, and those of models, compare nothing of their own.
//   An error that occurs later on some ranks only, such as a full cache or a number that is not
//   finite for an int8 cache, is an exception on those ranks alone (Team::abandoned).
//   state_dict() needs the whole weights: an error in a team of several ranks.
// Aliasing: y may be x itself (same data and strides), unless stated otherwise; other overlaps
//   are an error.
// Arithmetic: that of gemm, attention, layer_norm and so on, each with its own rounding. The bits
//   do not depend on instruction set, number of threads, batch or padding.
// Memory: forward() allocates nothing once warm; scratch memory is kept per thread.
// Threads: forward() is const; any number of threads may call it concurrently.
// Errors: std::invalid_argument, before anything is written; its message names the function, the
//   tensor and the shapes. std::bad_alloc.
#pragma once

#include <headlane/decoder_layer.hpp>
#include <headlane/embedding.hpp>
#include <headlane/encoder_layer.hpp>
#include <headlane/feed_forward.hpp>
#include <headlane/linear.hpp>
#include <headlane/multi_head_attention.hpp>
#include <headlane/normalization.hpp>
#include <headlane/team.hpp>
