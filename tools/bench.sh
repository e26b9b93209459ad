# shellcheck shell=bash
# Benchmarks, the comparison with other libraries and its report; headlane-translate.

do_bench() {
  need_build "${bench_packages[@]}"
  configure release BENCH
  build headlane_bench
  "$folder/bench/headlane_bench" "$@"
}

do_compare() {
  need_build "${bench_packages[@]}"
  configure scalar BENCH
  build headlane_compare
  local scalar=$folder
  configure release BENCH
  build headlane_compare
  "$scalar/bench/headlane_compare" --write "$scalar/compare.json"
  "$folder/bench/headlane_compare" --against "$scalar/compare.json"
}

# A contender that cannot be installed is left out.
do_peers() {
  local libraries
  libraries=/usr/lib/$(uname -m)-linux-gnu
  (need "$libraries/openblas-pthread/libopenblas.so.0=libopenblas0-pthread") || say "without OpenBLAS"
  (need "$libraries/blis-openmp/libblis.so.4=libblis4-openmp") || say "without BLIS"
  need_build "${bench_packages[@]}"
  local parts=(BENCH) targets=(headlane_peers)
  if [[ ${1:-} == mpi ]]; then
    need_mpi
    parts+=(MPI) targets+=(headlane_bench_mpi)
  fi
  configure release "${parts[@]}"
  build "${targets[@]}"
  need_venv peers bench/peers/requirements.txt
  pip_install --no-build-isolation --no-deps -Cbuild-dir=build/python-peers . || say "without headlane's Python module"
  need_minilm || say "without MiniLM"
  PYTHONPATH=bench:tools "$venv/bin/python" -m peers --programs "$folder/bench/peers" "$@"
}

do_report() {
  need_venv report bench/report/requirements.txt
  PYTHONPATH=bench "$venv/bin/python" -m report "$@"
}

do_test-report() {
  need_venv report bench/report/requirements.txt
  PYTHONPATH=bench "$venv/bin/pytest" -q bench/report "$@"
}

# The build writes to standard error: standard output is for translations.
do_translate() {
  local model=models/little/en-fr arguments=()
  while (($#)); do
    case $1 in
      --model) (($# > 1)) || fail "--model needs a folder" && model=$2 && shift ;;
      --model=*) model=${1#*=} ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  need_build "${model_packages[@]}"
  {
    configure release MODELS
    build headlane_translate
  } >&2
  "$folder/models/headlane-translate" "$model" "${arguments[@]}"
}
