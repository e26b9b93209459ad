# shellcheck shell=bash
# The tests: of this machine, of 64-bit Arm under qemu, and mutation testing.

do_test() {
  need_build "${test_packages[@]}" pkg-config=pkgconf "${model_packages[@]}"
  if [[ ${CI:-} ]]; then # for consumer.libcxx, which is skipped without libc++
    need_clang "$llvm"
    need "/usr/lib/llvm-$llvm/include/c++/v1/vector=libc++-$llvm-dev" \
      "/usr/lib/llvm-$llvm/lib/libc++abi.a=libc++abi-$llvm-dev"
  fi
  configure release TESTS EXAMPLES MODELS
  build
  run_tests "$@"
  (($#)) && return
  export HEADLANE_TRANSLATE=$PWD/$folder/models/headlane-translate # one of the Python tests runs it
  do_test-python "$@" # none
  do_test-report "$@"
}

do_test-neon() {
  CXX=g++ # the preset names the cross compiler
  need_build aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64-static=qemu-user-static "${test_packages[@]}"
  configure neon TESTS
  if [[ ${1:-} == --quick ]]; then
    shift
    build test_view test_hashes headlane_{neon,scalar,portable}_unoptimised
    set -- -R '^(view|hashes|flags|symbols|symbols_unoptimised|instructions)($|[.])' "$@"
  else
    build
  fi
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
}

do_mutate() {
  need_build "${test_packages[@]}" "${model_packages[@]}"
  need_test_venv
  local python=$venv/bin/python
  need_venv mutate tools/mutate/requirements.txt
  PYTHONPATH=tools "$venv/bin/python" tools/mutate --python "$python" "$@"
}
