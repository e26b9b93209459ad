// Everything but the interface for C (cblas.h).
#pragma once

#include <headlane/activation.hpp>
#include <headlane/attention.hpp>
#include <headlane/attention_options.hpp>
#include <headlane/attention_weights.hpp>
#include <headlane/causal_convolution.hpp>
#include <headlane/convert.hpp>
#include <headlane/disjoint.hpp>
#include <headlane/dtype.hpp>
#include <headlane/floating_view.hpp>
#include <headlane/gemm.hpp>
#include <headlane/gemm_batch.hpp>
#include <headlane/gemm_gated.hpp>
#include <headlane/kv_cache.hpp>
#include <headlane/layers.hpp>
#include <headlane/limits.hpp>
#include <headlane/linear_attention.hpp>
#include <headlane/merge.hpp>
#include <headlane/norm.hpp>
#include <headlane/packed_matrix.hpp>
#include <headlane/position.hpp>
#include <headlane/runtime.hpp>
#include <headlane/softmax.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/team.hpp>
#include <headlane/view.hpp>
