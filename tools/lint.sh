# shellcheck shell=bash
# Formatting and static analysis.

sources() { find include src models tests bench examples python \( -name '*.[ch]pp' -o -name '*.[ch]' \) "$@"; }

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

# The include graph; the sizes of lines, functions and files, which are only reported.
lint_tree() {
  need python3=python3
  python3 tools/check_includes.py
  python3 tools/check_form.py || say "reported only"
}

lint_tidy() {
  CXX=g++ # the preset names clang
  need_clang "$llvm"
  need_build "clang-tidy-$llvm=clang-tidy-$llvm" "${test_packages[@]}" "${bench_packages[@]}" "${model_packages[@]}"
  need_venv lint python/requirements-lint.txt # nanobind's headers
  VIRTUAL_ENV=$PWD/$venv configure lint TESTS BENCH EXAMPLES MODELS PYTHON
  sources -name '*.cpp' ! -path 'tests/consumer/*' ! -name planted_race.cpp -print0 |
    xargs -0 -n 1 -P "$(nproc)" "clang-tidy-$llvm" -p "$folder" --quiet
}

do_lint() {
  local part
  (($#)) || set -- shell tree python format tidy
  for part in "$@"; do
    declare -F "lint_$part" >/dev/null || fail "lint has no part '$part'; ./dev lists them"
    "lint_$part"
    say "lint $part: clean"
  done
}
