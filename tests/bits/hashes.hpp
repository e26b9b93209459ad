// The output of HEADLANE_PRINT_HASHES=1 test_hashes.
#pragma once

#include <cstdint>

namespace headlane::test {

struct CheckedHash {
  const char* name;
  std::uint64_t hash;
};

inline constexpr CheckedHash checked_hashes[] = {
    {"gemm 1 1 1", 0x0c1437d4329711f5u},
    {"gemm 1 512 512", 0x7f3c383ae180f626u},
    {"gemm 13 35 17", 0x0d460b77d7351802u},
    {"gemm 64 64 64", 0x374bdb4402b23e35u},
    {"gemm 50 70 513", 0xb48bbfd4ae391ba8u},
    {"gemm 33 129 1100", 0x8ccb0db36af27069u},
    {"gemm 33 129 1100 transposed", 0x8ccb0db36af27069u},
    {"gemm 19 21 0", 0x797dc46472ce9659u},
    {"softmax 5 1", 0x17263910e60ca9f8u},
    {"softmax 7 37", 0x916e9407ad3c4066u},
    {"softmax 7 37 scale", 0x77d060b668e012f5u},
    {"softmax 4 512", 0x2addfc5d4e9054a9u},
    {"softmax 3 5000", 0xad7973cc6c83faffu},
    {"softmax 5 100 special", 0xf0e341209b021fffu},
    {"log_softmax 7 37", 0x69af2ade91222972u},
    {"log_softmax 3 5000", 0x30253a6c305d7f00u},
    {"log_softmax 5 100 special", 0x76acf91387700f10u},
    {"attention 8 heads of 64", 0xf7992cc17454d646u},
    {"attention 8 heads of 64 causal", 0xb5804434503c2653u},
    {"attention BSHD", 0x795cdd29a3d8a024u},
    {"attention grouped", 0x322c5cabe03ed412u},
    {"attention decode", 0x52d87017d76c6c70u},
    {"attention blocks", 0x801fbda745ea4291u},
    {"attention negative offset", 0x5fd14644fdcbea6fu},
    {"attention head_dim 1", 0x59bb7657e055aac7u},
    {"attention head_dim 256", 0x401b33fad7a2ca5bu},
    {"attention scale -2", 0xbc70e95055360280u},
    {"attention mask and bias", 0xc1c7116c35f2f8e7u},
    {"attention mask and bias causal", 0xb31177041d5be57bu},
    {"attention relative bias", 0x2b5d1f3749f7aaefu},
    {"attention variable-length", 0xbcce81f08189af4fu},
    {"layer_norm 5 700", 0xc944e8068d334e4du},
    {"rms_norm 5 700", 0x81cd87a91ca6229fu},
    {"sinusoidal 300 64", 0x94026de5bd32bf33u},
    {"sinusoidal 30 512", 0x60590f795921d3dfu},
    {"sinusoidal 41 37 doubled", 0x70c8a2a18301bac2u},
    {"rotary 2 3 50 64", 0xb175b26579abc7c9u},
    {"rotary 1 2 30 100 interleaved", 0xaf262fabfbb3f6acu},
    {"alibi slopes", 0x8c9a7b36122905b5u},
    {"layers", 0xd730d570bfaf5ca0u},
    {"layers pre-norm grouped", 0x346b5de4256eb915u},
    {"layers rms gated", 0x7143af746b79a574u},
    {"exp", 0x650a2ac61aff8feau},
    {"log", 0x049d3835a2720c73u},
};

}  // namespace headlane::test
