# shellcheck shell=bash
# The documentation site. Sourced by dev, which defines models, folder and venv.
# shellcheck disable=SC2154

# The environment of the site also sees the packages of the Python tests: NumPy, headlane and, where it can be had, PyTorch.
build_docs() {
  need_build pkg-config=pkgconf "${models[@]}"
  configure release EXAMPLES MODELS
  build
  rm -rf build/docs-prefix
  cmake --install "$folder" --prefix build/docs-prefix >/dev/null
  install_package
  local tests=$PWD/$venv
  need_venv docs docs/requirements.txt
  echo "$tests"/lib/python3*/site-packages >"$(echo "$venv"/lib/python3*/site-packages)/tests.pth"
  PYTHONPATH=docs "$venv/bin/python" -m builder --prefix build/docs-prefix "$@"
}
