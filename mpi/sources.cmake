# headlane::mpi but for communicator.cpp, the only file that uses MPI.
set(HEADLANE_MPI_SOURCES attention block_results cache_attention description end_result key_ring kv_cache part_options
  partial_result result_call result_chain sequence_cut transport)
list(TRANSFORM HEADLANE_MPI_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/mpi/src/)
list(TRANSFORM HEADLANE_MPI_SOURCES APPEND .cpp)
