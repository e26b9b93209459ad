# shellcheck shell=bash
# The documentation site.

# Its environment also sees the packages of the Python tests: NumPy, headlane and, where available,
# PyTorch.
do_docs() {
  need_build pkg-config=pkgconf "${model_packages[@]}"
  local parts=(EXAMPLES MODELS)
  if have_mpi; then parts+=(MPI); fi
  configure release "${parts[@]}"
  build
  rm -rf build/docs-prefix build/docs-examples # installed files keep their times: a build would not see a change
  cmake --install "$folder" --prefix build/docs-prefix >/dev/null
  install_package
  local tests=$PWD/$venv
  need_venv docs docs/requirements.txt
  echo "$tests"/lib/python3*/site-packages >"$(echo "$venv"/lib/python3*/site-packages)/tests.pth"
  PYTHONPATH=docs "$venv/bin/python" -m builder --prefix build/docs-prefix "$@"
}
