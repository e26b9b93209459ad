# shellcheck shell=bash
# The tests under clang's sanitizers, and fuzzing.

need_sanitizer() {
  CXX=g++ # the preset names clang
  need_clang "$llvm"
  need_build "/usr/lib/llvm-$llvm/lib/clang/$llvm/lib/linux=libclang-rt-$llvm-dev" \
    "${test_packages[@]}" "${model_packages[@]}"
}

# What reads and writes at computed addresses, or frees memory while it is in use.
memory=(guard guard_{gemm,attention,layers} overlap view memory no_memory moved_from cblas gemm gemm_batch gemm_list
  gemm_packed gemm_stored gemm_groups gemm_int8_groups packed_bytes unpack norm softmax_masked rotary attention
  attention_cache attention_few_keys attention_half attention_options attention_resume attention_variable_length
  attention_workspace kv_cache kv_cache_errors kv_cache_stored merge embedding layers layers_cache layers_padding
  every_layer_half linear_attention linear_attention_{gates,mamba,special} causal_convolution no_memory_recurrent bert
  t5 t5_search checkpoint checkpoint_errors checkpoint_fuzz checkpoint_pack config gguf gguf_errors gguf_fuzz
  moved_from_models no_memory_models short_reads stored_weights text_words)

do_asan() {
  need_sanitizer
  if [[ ${1:-} == --quick ]]; then
    shift
    local isa=avx2 replays
    ! grep -qw avx512bw /proc/cpuinfo || isa=avx512
    # The kernels' pointers are checked where they read and write, not themselves.
    configure asan TESTS MODELS -DHEADLANE_ISAS=$isa \
      -DHEADLANE_KERNEL_CHECKS=-fno-sanitize=null,alignment,pointer-overflow
    mapfile -t replays < <(ninja -C "$folder" -t targets all | sed -n 's/^\(replay_[a-z0-9_]*\):.*/\1/p')
    build "${memory[@]/#/test_}" "${replays[@]}"
    set -- -R "$(pattern 'fuzz_.*' "${memory[@]}")" "$@"
  else
    local parts=(TESTS MODELS)
    if have_mpi; then parts+=(MPI); fi
    configure asan "${parts[@]}" -DHEADLANE_ISAS=all -DHEADLANE_KERNEL_CHECKS=
    build
  fi
  run_tests "$@"
}

# The tests that start threads, and the races that the sanitizer has to report. Not runtime.*, which
# counts threads: the sanitizer starts one itself.
threaded=(threads tasks bits planted_race attention attention_cache attention_options attention_variable_length
  attention_weights attention_workspace merge kv_cache gemm gemm_batch gemm_gated gemm_int8 gemm_packed gemm_stored
  cblas cblas_errors activation norm softmax softmax_masked rotary sinusoidal embedding layers layers_cache layers_same
  layers_threads bert t5 t5_search)
threaded_quickly=(threads tasks bits layers_same gemm_packed)

# libomp is not instrumented: Archer, which comes with it, tells the sanitizer where threads wait
# for each other.
do_tsan() {
  need_sanitizer
  if [[ ${1:-} == --quick ]]; then
    shift
    configure tsan TESTS
    build "${threaded_quickly[@]/#/test_}" planted_race
    set -- -R "$(pattern "${threaded_quickly[@]}" planted_race)" "$@"
  else
    configure tsan TESTS MODELS
    build
    (($#)) || set -- -R "$(pattern "${threaded[@]}")"
  fi
  export OMP_TOOL_LIBRARIES=/usr/lib/llvm-$llvm/lib/libarcher.so
  export TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=0 exitcode=66 ${TSAN_OPTIONS:-}"
  run_tests "$@"
}

# Inputs that fail are written to build/fuzz/found-TARGET-…: the fix adds the input to
# models/fuzz/corpus/TARGET, which ctest replays.
do_fuzz() {
  local target targets=(safetensors gguf index config t5_config bert_folder) options corpus
  need_sanitizer
  configure fuzz TESTS MODELS
  for target in "${targets[@]}"; do
    build "fuzz_$target"
    corpus=models/fuzz/corpus/$target
    mkdir -p "$folder/corpus/$target"
    options=(-dict=models/fuzz/words.dict -max_len=4096 -timeout=25 -rss_limit_mb=2048 -malloc_limit_mb=512
      -artifact_prefix="$folder/found-$target-")
    if [[ ${1:-} == keep ]]; then # the fewest inputs that reach the same edges
      rm -rf "$folder/kept" && mkdir "$folder/kept"
      "$folder/tests/fuzz/fuzz_$target" "${options[@]}" -set_cover_merge=1 -use_counters=0 \
        "$folder/kept" "$corpus" "$folder/corpus/$target"
      rm -r "$corpus" && mv "$folder/kept" "$corpus"
    else
      say "$target"
      "$folder/tests/fuzz/fuzz_$target" "${options[@]}" -print_final_stats=1 \
        -max_total_time=$((${1:-300} / ${#targets[@]})) "$folder/corpus/$target" "$corpus"
    fi
  done
}
