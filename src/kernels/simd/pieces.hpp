// Coefficients of simd/piecewise.hpp. Written by tools/pieces.py: change that.
#pragma once

#include "kernels/simd/piecewise.hpp"

namespace headlane::internal::kernels {
namespace {

/// tanh(x); 1 from its top on. Error: 0.23 · 2^-24.
constexpr Pieces<7> tanh_pieces{
    9.1f,
    false,
    {0.0f, 0x1.d1f312p-2f, 0x1.d1ec3ap-1f, 0x1.844542p0f, 0x1.369ee8p1f, 0x1.d1ec72p1f, 0x1.5d71bp2f, 0x1.fe200cp2f},
    {
        {-0x1.4ae9a2p-5f, 0x1.09851cp-5f, 0x1.28e974p-7f, -0x1.efaeeep-9f, 0x1.4047bcp-17f, 0x1.15893p-15f,
         0x1.2ade36p-20f, 0x1.027f66p-27f},
        {-0x1.df7d5cp-8f, -0x1.e0afcap-5f, 0x1.cb7c22p-7f, 0x1.be4f82p-8f, -0x1.70ade6p-11f, -0x1.0079dap-13f,
         -0x1.070b74p-18f, -0x1.d20e36p-26f},
        {0x1.14716ap-3f, -0x1.a49c6cp-7f, -0x1.c9b98cp-5f, -0x1.03458cp-9f, 0x1.a2ae0ap-9f, 0x1.789664p-12f,
         0x1.3b6f58p-17f, 0x1.099836p-24f},
        {-0x1.773c68p-13f, 0x1.5a7d92p-3f, 0x1.a073f8p-5f, -0x1.9c51bep-6f, -0x1.2c4f2ap-7f, -0x1.dbe16cp-11f,
         -0x1.8a1e72p-16f, -0x1.469f1cp-23f},
        {-0x1.55530ap-2f, -0x1.fd06aap-4f, 0x1.6f0dbep-4f, 0x1.60d876p-4f, 0x1.401a58p-6f, 0x1.df1bccp-10f,
         0x1.9587p-15f, 0x1.565d9p-22f},
        {-0x1.2f54cap-23f, -0x1.65122ep-2f, -0x1.626d64p-2f, -0x1.46119p-3f, -0x1.ef9598p-6f, -0x1.685354p-9f,
         -0x1.302178p-14f, -0x1.01c63cp-21f},
        {0x1p0f, 0x1.a312e8p-1f, 0x1.eb7bd2p-2f, 0x1.670f64p-3f, 0x1.f763d2p-6f, 0x1.68d04ep-9f, 0x1.2f71a6p-14f,
         0x1.003fa8p-21f},
        {0.0f, 0x1.b43f9cp-2f, 0x1.713896p-1f, 0x1.d0f4ccp-1f, 0x1.f812bcp-1f, 0x1.ff4b78p-1f, 0x1.fffb42p-1f,
         0x1.fffff8p-1f},
    }};

/// erf(x); 1 from its top on. Error: 0.58 · 2^-24.
constexpr Pieces<7> erf_pieces{
    4.0f,
    true,
    {0.0f, 0x1.999e9ep-3f, 0x1.99a6dep-2f, 0x1.5559e4p-1f, 0x1.111208p0f, 0x1.999ddep0f, 0x1.33350ap1f, 0x1.bcb9e4p1f},
    {
        {-0x1.651b16p-2f, -0x1.dec2dcp-2f, -0x1.3a5856p-7f, 0x1.8928b4p-5f, 0x1.8eef4cp-7f, -0x1.7c8c44p-8f,
         0x1.542b56p-16f, 0x1.4e2388p-14f},
        {0x1.093416p-3f, -0x1.089e6cp-6f, -0x1.978b44p-5f, -0x1.2b249cp-5f, 0x1.522958p-7f, 0x1.f72fep-7f,
         -0x1.6d4a5cp-9f, -0x1.cfbc5ap-14f},
        {0x1.7e1208p-4f, 0x1.86c742p-4f, 0x1.3843a8p-5f, -0x1.392a5ap-5f, -0x1.0e502cp-4f, -0x1.1f375p-8f,
         0x1.043116p-7f, 0x1.7e405p-14f},
        {0x1.65c66ap-10f, 0x1.afca76p-4f, 0x1.5fcf8ap-3f, 0x1.5b87e2p-3f, 0x1.7dc7b8p-5f, -0x1.93f1dep-5f,
         -0x1.8e9d0ep-7f, -0x1.3c087ep-14f},
        {-0x1.81329cp-2f, -0x1.547454p-2f, -0x1.be4b58p-3f, -0x1.b67e6p-6f, 0x1.3af2a4p-3f, 0x1.eaa062p-4f,
         0x1.98575cp-7f, 0x1.a4946ap-15f},
        {0x1.0f3e6ap-21f, -0x1.bc14b2p-3f, -0x1.89e18ep-2f, -0x1.ede89p-2f, -0x1.8b0b58p-2f, -0x1.1dc8cep-3f,
         -0x1.177b94p-7f, -0x1.7b306p-16f},
        {0x1.06eba8p-3f, 0x1.158996p0f, 0x1.ec4a0ap-1f, 0x1.72697cp-1f, 0x1.725942p-2f, 0x1.65373ep-4f, 0x1.d1eeaep-9f,
         0x1.b0925cp-18f},
        {0.0f, 0x1.c81dbcp-3f, 0x1.b6b93ep-2f, 0x1.4ef968p-1f, 0x1.bcb62ap-1f, 0x1.f3e4aep-1f, 0x1.ffa5c8p-1f,
         0x1.ffffe2p-1f},
    }};

/// x · Phi(-x). Error: 0.29 · 2^-24.
constexpr Pieces<8> gelu_pieces{
    5.5f,
    false,
    {0.0f, 0x1.7af0d2p0f, 0x1.2c5fdep1f, 0x1.8a9e7cp1f, 0x1.de1734p1f, 0x1.14ee5p2f, 0x1.37dce8p2f, 0x1.586974p2f},
    {
        {0x1.5d4a9cp-11f, -0x1.704596p-11f, 0x1.69d0a2p-12f, -0x1.af124p-16f, -0x1.7b3a1cp-15f, -0x1.7a8198p-21f,
         0x1.ed7c5ap-19f, 0x1.49f0cap-20f},
        {0x1.a675acp-11f, -0x1.b1bfdep-10f, -0x1.22677cp-13f, 0x1.688892p-12f, 0x1.307ff8p-16f, -0x1.c8addep-16f,
         -0x1.401d46p-17f, -0x1.f9b11p-20f},
        {-0x1.58e4p-7f, 0x1.4c8c4ap-8f, -0x1.001c9ap-9f, -0x1.2d13f4p-11f, 0x1.3fcffap-13f, 0x1.79a0f4p-14f,
         0x1.68c062p-16f, 0x1.d7c2f6p-19f},
        {0x1.a098fap-13f, 0x1.1bcd72p-9f, 0x1.8efd28p-8f, -0x1.607fd4p-12f, -0x1.67e6fcp-11f, -0x1.a596f6p-13f,
         -0x1.302f46p-15f, -0x1.4cac38p-18f},
        {0x1.1030bcp-4f, -0x1.299612p-5f, -0x1.250c9ep-8f, 0x1.0574fp-8f, 0x1.9b31e2p-10f, 0x1.4edc0cp-12f,
         0x1.86e86cp-15f, 0x1.6f559ep-18f},
        {0x1.c337e6p-19f, 0x1.e7a2dep-5f, -0x1.ead69p-7f, -0x1.3f26b4p-7f, -0x1.2eb862p-9f, -0x1.7dcd62p-12f,
         -0x1.769bdp-15f, -0x1.3467e2p-18f},
        {-0x1.98845ap-2f, 0x1.a1a332p-7f, 0x1.6d1426p-5f, 0x1.a76698p-7f, 0x1.24031ep-9f, 0x1.2caa92p-12f,
         0x1.fbfb64p-16f, 0x1.73693p-19f},
        {0x1p-1f, -0x1.063aaap-3f, -0x1.9b0222p-5f, -0x1.3a4aep-7f, -0x1.547668p-10f, -0x1.2755c6p-13f,
         -0x1.b4e34cp-17f, -0x1.1ea156p-20f},
        {0.0f, 0x1.a4ce56p-4f, 0x1.6c22a4p-6f, 0x1.9e182ep-9f, 0x1.6f794p-12f, 0x1.12459cp-15f, 0x1.67b29ap-19f,
         0x1.aafa9p-23f},
    }};

}  // namespace
}  // namespace headlane::internal::kernels
