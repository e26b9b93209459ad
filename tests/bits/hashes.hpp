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
    {"gemm bfloat16 33 129 1100", 0xea6efa2b835e7773u},
    {"gemm float16 5 129 515", 0x77deec220db138b7u},
    {"gemm int8 5 129 515", 0x997f0d487903b3e4u},
    {"gemm int8 33 129 1102", 0x08d97b8a28d73420u},
    {"gemm int8_group32 5 129 515", 0x10a2fa12bc4a193eu},
    {"gemm int8_group32 33 129 1102", 0x84cce74bd0d07672u},
    {"gemm int4_group32 5 129 515", 0x4c6efc545f2bf29du},
    {"gemm int4_group32 33 129 1102", 0x43e5f43bf919089du},
    {"gemm int8 x int8 5 129 515", 0x353c24179da6ab03u},
    {"gemm int8 x int8 33 129 1102", 0x9301640f1956565du},
    {"gemm int8_group32 x int8 5 129 515", 0xb5010473912faeb0u},
    {"gemm int4_group32 x int8 33 129 1102", 0xe3af99f01acd2450u},
    {"gemm 19 21 0", 0x797dc46472ce9659u},
    {"softmax 5 1", 0x17263910e60ca9f8u},
    {"softmax 7 37", 0xb38e5e63fa18bb24u},
    {"softmax 7 37 scale", 0xbf729d6592755270u},
    {"softmax 4 512", 0xd02fbc1382caefa6u},
    {"softmax 3 5000", 0xdf3a514d5c7d26ddu},
    {"softmax 5 100 special", 0x1a645e908a6eebe9u},
    {"log_softmax 7 37", 0x69af2ade91222972u},
    {"log_softmax 3 5000", 0x30253a6c305d7f00u},
    {"log_softmax 5 100 special", 0x76acf91387700f10u},
    {"attention 8 heads of 64", 0x4332bf77ababb6fbu},
    {"attention 8 heads of 64 causal", 0xd8fe98af6bde142fu},
    {"attention BSHD", 0x5e2bc2914ba2091bu},
    {"attention grouped", 0xf84f8f8e6402757eu},
    {"attention softcap", 0x6077a9b91a1dc76au},
    {"attention decode", 0x993e25023c0e3122u},
    {"attention blocks", 0xc922a1ecfa01855bu},
    {"attention negative offset", 0x0d4489fa94756474u},
    {"attention head_dim 1", 0x109451849c7c9356u},
    {"attention head_dim 256", 0xa604022251c2f989u},
    {"attention scale -2", 0x8dedb40ee995374du},
    {"attention mask and bias", 0x68c4abb6fc95d19bu},
    {"attention mask and bias causal", 0x7f67eb85b36e4912u},
    {"attention relative bias", 0x96dbcac11a9f9e5eu},
    {"attention variable-length", 0xa131e600f7db1cfeu},
    {"attention over a cache", 0xc0524d2e6824dccfu},
    {"attention over a cache bfloat16", 0x3109a7bd9c30c035u},
    {"attention over a cache float16", 0xc33727142c1c0297u},
    {"attention over a cache int8", 0x409435612b9544efu},
    {"layer_norm 5 700", 0xc944e8068d334e4du},
    {"rms_norm 5 700", 0x81cd87a91ca6229fu},
    {"sinusoidal 300 64", 0x94026de5bd32bf33u},
    {"sinusoidal 30 512", 0x60590f795921d3dfu},
    {"sinusoidal 41 37 doubled", 0x70c8a2a18301bac2u},
    {"rotary 2 3 50 64", 0xb175b26579abc7c9u},
    {"rotary 1 2 30 100 interleaved", 0xaf262fabfbb3f6acu},
    {"alibi slopes", 0x8c9a7b36122905b5u},
    {"linear_attention 2 2 4 70 33 40", 0x6788479c07cb7f14u},
    {"linear_attention token decay", 0x59efac9b01fc5892u},
    {"linear_attention row decay normalize", 0x2a6a847dc236b0e3u},
    {"linear_attention token gate", 0xe19f5c35f4c64311u},
    {"linear_attention row gate", 0x568849a18de7cb01u},
    {"causal_convolution 2 70 300 4", 0x6da6caaaf7ae7e1cu},
    {"causal_convolution 2 70 300 7 silu", 0xd689c4e06404d7a2u},
    {"layers", 0xf441043d53170f4du},
    {"layers pre-norm grouped", 0xb5358fbb0ee20066u},
    {"layers rms gated", 0x48436c73bbeac92fu},
    {"exp", 0x3ec93abebab32c49u},
    {"log", 0x049d3835a2720c73u},
};

}  // namespace headlane::test
