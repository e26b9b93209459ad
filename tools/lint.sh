# shellcheck shell=bash
# Formatting and static analysis.

sources() { find include src models mpi tests bench examples python \( -name '*.[ch]pp' -o -name '*.[ch]' \) "$@"; }

do_format() {
  need "clang-format-$llvm=clang-format-$llvm"
  sources -exec "clang-format-$llvm" -i {} +
  need_venv lint python/requirements-lint.txt
  "$venv/bin/ruff" check -q --fix
  "$venv/bin/ruff" format -q
}

lint_shell() {
  need shellcheck=shellcheck
  shellcheck -xa dev .ci/run
}

lint_python() {
  need_venv lint python/requirements-lint.txt
  "$venv/bin/ruff" check -q
  "$venv/bin/ruff" format -q --check
}

lint_format() {
  need "clang-format-$llvm=clang-format-$llvm"
  sources -exec "clang-format-$llvm" --dry-run -Werror {} +
}

# The include graph; the sizes of lines, functions and files; tests that are not built.
lint_tree() {
  need python3=python3
  python3 tools/check_includes.py
  python3 tools/check_form.py
  python3 tools/check_tests.py
}

# clang-tidy from PyPI: it does not match system headers, which took two thirds of the time of 19
# (src/attention/plan.cpp: 17.7 s of CPU with 19, 6.9 with 23; tests/attention/test_attention.cpp:
# 8.0 and 1.2). The analyzer follows a tenth as many states of a function as by default, which took
# three quarters of the time of what was left (src/attention/plan.cpp: 12.5 and 3.1 s).
# With `quick` the libraries alone.
lint_tidy() {
  CXX=g++ # the preset names clang
  need_clang "$llvm"
  need_build "${test_packages[@]}" "${bench_packages[@]}" "${model_packages[@]}"
  need_venv lint python/requirements-lint.txt # clang-tidy, nanobind's headers
  local parts=(TESTS BENCH EXAMPLES MODELS PYTHON) which=()
  if have_mpi; then parts+=(MPI); fi
  VIRTUAL_ENV=$PWD/$venv configure lint "${parts[@]}"
  # This clang-tidy has the compiler's own headers, but not OpenMP's.
  mkdir -p "$folder/openmp"
  ln -sf "/usr/lib/llvm-$llvm/lib/clang/$llvm/include/omp.h" "$folder/openmp"
  [[ ${1:-} != quick ]] || which=(-path '*src/*')
  sources -name '*.cpp' "${which[@]}" ! -path 'tests/consumer/*' ! -name planted_race.cpp -print0 |
    xargs -0 -n 1 -P "$(nproc)" \
      "$venv/bin/clang-tidy" -p "$folder" --quiet --extra-arg="-isystem$PWD/$folder/openmp" \
      --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=20000
}

do_lint() {
  local part quick=
  if [[ ${1:-} == --quick ]]; then shift && quick=quick; fi
  (($#)) || set -- shell tree python format tidy
  for part in "$@"; do
    declare -F "lint_$part" >/dev/null || fail "lint has no part '$part'; ./dev lists them"
    "lint_$part" $quick
    say "lint $part: clean"
  done
}
