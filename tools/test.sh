# shellcheck shell=bash
# The tests: of this machine, of 64-bit Arm under qemu, and mutation testing.

# test_kernels NAME …: what depends on the compiler: the symbols and instructions of the kernels'
# objects, and these tests.
test_kernels() {
  local unoptimised
  mapfile -t unoptimised < <(ninja -C "$folder" -t targets all | sed -n 's/^\(headlane_[a-z0-9]*_unoptimised\):.*/\1/p')
  build "${@/#/test_}" "${unoptimised[@]}"
  run_tests -R "$(pattern "$@" flags symbols symbols_unoptimised instructions)"
}

do_test() {
  if [[ ${1:-} == --quick ]]; then
    need_build "${test_packages[@]}"
    configure release TESTS
    test_kernels bits hashes kernels nan_positions view worked_examples
    return
  fi
  need_build "${test_packages[@]}" pkg-config=pkgconf "${model_packages[@]}"
  if [[ ${CI:-} ]]; then # consumer.serial takes libc++ where it is
    need_clang "$llvm"
    need "/usr/lib/llvm-$llvm/include/c++/v1/vector=libc++-$llvm-dev" \
      "/usr/lib/llvm-$llvm/lib/libc++abi.a=libc++abi-$llvm-dev"
  fi
  local parts=(TESTS EXAMPLES MODELS) mpi=
  if have_mpi; then parts+=(MPI) mpi=yes; fi
  configure release "${parts[@]}"
  build
  run_tests "$@"
  (($#)) && return
  export HEADLANE_TRANSLATE=$PWD/$folder/models/headlane-translate # one of the Python tests runs it
  do_test-python "$@" # none
  do_test-report "$@"
  [[ ! $mpi ]] || test_mpi_in_python
}

do_test-neon() {
  CXX=g++ # the preset names the cross compiler
  need_build aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64-static=qemu-user-static "${test_packages[@]}"
  if [[ ${1:-} == --quick ]]; then
    configure neon TESTS '-DHEADLANE_ISAS=neon;portable'
    test_kernels view hashes
    return
  fi
  configure neon TESTS -DHEADLANE_ISAS=all
  build
  run_tests "$@"
}

do_exp() {
  need_build "${test_packages[@]}"
  configure release TESTS
  build exp_exhaustive
  "$folder/tests/exp_exhaustive" "$@"
}

do_large() {
  need_build "${test_packages[@]}"
  configure release TESTS
  build large
  "$folder/tests/large"
  large_ranks
}

do_mutate() {
  need_build "${test_packages[@]}" "${model_packages[@]}"
  need_test_venv
  local python=$venv/bin/python
  need_venv mutate tools/mutate/requirements.txt
  PYTHONPATH=tools "$venv/bin/python" tools/mutate --python "$python" "$@"
}
