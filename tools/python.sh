# shellcheck shell=bash
# The Python package: its tests, its wheel, and the table of Hugging Face model types.

# The environment of the Python tests. PyTorch is large and not available for every machine: without
# it its tests are skipped.
need_test_venv() {
  need_venv test python/tests/requirements.txt
  if ! cmp -s "$venv/.torch" python/tests/requirements-torch.txt && may_install; then
    if pip_install -r python/tests/requirements-torch.txt; then
      cp python/tests/requirements-torch.txt "$venv/.torch"
    else
      say "PyTorch could not be installed: its tests are skipped"
    fi
  fi
  need_minilm || say "without MiniLM: its tests are skipped"
}

need_timm_venv() { need_venv timm python/tests/requirements-timm.txt; }
need_diffusers_venv() { need_venv diffusers python/tests/requirements-diffusers.txt; }

# install_package [NEED_VENV]: installs the package in the environment that the function NEED_VENV
# sets up, by default that of its tests.
install_package() {
  need_build
  "${1:-need_test_venv}"
  folder=build/python
  [[ $CXX == g++ ]] || folder+=-${CXX##*/}
  pip_install --no-build-isolation --no-deps --config-settings=build-dir="$folder" \
    --config-settings=cmake.define.HEADLANE_WERROR="${CI:-OFF}" \
    --config-settings=cmake.define.CMAKE_PROJECT_headlane_INCLUDE="$PWD/cmake/precompiled.cmake" .
}

# All of them: as many files at once as there are processors.
do_test-python() {
  (($#)) || set -- -n "$(nproc)" --dist loadfile
  install_package
  build headlane_same_bits
  HEADLANE_SAME_BITS=$folder/python/headlane_same_bits "$venv/bin/pytest" "$@"
}

do_models-table() {
  install_package
  PYTHONPATH=python/tests "$venv/bin/python" -m transformers_sweep "$@"
}

do_test-timm() {
  install_package need_timm_venv
  "$venv/bin/python" python/tests/timm_sweep.py "$@"
}

do_test-diffusers() {
  install_package need_diffusers_venv
  "$venv/bin/python" python/tests/diffusers_sweep.py "$@"
}

# The wheel is built from the source distribution, so that a file missing there is noticed and
# build/deps cannot help. auditwheel puts libgomp into the wheel and names the oldest glibc that it
# runs with, about this system's; for older ones build in a container (cibuildwheel; its settings
# are in pyproject.toml). Arguments go to `build`.
do_wheel() {
  need "$CXX=$CXX"
  need_venv wheel python/requirements-wheel.txt
  rm -rf build/wheels
  "$venv/bin/python" -m build "$@" --outdir build/wheels . >/dev/null
  PATH=$PWD/$venv/bin:$PATH auditwheel repair --strip --wheel-dir build/wheels build/wheels/headlane-*-linux_*.whl >&2
  rm build/wheels/headlane-*-linux_*.whl
  ls -l build/wheels >&2
}

# try_package WHEEL-OR-SDIST: installs it as a user does, in an environment that then has NumPy
# only, and tries it.
try_package() {
  local work
  work=$(mktemp -d)
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --disable-pip-version-check "$1" >&2
  "$work/venv/bin/pip" list --disable-pip-version-check --format=freeze
  cp python/tests/smoke.py "$work"
  (cd "$work" && venv/bin/python smoke.py && ldd venv/lib/python3*/site-packages/headlane/_core*.so | tee libraries)
  if [[ $1 == *.whl ]] && grep gomp "$work/libraries" | grep -qv headlane.libs; then
    fail "the wheel takes libgomp from the system"
  fi
  rm -rf "$work"
}

do_test-wheel() {
  local wheel options=()
  # Other tests compile each table of kernels; one shows that this xsimd, pythran's, does as well.
  if [[ ${1:-} == --quick && $(uname -m) == x86_64 ]]; then options=(-Ccmake.define.HEADLANE_ISAS=avx2); fi
  do_wheel "${options[@]}"
  tar -tzf build/wheels/headlane-*.tar.gz
  [[ ${1:-} == --quick ]] || try_package build/wheels/headlane-*.tar.gz # compiles everything once more
  wheel=$(echo build/wheels/headlane-*.whl)
  [[ $wheel == *manylinux* ]] || fail "$wheel runs on this system only"
  (($(stat -c %s "$wheel") < 5000000)) || fail "$wheel has 5 MB or more"
  try_package "$wheel"
}
