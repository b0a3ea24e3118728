"""The rows of the option table: every field of the compile options of each supported jaxlib, and why it counts or not.

Not promised: fields of jaxlibs that came later. A number that is not here counts with its raw bytes, which can cost a
hit and never makes a wrong one; a test says so, and `tools/option_fields.py` prints the rows that are missing.

A line `# class: reason` opens a group; each row under it is one field:

    number type name [mark]

Classes (what each does to a key is in `rewarm.identity.options`):

    affects     changes code, what the executable holds, or what a hit would hide. Whatever is in doubt is here
    no_effect   changes no code; measured for nearly all by comparing object files and cubins
    output      changes no code, and asks for something to be written
    file        names a file or folder that counts by content
    named_file  the same, and the base name counts too
    toolkit     names the CUDA toolkit, whose files belong to the toolchain
    target      says on which devices; counts as part of the target
    process     says which process compiles
    inside      a message that is read field by field

Types are those of protocol buffers, with `repeated:`, `map:` (from strings), `enum:` and `message:` before the rest.
Marks: `presence`, zero is another thing than unset; `inline`, takes text in the place of a file; `once`, XLA reads the
file once per process.
"""

from __future__ import annotations

# xla/xla.proto. No number has been reused and no type has changed from the jaxlib of JAX 0.9 to that of 0.12.
DEBUG_OPTIONS = """
# affects: adds instrumentation or checks to the program
9 bool xla_hlo_profile
108 enum:StepMarkerLocation xla_step_marker_location
135 bool xla_tpu_detect_nan
136 bool xla_tpu_detect_inf
137 bool xla_cpu_enable_xprof_traceme
170 enum:ShapeChecks xla_gpu_shape_checks
414 bool xla_gpu_experimental_enable_checksum_tracing_on_thunks
424 message:ThunkBufferDebugFilter xla_gpu_experimental_thunk_buffer_debug_filter
426 enum:DetectionMode xla_gpu_detect_nan
428 enum:DetectionMode xla_gpu_detect_inf
431 bool xla_gpu_experimental_enable_buffer_saver_on_thunks
453 bool xla_gpu_log_minmax
484 bool xla_gpu_experimental_dynamic_slice_fusion_verify_offsets
492 bool xla_gpu_experimental_thunk_buffer_debug_module_outputs
# affects: which passes run
30 repeated:string xla_disable_hlo_passes
31 int32 xla_backend_optimization_level
104 bool xla_disable_all_hlo_passes
124 repeated:string xla_enable_hlo_passes_only
463 int32 xla_recognize_reduction_optimization_level
467 enum:CpuOptPreset xla_cpu_opt_preset
496 string xla_run_hlo_passes_starting_from
# affects: what else the executable holds
33 bool xla_embed_ir_in_executable
437 bool xla_gpu_executable_embed_debug_info
# affects: how slices, copies and windows are lowered
35 bool xla_eliminate_hlo_implicit_broadcast
236 bool xla_gpu_copy_insertion_use_region_analysis
293 int64 xla_reduce_window_rewrite_base_length
337 bool xla_cpu_copy_insertion_use_region_analysis
490 bool xla_gpu_enable_dus_accumulator_zero_init_elimination
545 bool xla_gpu_enable_persistent_symmetric_memory
552 bool xla_gpu_experimental_enable_dynamic_slice_table_offsets
555 bool xla_gpu_experimental_enable_dynamic_slice_extended_offsets
# affects: which library kernels are called
60 bool xla_cpu_multi_thread_eigen
97 bool xla_cpu_use_onednn
166 bool xla_gpu_enable_cublaslt
174 bool xla_cpu_use_acl
189 bool xla_gpu_enable_cudnn_int8x32_convolution_reordering
247 bool xla_gpu_cublas_fallback
259 bool xla_gpu_enable_cub_radix_sort
262 bool xla_gpu_enable_cudnn_layer_norm
318 int32 xla_gpu_cudnn_gemm_max_plans
329 bool xla_gpu_experimental_disable_binary_libraries
359 bool xla_cpu_use_xnnpack
412 bool xla_cpu_experimental_onednn_custom_call
483 enum:DevicelessCubMode xla_gpu_deviceless_cub_mode
505 enum:CudnnDevicelessCompilationMode xla_gpu_cudnn_deviceless_compilation_mode
546 bool xla_gpu_experimental_enable_raft_for_stable_topk
# affects: floating-point rules of the generated code
62 bool xla_gpu_ftz
99 bool xla_cpu_enable_fast_math
100 bool xla_gpu_enable_fast_min_max
120 bool xla_cpu_fast_math_honor_nans
121 bool xla_cpu_fast_math_honor_infs
126 bool xla_cpu_fast_math_honor_division
129 bool xla_cpu_fast_math_honor_functions
140 bool xla_cpu_enable_fast_min_max
335 bool xla_enable_fast_math
493 bool xla_cpu_ftz
# affects: how LLVM makes machine code
70 bool xla_llvm_enable_alias_scope_metadata
71 bool xla_llvm_enable_noalias_metadata
72 bool xla_llvm_enable_invariant_load_metadata
73 bool xla_llvm_disable_expensive_passes
308 int32 xla_cpu_prefer_vector_width
323 int32 xla_cpu_parallel_codegen_split_count
333 string xla_cpu_max_isa
372 bool xla_cpu_generate_unique_c_style_kernel_entry_points
# affects: which assembler and linker make the cubin, and how
103 bool xla_gpu_disable_gpuasm_optimizations
138 bool xla_gpu_unsafe_fallback_to_driver_on_ptxas_not_found
269 bool xla_gpu_enable_libnvptxcompiler
343 enum:LibNvJitLinkMode xla_gpu_libnvjitlink_mode
348 bool xla_gpu_generate_debug_info
349 bool xla_gpu_generate_line_info
491 repeated:string xla_gpu_ptx_compiler_extra_flags
# affects: what is fused
105 bool xla_gpu_enable_dynamic_slice_fusion
181 bool xla_gpu_use_runtime_fusion
285 int32 xla_gpu_cudnn_gemm_fusion_level
334 bool xla_gpu_experimental_enable_fusion_block_level_rewriter
340 bool xla_gpu_experimental_enable_triton_heroless_priority_fusion
365 enum:XnnGraphFusionMode xla_cpu_experimental_xnn_graph_fusion_mode
368 bool xla_gpu_experimental_enable_subchannel_dequantisation_fusion
382 bool xla_gpu_unsupported_enable_triton_multi_output_fusion
399 repeated:enum:LibraryFusionType xla_cpu_experimental_onednn_fusion_type
400 repeated:enum:LibraryFusionType xla_cpu_experimental_xnn_fusion_type
422 repeated:enum:LibraryFusionType xla_cpu_experimental_ynn_fusion_type
444 bool xla_gpu_experimental_all_fusions_with_triton
455 bool xla_gpu_experimental_enable_conv_fusion
475 bool xla_gpu_experimental_gemm_fusion_v2
525 bool xla_gpu_experimental_enable_same_shape_multi_output_fusion
529 bool xla_cpu_use_new_xtile_lowering
# affects: numerics
106 bool xla_hlo_evaluator_use_fast_path
122 bool xla_allow_excess_precision
175 bool xla_cpu_strict_dot_conv_math
209 bool xla_gpu_enable_reassociation_for_converted_ar
425 bool xla_cpu_enable_platform_dependent_math
# affects: autotuning: which kernel is chosen
123 int32 xla_gpu_autotune_level
228 int64 xla_gpu_redzone_padding_bytes
250 bool xla_gpu_filter_kernels_spilling_registers_on_autotuning
288 int64 xla_gpu_autotune_max_solutions
316 float xla_gpu_autotune_gemm_rtol
409 bool xla_gpu_experimental_enable_fusion_autotuner
442 repeated:enum:Backend xla_gpu_experimental_autotune_backends
476 int32 xla_gpu_fusion_autotune_top_k_configs
523 int64 xla_gpu_blas_max_algorithms
539 bool xla_compile_all_supported_configs
547 enum:Backend xla_autotuner_preferred_backend
# affects: how dots and convolutions are lowered
125 bool xla_gpu_force_conv_nchw
146 bool xla_gpu_force_conv_nhwc
283 int64 xla_gpu_gemm_rewrite_size_threshold
321 bool xla_gpu_async_dot
331 int32 xla_gpu_dot_merger_threshold_mb
362 bool xla_gpu_experimental_pack_dot_operands_along_k_dimension
441 bool xla_gpu_default_to_alg_dot_bf16_bf16_f32
472 int32 xla_gpu_experimental_force_split_k
474 map:string xla_gpu_experimental_cost_model_gemm_tiling_options
531 bool xla_gpu_experimental_cost_model_gemm_tiling_default
# affects: where buffers lie
142 int32 xla_multiheap_size_constraint_per_heap
312 bool xla_gpu_temp_buffer_use_separate_color
# affects: determinism: other kernels and passes
148 bool xla_gpu_deterministic_ops
297 bool xla_gpu_exclude_nondeterministic_ops
345 bool xla_gpu_enable_scatter_determinism_expander
556 enum:DeterministicOpsTritonMode xla_gpu_experimental_deterministic_ops_triton
# affects: how collectives are lowered, combined, partitioned or scheduled
157 int64 xla_gpu_all_reduce_combine_threshold_bytes
159 int32 xla_gpu_all_reduce_blueconnect_num_devices_per_host
203 bool xla_gpu_enable_while_loop_reduce_scatter_code_motion
205 int32 xla_gpu_collective_inflation_factor
212 int64 xla_gpu_all_gather_combine_threshold_bytes
213 int64 xla_gpu_reduce_scatter_combine_threshold_bytes
237 int64 xla_gpu_collective_permute_decomposer_threshold
254 bool xla_gpu_enable_all_gather_combine_by_dim
257 bool xla_gpu_enable_reduce_scatter_combine_by_dim
289 repeated:enum:CollectiveOpType xla_gpu_disable_async_collectives
305 bool xla_gpu_enable_approx_costly_collectives
336 int32 xla_gpu_experimental_parallel_collective_overlap_limit
366 bool xla_gpu_experimental_enable_heuristic_collective_combining
374 int64 xla_gpu_experimental_collective_cse_distance_threshold
378 int64 xla_gpu_collective_permute_combine_threshold_bytes
384 bool xla_gpu_unsupported_enable_all_reduce_decomposer
387 bool xla_gpu_unsupported_use_all_reduce_one_shot_kernel
429 bool xla_enable_enzyme_comms_opt
461 int64 xla_gpu_collective_combine_threshold_count
470 bool xla_gpu_experimental_enable_collective_multi_streaming
471 bool xla_gpu_collective_permute_connected_components
473 enum:CollectivesMode xla_gpu_collective_permute_mode
479 bool xla_enable_rgv3_materialization
485 enum:CollectivesMode xla_gpu_all_gather_mode
488 bool xla_gpu_experimental_collective_start_as_early_as_possible
497 repeated:enum:CollectiveOpType xla_gpu_enable_collectives_command_buffer_filter
512 bool xla_sdy_export_all_reduce_scatter
516 repeated:enum:CollectiveKernelType xla_gpu_experimental_use_collective_kernels
517 enum:CollectivePipeliningMode xla_gpu_pipeline_all_gather
518 enum:CollectivePipeliningMode xla_gpu_pipeline_all_reduce
519 enum:CollectivePipeliningMode xla_gpu_pipeline_reduce_scatter
520 bool xla_spmd_enable_dynamic_slice_collective_broadcast
528 int64 xla_while_loop_all_reduce_dus_code_motion_max_size_bytes
533 bool xla_gpu_all_reduce_splitter_ignore_profitability_check
536 string xla_gpu_collective_domain_assignment
538 int32 xla_gpu_experimental_parallel_scale_up_collective_overlap_limit
541 repeated:enum:CollectiveOpType xla_gpu_unsupported_use_cross_host_one_shot_kernel
550 bool xla_gpu_experimental_emit_collective_reduce
# affects: a runtime setting kept inside the executable: a loaded one would go on with the value it was stored with
163 int64 xla_gpu_nccl_termination_timeout_seconds
216 bool xla_gpu_enable_highest_priority_async_stream
244 bool xla_gpu_enable_nccl_clique_optimization
267 bool xla_gpu_enable_nccl_user_buffers
272 bool xla_gpu_enable_nccl_comm_splitting
273 int64 xla_gpu_nccl_collective_max_nchannels
274 int64 xla_gpu_nccl_p2p_max_nchannels
277 int64 xla_gpu_nccl_init_max_rank_per_root_ratio
287 bool xla_gpu_use_memcpy_local_p2p
301 bool xla_gpu_nccl_terminate_on_error
311 int64 xla_cmd_buffer_trace_cache_size
317 bool xla_enable_command_buffers_during_profiling
327 int32 xla_gpu_executable_warn_stuck_timeout_seconds
328 int32 xla_gpu_executable_terminate_timeout_seconds
347 bool xla_gpu_require_exclusive_lock
390 bool xla_gpu_nccl_blocking_communicators
391 int32 xla_gpu_first_collective_call_warn_stuck_timeout_seconds
392 int32 xla_gpu_first_collective_call_terminate_timeout_seconds
393 bool xla_gpu_nccl_async_execution
406 bool xla_gpu_experimental_enable_nccl_symmetric_buffers
417 int32 xla_cpu_collective_call_terminate_timeout_seconds
418 int32 xla_cpu_collective_call_warn_stuck_seconds
438 int32 xla_cpu_collective_timeout_seconds
451 string xla_gpu_execution_terminate_timeout
457 int32 xla_gpu_execution_progress_tracking
462 bool xla_gpu_experimental_ragged_all_to_all_use_barrier_with_nccl
468 string xla_gpu_collectives_implementation
469 enum:CommandBufferUpdateMode xla_gpu_command_buffer_update_mode
486 int32 xla_gpu_executable_num_compute_streams
487 int32 xla_gpu_executable_num_communication_streams
503 repeated:message:CollectiveFilter xla_enable_nccl_symmetric_buffers_for_collectives
506 bool xla_gpu_enable_nccl_user_buffers_in_default_space
514 int64 xla_gpu_gxl_scratch_size_bytes
530 int32 xla_gpu_trace_annotation_level
532 bool xla_gpu_allow_ragged_all_to_all_nccl_send_recv_fallback
551 bool xla_gpu_experimental_vmm_disabled
553 string xla_gpu_device_execution_terminate_timeout
# affects: the order of instructions
186 bool xla_gpu_enable_latency_hiding_scheduler
255 bool xla_gpu_enable_analytical_latency_estimator
260 int32 xla_gpu_memory_limit_slop_factor
342 bool xla_gpu_experimental_stream_annotation
356 bool xla_gpu_enable_analytical_sol_latency_estimator
357 map:string xla_gpu_analytical_latency_estimator_options
448 enum:CpuSchedulerType xla_cpu_scheduler_type
465 int32 xla_gpu_experimental_parallel_async_compute_limit
524 bool xla_gpu_experimental_enable_selective_memcpy_overlap
526 int64 xla_gpu_experimental_scheduler_memory_fencing_threshold_bytes
527 int32 xla_gpu_experimental_scheduler_memory_fencing_slack_windows
# affects: how the program is partitioned
187 enum:PartitioningAlgorithm xla_partitioning_algorithm
224 int32 xla_gpu_auto_spmd_partitioning_memory_budget_gb
225 float xla_gpu_auto_spmd_partitioning_memory_budget_ratio
419 bool xla_keep_shardings_after_spmd
452 bool xla_enable_hlo_sharding_v3
# affects: how Triton makes kernels
188 bool xla_gpu_enable_triton_gemm
190 bool xla_gpu_triton_gemm_any
410 bool xla_gpu_experimental_scaled_dot_with_triton
421 bool xla_gpu_experimental_enable_triton_warp_specialization
# affects: what is recorded into command buffers
208 int32 xla_gpu_graph_min_graph_size
258 repeated:enum:CommandBufferCmdType xla_gpu_enable_command_buffer
404 enum:CommandBufferSchedulingMode xla_gpu_command_buffer_scheduling_mode
411 bool xla_gpu_command_buffer_unroll_loops
# affects: how work is divided into tiles
219 bool xla_gpu_exhaustive_tiling_search
456 bool xla_gpu_experimental_enable_tiling_propagation
489 bool xla_cpu_experimental_enable_tiling_propagation
# affects: replaces custom calls by nothing
245 bool xla_gpu_mock_custom_calls
548 bool xla_cpu_mock_custom_calls
# affects: how loops are transformed
246 bool xla_gpu_enable_pipelined_p2p
248 bool xla_gpu_enable_while_loop_double_buffering
294 enum:WhileLoopUnrolling xla_gpu_enable_while_loop_unrolling
351 enum:PipelineParallelismOptLevel xla_gpu_experimental_pipeline_parallelism_opt_level
459 int32 xla_gpu_experimental_max_unroll_factor
478 bool xla_gpu_native_emitter_tune_unroll_factor_for_loops
# affects: rewrites of matmuls around collectives
265 int64 xla_gpu_threshold_for_windowed_einsum_mib
280 bool xla_gpu_multi_streamed_windowed_einsum
339 int64 xla_gpu_operand_bytes_threshold_for_windowed_einsum
360 bool xla_gpu_experimental_enable_alltoall_windowed_einsum
# affects: a failure, warning, check or permission that was asked for: a hit must not hide it
284 bool xla_gpu_require_complete_aot_autotune_results
291 bool xla_gpu_verify_triton_fusion_numerics
341 enum:PGLEStrictnessLevel xla_gpu_pgle_accuracy_checker
353 bool xla_gpu_fail_ptx_compilation_on_register_spilling
403 enum:DetectionMode xla_detect_unstable_reductions
408 bool xla_disable_automatic_host_compute_offload
432 enum:DetectionMode xla_detect_unstable_reductions_post_optimizations
537 repeated:string xla_gpu_hlo_custom_call_allowlist
# affects: a kernel configuration given inline
295 string xla_gpu_override_gemm_autotuner
543 string xla_force_config
# affects: what is moved to the host
296 bool xla_gpu_enable_host_memory_offloading
439 bool xla_allow_h2h_copy_when_automatic_host_compute_offload_disabled
440 bool xla_gpu_enable_pipelined_host_offloading
# affects: the layouts of arguments and results
344 bool xla_pjrt_allow_auto_layout_in_hlo
# affects: how ragged collectives and ragged dots are lowered
350 bool xla_gpu_unsupported_enable_ragged_all_to_all_decomposer
375 bool xla_gpu_unsupported_use_ragged_all_to_all_one_shot_kernel
401 bool xla_gpu_experimental_use_ragged_dot_fusion
415 bool xla_gpu_unsupported_enable_ragged_all_to_all_multi_host_decomposer
482 enum:CollectivesMode xla_gpu_ragged_all_to_all_mode
501 bool xla_gpu_experimental_use_ragged_dot_grouped_gemm
513 bool xla_gpu_enable_gxl_ragged_all_to_all
521 bool xla_gpu_experimental_ragged_all_to_all_use_device_kernel
# affects: stops early: what comes out is no program to run
397 bool xla_early_exit_with_layouts
549 enum:EarlyExitPoint xla_gpu_experimental_early_exit
# affects: overrides a property of the target
416 int64 xla_gpu_unsupported_override_fast_interconnect_slice_size
# affects: launch instructions in generated code
460 bool xla_gpu_enable_pdl
504 bool xla_gpu_enable_pdl_launch
# affects: a free map handed to the backend
500 map:string xla_backend_extra_options
# affects: XLA asks whether it is set at all: zero is not unset
522 int64 xla_gpu_async_copy_min_bytes presence
# affects: which emitter makes a fusion
557 bool xla_gpu_experimental_enable_tensor_ir
# affects: gone since JAX 0.10 or 0.11, and set by builds before that
165 bool xla_gpu_enable_shared_constants
217 bool xla_gpu_enable_pipelined_all_reduce
227 bool xla_gpu_enable_pipelined_all_gather
231 bool xla_gpu_enable_pipelined_reduce_scatter
235 bool xla_gpu_fused_attention_use_cudnn_rng
239 bool xla_gpu_enable_pipelined_collectives
241 bool xla_gpu_enable_split_k_autotuning
243 bool xla_gpu_enable_reduction_epilogue_fusion
268 bool xla_gpu_enable_llvm_module_compilation_parallelism
300 bool xla_llvm_force_inline_before_split
330 bool xla_ignore_channel_id
376 bool xla_cpu_use_fusion_emitters
386 bool xla_gpu_experimental_enable_split_k_rewrite
388 bool xla_gpu_experimental_enable_nvshmem
389 bool xla_gpu_use_inprocess_lld
413 bool xla_gpu_experimental_use_raft_select_k
420 bool xla_gpu_use_embeded_device_lib
435 bool xla_gpu_experimental_aot_compiled_thunks
450 bool xla_gpu_experimental_ragged_all_to_all_use_barrier
458 bool xla_gpu_experimental_enable_onehot_rewriter
480 bool xla_gpu_experimental_ragged_all_to_all_zero_copy
# affects: in doubt, so it counts: cross checks while autotuning
101 bool xla_gpu_crash_on_verification_failures
# affects: in doubt, so it counts: no flag sets it; relaxes what is verified
107 bool xla_allow_scalar_index_dynamic_ops
# affects: in doubt, so it counts: threads that compile, but a split can change the linked image
147 int32 xla_gpu_force_compilation_parallelism
# affects: in doubt, so it counts: marked deprecated, may still be read
215 bool xla_gpu_graph_enable_concurrent_region
307 bool xla_cpu_enable_concurrency_optimized_scheduler
# affects: in doubt, so it counts: writes estimates into backend configurations
240 bool xla_gpu_collect_cost_model_stats
# affects: in doubt, so it counts: who measures while autotuning, not what
304 bool xla_gpu_shard_autotuning
# affects: in doubt, so it counts: no flag sets it
322 bool xla_gpu_unsupported_enable_triton_gemm
481 bool xla_gpu_experimental_autotune_post_fusion
# affects: in doubt, so it counts: may stop a loop of passes earlier
370 bool xla_hlo_pass_fix_detect_cycles
# affects: in doubt, so it counts: the allocator of the client, or the program's layout
494 bool xla_gpu_enable_allocator_spatial_partitioning
# affects: in doubt, so it counts: which autotuning results are seen
515 bool xla_gpu_use_new_autotune_cache_format
# affects: in doubt, so it counts: changes how the executable is written down
542 int64 xla_deduplicate_backend_configs_min_size
# no_effect: how programs are printed
2 bool xla_hlo_graph_addresses
92 bool xla_hlo_graph_sharding_color
315 bool xla_syntax_sugar_async_ops
447 bool xla_hlo_print_inline_stack_frames
# no_effect: read by XLA's own test clients only (JAX sets one of them)
90 bool xla_test_all_output_layouts
91 bool xla_test_all_input_layouts
373 bool xla_test_add_command_buffer_mode
# no_effect: how many devices the process has; what counts of it is part of the target
102 int32 xla_force_host_platform_device_count
# no_effect: shapes dumps, and asks for none
110 string xla_dump_hlo_module_re
111 string xla_dump_hlo_pass_re
131 bool xla_dump_include_timestamp
132 int32 xla_dump_max_hlo_modules
144 bool xla_dump_module_metadata
151 bool xla_dump_compress_protos
153 bool xla_dump_disable_metadata
154 string xla_dump_hlo_pipeline_re
164 bool xla_dump_hlo_as_long_text
185 bool xla_dump_enable_mlir_pretty_form
253 bool xla_enable_dumping
290 bool xla_dump_large_constants
381 bool xla_dump_full_hlo_config
433 string xla_dump_emitter_re
466 bool xla_dump_buffer_assignment_analysis
495 bool xla_dump_compact_gte
502 bool xla_dump_hlo_to_subfolder
# no_effect: how much is logged
251 int64 xla_debug_buffer_assignment_show_max
436 bool xla_enable_scoped_logging_timers
# no_effect: how much is logged; JAX sets it by the size of the program
252 bool xla_detailed_logging
# no_effect: checks generated IR and does not change it
256 int32 xla_gpu_llvm_verification_level
395 int32 xla_cpu_emitter_verification_level
# no_effect: where XLA keeps kernels, by their content
306 string xla_gpu_kernel_cache_file
# no_effect: where XLA keeps autotuning results: they change while XLA compiles, so no key can hold them
310 string xla_gpu_per_fusion_autotune_cache_dir
407 string xla_gpu_experimental_autotuner_cache_dir
# no_effect: whether XLA's own cache is read or written; JAX sets it by rank
324 enum:AutotuneCacheMode xla_gpu_experimental_autotune_cache_mode
# no_effect: whether the compiler aborts on a faulty pass
363 bool xla_unsupported_crash_on_hlo_pass_fix_max_iterations
379 bool xla_unsupported_crash_on_hlo_pass_noop_change
380 bool xla_unsupported_crash_on_hlo_pass_silent_hlo_change
# no_effect: how flags are parsed
364 bool xla_flags_reset
# no_effect: a setting of the profiler
449 int64 xla_gpu_rocm_max_trace_events
534 bool xla_gpu_enable_cupti_multi_subscriber
# no_effect: uploads programs to a debugging service
535 bool xla_enable_hlo_modules_upload
# output: asks the compiler, or the executable once it is loaded, to write files or logs
109 string xla_dump_to
112 bool xla_dump_hlo_as_text
113 bool xla_dump_hlo_as_proto
114 bool xla_dump_hlo_as_dot
115 bool xla_dump_hlo_as_url
116 bool xla_dump_hlo_as_html
118 bool xla_dump_hlo_snapshots
149 bool xla_dump_fusion_visualization
155 bool xla_gpu_dump_llvmir
182 bool xla_dump_latency_hiding_schedule
222 string xla_gpu_dump_autotune_results_to
232 bool xla_gpu_dump_autotuned_gemm_fusions
292 string xla_gpu_dump_autotune_logs_to
338 bool xla_gpu_experimental_dump_fdo_profiles
405 bool xla_dump_hlo_unoptimized_snapshots
427 bool xla_gpu_experimental_dump_gpu_executable
445 bool xla_gpu_dump_autotuned_instructions
454 bool xla_gpu_print_compilation_stats
498 bool xla_dump_hlo_as_riegeli
540 string xla_gpu_dump_cost_model_top_k_candidates_to
# file: tables that steer which kernels are chosen
128 string xla_gpu_algorithm_denylist_path
377 string xla_gpu_experimental_collective_perf_table_path
383 string xla_gpu_experimental_matmul_perf_table_path
434 string xla_gpu_gemm_autotuner_override_file
544 string xla_candidate_configs_file
# file: a profile that decides the order of instructions; may be a folder
210 string xla_gpu_pgle_profile_file_or_directory_path
# file: autotuning results that choose kernels; XLA reads the file once per process
223 string xla_gpu_load_autotune_results_from once
# file: a description of the target; the topology may also be given inline
261 string xla_gpu_target_config_filename
554 string xla_gpu_topology_filename inline
# named_file: code that takes the place of generated code; the base name says for which module, so it counts as well
127 repeated:string xla_gpu_ptx_file
150 repeated:string xla_gpu_llvm_ir_file
# toolkit: the directory of the CUDA tools: these are part of the toolchain, by content
61 string xla_gpu_cuda_data_dir
"""

# xla/pjrt/proto/compile_options.proto
EXECUTABLE_BUILD_OPTIONS = """
# inside: the flags
3 message:DebugOptions debug_options
# target: which of several equal devices, or which of a job's
1 int64 device_ordinal
9 message:DeviceAssignmentProto device_assignment
# process: which process shares the work of autotuning; ranks of one program differ in nothing else
22 int64 process_index
# affects: how many processes share the work of autotuning
23 int64 process_count
# affects: how many devices the program is divided among, and by which partitioner
4 int64 num_replicas
5 int64 num_partitions
6 bool use_spmd_partitioning
7 bool use_auto_spmd_partitioning
16 repeated:int64 auto_spmd_partitioning_mesh_shape
17 repeated:int64 auto_spmd_partitioning_mesh_ids
19 bool use_shardy_partitioner
# affects: whether the partitioner may choose the shardings of arguments and results; the program does not say
12 repeated:bool allow_spmd_sharding_propagation_to_output
18 repeated:bool allow_spmd_sharding_propagation_to_parameters
# affects: the layout of the result
2 message:ShapeProto result_layout
# affects: how much effort goes into running time and memory
20 float exec_time_optimization_effort
21 float memory_fitting_effort
24 enum:EffortLevel optimization_level
25 enum:EffortLevel memory_fitting_level
15 int64 device_memory_size
# affects: which passes run, and on what
8 bool deduplicate_hlo
10 bool alias_passthrough_params
11 bool run_backend_only
# affects: a profile, by its bytes
14 bytes fdo_profile
# affects: options of a backend, or the devices that are compiled for, as given by the caller
13 message:CompilationEnvironmentsProto comp_envs
26 int64 slice_size
27 message:GpuTopologyProto gpu_topology
"""

COMPILE_OPTIONS = """
# inside: the rest of the options
3 message:ExecutableBuildOptionsProto executable_build_options
7 map:message:OptionOverrideProto env_option_overrides
# affects: layouts and packing of arguments and results
1 repeated:message:ShapeProto argument_layouts
2 bool parameter_is_tupled_arguments
12 repeated:int32 individually_defined_output_indices
# affects: an executable for one device, or for any
4 bool compile_portable_executable
# affects: which stored profile steers the compiler
5 int64 profile_version
# affects: the devices that are compiled for, as given by the caller
6 bytes serialized_multi_slice_config
8 message:GpuTargetConfigProto target_config
# affects: numerics
10 enum:Precision matrix_unit_operand_precision
# affects: which of several compilers
11 string compiler_variant presence
# no_effect: whether the compiler may use up the module that it is given
9 bool allow_in_place_mlir_modification
"""

OPTION_OVERRIDE = """
# inside: one value of `compiler_options=`, as Python had it
1 string string_field
2 bool bool_field
3 int64 int_field
4 double double_field
"""

# Names of enum values; where builds name one number differently, the newest name stands first.
ENUMS = """
AutotuneCacheMode: 0=AUTOTUNE_CACHE_MODE_UNSPECIFIED, 1=AUTOTUNE_CACHE_MODE_UPDATE, 2=AUTOTUNE_CACHE_MODE_READ,
  3=AUTOTUNE_CACHE_MODE_WRITE_ONLY
Backend: 0=UNSPECIFIED_BACKEND, 1=CUDNN, 2=TRITON, 3=CUBLAS, 4=CUBLASLT, 5=ROCBLAS, 6=HIPBLASLT, 7=MIOPEN,
  8=CUSTOM_KERNEL, 9=BLOCK_LEVEL_EMITTER, 10=NATIVE_EMITTER, 11=LLVM_KERNEL_EMITTER, 12=CUBLAS_FISSION,
  13=CUBLASLT_FISSION, 14=CUSTOM_KERNEL_FISSION, 15=ROCBLAS_FISSION, 16=HIPBLASLT_FISSION, 17=YNNPACK,
  18=BLOCK_LEVEL_EMITTER_CPU, 19=TENSOR_IR
CollectiveKernelType: 0=COLLECTIVE_KERNEL_INVALID, 1=COLLECTIVE_KERNEL_ALL_REDUCE, 2=COLLECTIVE_KERNEL_ALL_GATHER,
  3=COLLECTIVE_KERNEL_REDUCE_SCATTER, 4=COLLECTIVE_KERNEL_ALL_TO_ALL, 8=COLLECTIVE_KERNEL_ALL_COLLECTIVES
CollectiveOpType: 0=NOOP, 1=ALLREDUCE, 2=ALLGATHER, 3=REDUCESCATTER, 4=COLLECTIVEBROADCAST, 5=ALLTOALL,
  6=COLLECTIVEPERMUTE, 7=RAGGEDALLTOALL, 8=ALLCOLLECTIVES
CollectivePipeliningMode: 0=COLLECTIVE_PIPELINING_MODE_DEFAULT, 1=COLLECTIVE_PIPELINING_MODE_OFF,
  2=COLLECTIVE_PIPELINING_MODE_ON, 3=COLLECTIVE_PIPELINING_MODE_EXPLICIT
CollectivesMode: 0=COLLECTIVES_MODE_INVALID, 1=COLLECTIVES_PRIVATE_MEMORY, 2=COLLECTIVES_SYMMETRIC_MEMORY,
  3=COLLECTIVES_PEER_MEMORY
CommandBufferCmdType: 0=INVALID, 1=FUSION, 2=CUBLAS, 3=CUDNN, 4=COLLECTIVES, 5=CONDITIONAL, 6=WHILE, 7=CUSTOM_CALL,
  8=CUBLASLT, 9=DYNAMIC_SLICE_FUSION, 10=DYNAMIC_SLICE_COPY_FUSION, 11=CONVOLUTION, 12=HOST_EXECUTE,
  13=COLLECTIVES_KERNEL
CommandBufferSchedulingMode: 0=SERIALIZE, 1=CONCURRENT, 2=LHS, 3=CONCURRENT_REGIONS
CommandBufferUpdateMode: 0=ALWAYS_UPDATE, 1=SKIP_TEMP|NEVER_UPDATE, 2=SKIP_PROFILED|CAPTURE_CMD_NEVER_UPDATE
CpuOptPreset: 0=CPU_OPT_PRESET_DEFAULT, 1=CPU_OPT_PRESET_FAST_RUNTIME, 2=CPU_OPT_PRESET_FAST_COMPILE
CpuSchedulerType: 0=CPU_SCHEDULER_TYPE_DEFAULT, 1=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED,
  2=CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED
CudnnDevicelessCompilationMode: 0=CUDNN_DEVICELESS_COMPILATION_UNSET, 1=CUDNN_DEVICELESS_COMPILATION_DISABLED,
  2=CUDNN_DEVICELESS_COMPILATION_AUTO, 3=CUDNN_DEVICELESS_COMPILATION_ALWAYS
DetectionMode: 0=DETECTION_MODE_NONE, 1=DETECTION_MODE_WARNING, 2=DETECTION_MODE_FAIL, 3=DETECTION_MODE_DUMP
DeterministicOpsTritonMode: 0=DETERMINISTIC_OPS_TRITON_MODE_UNSET, 1=DETERMINISTIC_OPS_TRITON_MODE_OFF,
  2=DETERMINISTIC_OPS_TRITON_MODE_UNCHECKED
DevicelessCubMode: 0=DEVICELESS_CUB_UNSET, 1=DEVICELESS_CUB_DISABLED, 2=DEVICELESS_CUB_WITH_FALLBACK,
  3=DEVICELESS_CUB_NO_FALLBACK, 4=DEVICELESS_CUB_FORCE_ON_NO_FALLBACK
EarlyExitPoint: 0=EARLY_EXIT_POINT_UNSET, 1=EARLY_EXIT_POINT_AFTER_CONFIG_ASSIGNMENT
EffortLevel: 0=EFFORT_UNKNOWN, 9=EFFORT_O0, 19=EFFORT_O1, 29=EFFORT_O2, 39=EFFORT_O3
LibNvJitLinkMode: 0=LIB_NV_JIT_LINK_MODE_AUTO, 1=LIB_NV_JIT_LINK_MODE_DISABLED, 2=LIB_NV_JIT_LINK_MODE_ENABLED
LibraryFusionType: 0=LIBRARY_FUSION_TYPE_INVALID, 1=LIBRARY_FUSION_TYPE_DOT, 2=LIBRARY_FUSION_TYPE_ELTWISE,
  3=LIBRARY_FUSION_TYPE_REDUCE, 4=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT, 5=LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION
PGLEStrictnessLevel: 0=PGLE_STRICTNESS_LEVEL_OFF, 1=PGLE_STRICTNESS_LEVEL_WARN, 2=PGLE_STRICTNESS_LEVEL_ERROR
PartitioningAlgorithm: 0=PARTITIONING_ALGORITHM_NOOP, 1=PARTITIONING_ALGORITHM_EXP0, 2=PARTITIONING_ALGORITHM_EXP1,
  3=PARTITIONING_ALGORITHM_EXP2
PipelineParallelismOptLevel: 0=PIPELINE_PARALLELISM_OPT_LEVEL_DISABLE, 1=PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE
Precision: 0=DEFAULT, 1=HIGH, 2=HIGHEST
ShapeChecks: 0=IGNORE, 1=RUNTIME, 2=COMPILE_TIME
StepMarkerLocation: 0=STEP_MARK_AT_ENTRY, 1=STEP_MARK_AT_TOP_LEVEL_WHILE_LOOP, 2=STEP_MARK_NONE,
  3=STEP_MARK_AT_SECOND_LEVEL_WHILE_LOOP
WhileLoopUnrolling: 0=WHILE_LOOP_UNROLLING_NO_UNROLL, 1=WHILE_LOOP_UNROLLING_DOUBLE_BUFFER,
  2=WHILE_LOOP_UNROLLING_FULL_UNROLL, 3=WHILE_LOOP_UNROLLING_AUTO_UNROLL, 4=WHILE_LOOP_UNROLLING_MANUAL_UNROLL
XnnGraphFusionMode: 0=XNN_GRAPH_FUSION_MODE_DISABLED, 1=XNN_GRAPH_FUSION_MODE_GREEDY,
  2=XNN_GRAPH_FUSION_MODE_GREEDY_SLINKY, 3=XNN_GRAPH_FUSION_MODE_BYPASS_COST_MODEL
"""
