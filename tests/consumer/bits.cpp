// Prints a hash of the results of some functions, which must be the same in every build. The inputs
// are made of integers, so that flags like -ffast-math, with which this file may be compiled, do
// not change them.
#include <headlane/headlane.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using headlane::AnyView;
using headlane::Index;
using headlane::View;

using Floats = std::vector<float>;

/// Floats from 2^-4 to 2^3 of either sign.
Floats numbers(Index count, std::uint32_t seed) {
  Floats x(static_cast<std::size_t>(count));
  for (float& one : x) {
    seed = seed * 1664525u + 1013904223u;
    const std::uint32_t exponent = 123 + (seed >> 28 & 7), sign = seed >> 31 << 31;
    one = std::bit_cast<float>(sign | exponent << 23 | (seed >> 5 & 0x7fffffu));
  }
  return x;
}

/// Zeros of both signs, infinities, and NaN among the others.
Floats special_numbers(Index count, std::uint32_t seed) {
  constexpr std::uint32_t special[] = {0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0u};
  Floats x = numbers(count, seed);
  for (std::size_t i = 0; i < x.size(); i += 7) x[i] = std::bit_cast<float>(special[i / 7 % std::size(special)]);
  return x;
}

std::uint64_t hash = 0xcbf29ce484222325u;

void add(const Floats& x) {
  for (const float one : x) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(one);
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0x7fc00000u;  // all NaNs alike
    hash = (hash ^ bits) * 0x100000001b3u;
  }
}

void products() {
  const Index m = 37, k = 531, n = 45;
  const Floats a = numbers(m * k, 1), b = numbers(k * n, 2), residual = numbers(m * n, 3);
  Floats c(static_cast<std::size_t>(m * n));
  headlane::gemm(View<const float, 2>(a.data(), {m, k}), View<const float, 2>(b.data(), {k, n}),
                 View<float, 2>(c.data(), {m, n}),
                 {.activation = headlane::Activation::gelu, .residual = {residual.data(), {m, n}}});
  add(c);
}

void rows() {
  const Index m = 11, n = 77;
  for (const bool special : {false, true}) {
    const Floats x = special ? special_numbers(m * n, 4) : numbers(m * n, 4);
    Floats y(x.size());
    const View<const float, 2> in(x.data(), {m, n});
    const View<float, 2> out(y.data(), {m, n});
    headlane::softmax(in, out), add(y);
    headlane::softmax(in, out, {.log = true}), add(y);
    headlane::layer_norm(in, out), add(y);
    headlane::rms_norm(in, out), add(y);
    for (const auto activation :
         {headlane::Activation::gelu_tanh, headlane::Activation::silu, headlane::Activation::erf})
      headlane::activate(in, out, activation), add(y);
  }
}

void positions() {
  const Index length = 19, dim = 64;
  const Floats x = numbers(length * dim, 5);
  Floats y(x.size());
  headlane::rotary_embedding(View<const float, 4>(x.data(), {1, 1, length, dim}),
                             View<float, 4>(y.data(), {1, 1, length, dim}), {.offset = 1000});
  add(y);
  headlane::sinusoidal_encoding(View<float, 2>(y.data(), {length, dim}), {.offset = 123456});
  add(y);
  Floats slopes(12);
  headlane::alibi_slopes(View<float, 1>(slopes.data(), {12}));
  add(slopes);
}

void attentions() {
  const Index heads = 4, length = 67, dim = 24;
  const Floats q = numbers(heads * length * dim, 6), k = numbers(heads * length * dim, 7);
  const View<const float, 4> rows_of_q(q.data(), {1, heads, length, dim}), keys(k.data(), {1, heads, length, dim});
  for (const bool special : {false, true}) {
    const Floats v = special ? special_numbers(heads * length * dim, 8) : numbers(heads * length * dim, 8);
    Floats y(q.size()), lse(static_cast<std::size_t>(heads * length));
    headlane::attention(rows_of_q, keys, View<const float, 4>(v.data(), {1, heads, length, dim}),
                        View<float, 4>(y.data(), {1, heads, length, dim}),
                        {.softcap = 20.0f, .causal = true, .lse = {lse.data(), {1, heads, length}}});
    add(y);
    add(lse);
  }
}

void recurrences() {
  const Index heads = 2, length = 67, dim = 24, channels = 40;
  const Floats q = numbers(heads * length * dim, 9), k = numbers(heads * length * dim, 10);
  for (const bool special : {false, true}) {
    const Floats v = special ? special_numbers(heads * length * dim, 11) : numbers(heads * length * dim, 11);
    Floats y(q.size()), state = numbers(heads * dim * dim, 12), decay(static_cast<std::size_t>(heads * length), -0.5f);
    const View<const float, 3> beta(decay.data(), {1, heads, length});
    headlane::linear_attention(
        View<const float, 4>(q.data(), {1, heads, length, dim}),
        View<const float, 4>(k.data(), {1, heads, length, dim}),
        View<const float, 4>(v.data(), {1, heads, length, dim}), View<float, 4>(y.data(), {1, heads, length, dim}),
        {.normalize = true, .log_decay = beta, .beta = beta, .state = {state.data(), {1, heads, dim, dim}}});
    add(y);
    add(state);
    const Floats gate = special ? special_numbers(heads * length, 14) : numbers(heads * length, 14);
    const View<const float, 3> gates(gate.data(), {1, heads, length});
    headlane::linear_attention(View<const float, 4>(q.data(), {1, heads, length, dim}),
                               View<const float, 4>(k.data(), {1, heads, length, dim}),
                               View<const float, 4>(v.data(), {1, heads, length, dim}),
                               View<float, 4>(y.data(), {1, heads, length, dim}),
                               {.log_decay = gates, .beta = gates, .a_log = {q.data(), {heads}}, .sigmoid_beta = true});
    add(y);
    headlane::linear_attention(
        View<const float, 4>(q.data(), {1, heads, length, dim}),
        View<const float, 4>(k.data(), {1, heads, length, dim}),
        View<const float, 4>(v.data(), {1, heads, length, dim}), View<float, 4>(y.data(), {1, heads, length, dim}),
        {.log_decay = gates, .a_log = {q.data(), {heads}}, .discretize = true, .skip = {k.data(), {heads}}});
    add(y);
    const Floats weight = numbers(channels * 4, 13);
    Floats z(static_cast<std::size_t>(length * channels));
    headlane::causal_convolution(
        View<const float, 3>(v.data(), {1, length, channels}), View<const float, 2>(weight.data(), {channels, 4}),
        View<float, 3>(z.data(), {1, length, channels}), {.activation = headlane::Activation::silu});
    add(z);
  }
}

}  // namespace

int main() {
  for (const std::string_view isa : headlane::available_isas()) {
    headlane::set_isa(isa);
    hash = 0xcbf29ce484222325u;
    products();
    rows();
    positions();
    attentions();
    recurrences();
    std::printf("%s%016llx", isa == headlane::available_isas().front() ? "" : " ",
                static_cast<unsigned long long>(hash));
  }
  std::printf("\n");
}
