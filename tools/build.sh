# shellcheck shell=bash
# Building with CMake, and running the C++ tests.

# One version of LLVM for everything, named in CMakePresets.json: another clang-format formats
# differently.
llvm=$(sed -n 's/.*"clang++-\([0-9]*\)".*/\1/p' CMakePresets.json)

[[ $CXX != clang ]] || CXX=clang++-$llvm

# Debian packages, as `need` takes them.
model_packages=(nlohmann/json.hpp=nlohmann-json3-dev sentencepiece_processor.h=libsentencepiece-dev
  CLI/CLI.hpp=libcli11-dev)
test_packages=(doctest/doctest.h=doctest-dev)
bench_packages=(benchmark/benchmark.h=libbenchmark-dev)

# need_clang VERSION: with OpenMP.
need_clang() { need "clang++-$1=clang-$1" "/usr/lib/llvm-$1/lib/clang/$1/include/omp.h=libomp-$1-dev"; }

# need_build THING=PACKAGE …: the compiler that CXX names, CMake, Ninja, xsimd, and these.
need_build() {
  if [[ $CXX == clang++-* ]]; then need_clang "${CXX##*-}"; else need "$CXX=$CXX"; fi
  need cmake=cmake ninja=ninja-build "$@"
  use_ccache
  need_xsimd
}

# The kernels are the same in every build by one compiler: the Python package takes them from here.
use_ccache() {
  ! may_install || need ccache=ccache
  ! command -v ccache >/dev/null ||
    export CCACHE_DIR=$PWD/build/cache/ccache CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
}

# configure PRESET PART …: in build/PRESET, or build/PRESET-CXX for a compiler other than g++; sets
# `folder`. Builds these parts (TESTS, BENCH, EXAMPLES, MODELS, MPI) and those that earlier commands
# asked for, so that bench and test share one folder. Options of CMake may be among them: -D….
configure() {
  local preset=$1 part options=(-DCMAKE_PROJECT_headlane_INCLUDE="$PWD/cmake/precompiled.cmake")
  folder=build/$preset
  [[ $CXX == g++ ]] || folder+=-${CXX##*/}
  [[ -e $folder/CMakeCache.txt ]] || options+=("-DHEADLANE_BUILD_"{TESTS,BENCH,EXAMPLES,MODELS,MPI}"=OFF")
  for part in "${@:2}"; do
    case $part in
      -D*) options+=("$part") ;;
      *) options+=("-DHEADLANE_BUILD_$part=ON") ;;
    esac
  done
  [[ ! ${CI:-} ]] || options+=(-DHEADLANE_WERROR=ON)
  cmake --preset "$preset" -B "$folder" --log-level=NOTICE "${options[@]}"
}

# build [TARGET …]: in the folder of the last `configure`; without a target everything.
build() { cmake --build "$folder" -j "$(nproc)" --target "${@:-all}"; }

# pattern NAME …: what ctest -R takes for these tests, with any instruction set.
pattern() { echo "^($(IFS='|' && echo "$*"))(\$|[.])"; }

run_tests() { ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" "$@"; }
