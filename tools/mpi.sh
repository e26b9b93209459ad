# shellcheck shell=bash
# Programs on several ranks of this machine, by Open MPI.

need_mpi() {
  need mpirun=openmpi-bin "/usr/lib/$("$CXX" -dumpmachine)/openmpi/include/mpi.h=libopenmpi-dev"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

# More ranks than processors are fine, and no rank is bound to one processor, which its threads
# would share. Ranks inherit the environment.
do_mpi() {
  (($# > 1)) || fail "usage: ./dev mpi N COMMAND …"
  need_mpi
  exec mpirun --oversubscribe --bind-to none -n "$@"
}

# Succeeds if Open MPI is there, or could be installed.
have_mpi() {
  if (need "$CXX=$CXX" && need_mpi); then need_mpi; else
    say "without Open MPI: the tests of programs on several ranks are skipped"
    return 1
  fi
}

test_mpi_in_python() {
  install_package
  HEADLANE_TEST_MPI=on "$venv/bin/pytest" python/tests/test_*mpi*.py "$@"
}

do_test-mpi() {
  have_mpi || return 0
  need_build "${test_packages[@]}"
  configure release TESTS MPI
  build mpi_ranks mpi_endings \
    test_mpi_attention test_mpi_kv_cache test_mpi_failures test_mpi_floating_point test_mpi_plan
  run_tests -R '^mpi'
  test_mpi_in_python "$@"
}

# The hashes of mpi_large on these ranks: mpirun's arguments.
large_on_ranks() {
  local hashes
  hashes=$(OMP_NUM_THREADS=1 mpirun --oversubscribe --bind-to none "$@")
  [[ ${expected:=$hashes} == "$hashes" ]] || fail "other bits with mpirun $*:" "$hashes" "expected:" "$expected"
  say "the same bits with mpirun $*"
}

# Long sequences on several numbers of ranks, and with an instruction set for each rank.
large_ranks() {
  have_mpi || return 0
  configure release TESTS MPI
  build mpi_large
  local program=$folder/tests/mpi/mpi_large expected='' ranks isa mixed=()
  for ranks in 1 2 3 5 7 8; do large_on_ranks -n "$ranks" "$program"; done
  for isa in $("$program" --isas); do
    [[ $isa == portable ]] || mixed+=(: -n 1 env "HEADLANE_ISA=$isa" "$program") # it would take minutes
  done
  large_on_ranks "${mixed[@]:1}"
  printf '%s\n' "$expected"
}
