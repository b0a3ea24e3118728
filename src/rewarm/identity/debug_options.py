"""Fields of XLA's `DebugOptions` message that do not count by their own value, by number.

Not promised: every field. A number that is not listed here counts with its raw bytes, which can cost a hit and never
makes a wrong one. Numbers and names are those of `xla/xla.proto`; no number was reused between the jaxlib of JAX 0.9
and that of 0.12. That a field does not change machine code was measured on CPU and GPU programs for nearly all of
them, by comparing object files and cubins with the field set to another value.
"""

from __future__ import annotations

# Shape dumps, logs, profiles and checks of the compiler's own work, or say where caches lie.
NO_EFFECT: dict[int, str] = {
    2: "xla_hlo_graph_addresses",
    90: "xla_test_all_output_layouts",
    91: "xla_test_all_input_layouts",
    92: "xla_hlo_graph_sharding_color",
    102: "xla_force_host_platform_device_count",
    109: "xla_dump_to",
    110: "xla_dump_hlo_module_re",
    111: "xla_dump_hlo_pass_re",
    112: "xla_dump_hlo_as_text",
    113: "xla_dump_hlo_as_proto",
    114: "xla_dump_hlo_as_dot",
    115: "xla_dump_hlo_as_url",
    116: "xla_dump_hlo_as_html",
    118: "xla_dump_hlo_snapshots",
    131: "xla_dump_include_timestamp",
    132: "xla_dump_max_hlo_modules",
    144: "xla_dump_module_metadata",
    149: "xla_dump_fusion_visualization",
    151: "xla_dump_compress_protos",
    153: "xla_dump_disable_metadata",
    154: "xla_dump_hlo_pipeline_re",
    155: "xla_gpu_dump_llvmir",
    164: "xla_dump_hlo_as_long_text",
    182: "xla_dump_latency_hiding_schedule",
    185: "xla_dump_enable_mlir_pretty_form",
    222: "xla_gpu_dump_autotune_results_to",
    232: "xla_gpu_dump_autotuned_gemm_fusions",
    251: "xla_debug_buffer_assignment_show_max",
    252: "xla_detailed_logging",
    253: "xla_enable_dumping",
    256: "xla_gpu_llvm_verification_level",
    290: "xla_dump_large_constants",
    292: "xla_gpu_dump_autotune_logs_to",
    306: "xla_gpu_kernel_cache_file",
    310: "xla_gpu_per_fusion_autotune_cache_dir",
    315: "xla_syntax_sugar_async_ops",
    324: "xla_gpu_experimental_autotune_cache_mode",
    338: "xla_gpu_experimental_dump_fdo_profiles",
    363: "xla_unsupported_crash_on_hlo_pass_fix_max_iterations",
    364: "xla_flags_reset",
    373: "xla_test_add_command_buffer_mode",
    379: "xla_unsupported_crash_on_hlo_pass_noop_change",
    380: "xla_unsupported_crash_on_hlo_pass_silent_hlo_change",
    381: "xla_dump_full_hlo_config",
    395: "xla_cpu_emitter_verification_level",
    405: "xla_dump_hlo_unoptimized_snapshots",
    407: "xla_gpu_experimental_autotuner_cache_dir",
    427: "xla_gpu_experimental_dump_gpu_executable",
    433: "xla_dump_emitter_re",
    436: "xla_enable_scoped_logging_timers",
    445: "xla_gpu_dump_autotuned_instructions",
    447: "xla_hlo_print_inline_stack_frames",
    449: "xla_gpu_rocm_max_trace_events",
    454: "xla_gpu_print_compilation_stats",
    466: "xla_dump_buffer_assignment_analysis",
    495: "xla_dump_compact_gte",
    498: "xla_dump_hlo_as_riegeli",
    502: "xla_dump_hlo_to_subfolder",
    534: "xla_gpu_enable_cupti_multi_subscriber",
    535: "xla_enable_hlo_modules_upload",
    540: "xla_gpu_dump_cost_model_top_k_candidates_to",
}

# Among those: fields that ask the compiler to write something. They are obeyed by the compiler, and, for dumps, by
# the executable after it was loaded again, so a program compiled under one is neither looked up nor stored.
OUTPUTS: frozenset[int] = frozenset(
    {
        109,  # xla_dump_to
        112,  # xla_dump_hlo_as_text
        113,  # xla_dump_hlo_as_proto
        114,  # xla_dump_hlo_as_dot
        115,  # xla_dump_hlo_as_url
        116,  # xla_dump_hlo_as_html
        118,  # xla_dump_hlo_snapshots
        149,  # xla_dump_fusion_visualization
        155,  # xla_gpu_dump_llvmir
        182,  # xla_dump_latency_hiding_schedule
        222,  # xla_gpu_dump_autotune_results_to
        232,  # xla_gpu_dump_autotuned_gemm_fusions
        292,  # xla_gpu_dump_autotune_logs_to
        338,  # xla_gpu_experimental_dump_fdo_profiles
        405,  # xla_dump_hlo_unoptimized_snapshots
        427,  # xla_gpu_experimental_dump_gpu_executable
        445,  # xla_gpu_dump_autotuned_instructions
        454,  # xla_gpu_print_compilation_stats
        498,  # xla_dump_hlo_as_riegeli
        540,  # xla_gpu_dump_cost_model_top_k_candidates_to
    }
)

# Name a file: the path does not count, its content does.
FILES: dict[int, str] = {
    61: "xla_gpu_cuda_data_dir",
    127: "xla_gpu_ptx_file",
    128: "xla_gpu_algorithm_denylist_path",
    150: "xla_gpu_llvm_ir_file",
    210: "xla_gpu_pgle_profile_file_or_directory_path",
    223: "xla_gpu_load_autotune_results_from",
    261: "xla_gpu_target_config_filename",
    377: "xla_gpu_experimental_collective_perf_table_path",
    383: "xla_gpu_experimental_matmul_perf_table_path",
    434: "xla_gpu_gemm_autotuner_override_file",
    544: "xla_candidate_configs_file",
    554: "xla_gpu_topology_filename",
}

# Name a file whose base name says which module it is for, so that name and content both count.
NAMED_FILES: frozenset[int] = frozenset({127, 150})

# The CUDA toolkit's directory. Its tools are part of the toolchain; the path does not count.
CUDA_DIRECTORY = 61

# The inverse, for options that arrive by name (`compiler_options=`).
NUMBERS: dict[str, int] = {name: number for table in (NO_EFFECT, FILES) for number, name in table.items()}
