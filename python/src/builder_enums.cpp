// Enumerations of builders and their configs.

#include "config.h"

#include "opwright/builder.h"

namespace opwright::python {

/// Flags of networks and builds.
void bind_build_flags(nb::module_& m) {
  nb::enum_<NetworkDefinitionCreationFlag>(m, "NetworkDefinitionCreationFlag", nb::is_arithmetic(),
                                           "Bits of Builder.create_network.")
      .value("EXPLICIT_BATCH", NetworkDefinitionCreationFlag::kEXPLICIT_BATCH,
             "Without effect: the batch is always a dimension like others.")
      .value("STRONGLY_TYPED", NetworkDefinitionCreationFlag::kSTRONGLY_TYPED,
             "Layers compute in the types that the network says; the tuner chooses none.")
      .value("PREFER_AOT_PYTHON_PLUGINS", NetworkDefinitionCreationFlag::kPREFER_AOT_PYTHON_PLUGINS,
             "Function plugins run compiled where they can be either.")
      .value("PREFER_JIT_PYTHON_PLUGINS", NetworkDefinitionCreationFlag::kPREFER_JIT_PYTHON_PLUGINS,
             "Function plugins are called where they can be either.");
  nb::enum_<BuilderFlag>(m, "BuilderFlag", nb::is_arithmetic(),
                         "Bits of IBuilderConfig.flags: what a build may do, or must.")
      .value("FP16", BuilderFlag::kFP16,
             "Weakly typed networks: the tuner may choose half precision.")
      .value("INT8", BuilderFlag::kINT8,
             "Weakly typed networks: the tuner may choose 8-bit integers.")
      .value("DEBUG", BuilderFlag::kDEBUG, "Without effect; see IBuilderConfig.debug_plugins.")
      .value("GPU_FALLBACK", BuilderFlag::kGPU_FALLBACK,
             "Without effect: there is no DLA to fall back from.")
      .value("REFIT", BuilderFlag::kREFIT,
             "All weights can be exchanged (Refitter). What depends on their values is not made "
             "faster.")
      .value("DISABLE_TIMING_CACHE", BuilderFlag::kDISABLE_TIMING_CACHE,
             "Everything is timed afresh.")
      .value("TF32", BuilderFlag::kTF32,
             "On a GPU, products and convolutions of FP32 may round their operands to TF32.")
      .value("SPARSE_WEIGHTS", BuilderFlag::kSPARSE_WEIGHTS, "A permission; without effect.")
      .value("SAFETY_SCOPE", BuilderFlag::kSAFETY_SCOPE, "Not here: a build raises Error.")
      .value(
          "OBEY_PRECISION_CONSTRAINTS", BuilderFlag::kOBEY_PRECISION_CONSTRAINTS,
          "Weakly typed networks: layers keep to ILayer.precision and set_output_type; where one "
          "cannot, a build raises Error.")
      .value("PREFER_PRECISION_CONSTRAINTS", BuilderFlag::kPREFER_PRECISION_CONSTRAINTS,
             "The same, but where a layer cannot it is a warning.")
      .value("DIRECT_IO", BuilderFlag::kDIRECT_IO,
             "Inputs and outputs whose allowed_formats were set are not converted: a build raises "
             "Error where no kernel of a layer takes them as they are.")
      .value("VERSION_COMPATIBLE", BuilderFlag::kVERSION_COMPATIBLE,
             "A permission; without effect: other versions of Opwright that know the engine file's "
             "format run it, those that do not say so.")
      .value("EXCLUDE_LEAN_RUNTIME", BuilderFlag::kEXCLUDE_LEAN_RUNTIME,
             "Without effect: engines contain no runtime.")
      .value("FP8", BuilderFlag::kFP8, "Weakly typed networks: the tuner may choose 8-bit floats.")
      .value("ERROR_ON_TIMING_CACHE_MISS", BuilderFlag::kERROR_ON_TIMING_CACHE_MISS,
             "What the timing cache could have and has not is an error.")
      .value("BF16", BuilderFlag::kBF16, "Weakly typed networks: the tuner may choose bfloat16.")
      .value("DISABLE_COMPILATION_CACHE", BuilderFlag::kDISABLE_COMPILATION_CACHE,
             "Without effect: timing caches contain no code.")
      .value("STRIP_PLAN", BuilderFlag::kSTRIP_PLAN,
             "The engine is stored without the weights that refitting gives; REFIT_IDENTICAL where "
             "no other flag says which.")
      .value("REFIT_IDENTICAL", BuilderFlag::kREFIT_IDENTICAL,
             "Weights can be given again, the same ones: as fast as an engine without the flag.")
      .value("WEIGHT_STREAMING", BuilderFlag::kWEIGHT_STREAMING,
             "On a GPU weights may stay in the host's memory, as far as "
             "ICudaEngine.weight_streaming_budget_v2 says.")
      .value("INT4", BuilderFlag::kINT4, "A permission; without effect.")
      .value("REFIT_INDIVIDUAL", BuilderFlag::kREFIT_INDIVIDUAL,
             "As REFIT, for weights that INetworkDefinition.mark_weights_refittable names.")
      .value("STRICT_NANS", BuilderFlag::kSTRICT_NANS, "Not here: a build raises Error.")
      .value("MONITOR_MEMORY", BuilderFlag::kMONITOR_MEMORY,
             "Without effect: in TensorRT the log tells the memory in use.")
      .value("FP4", BuilderFlag::kFP4, "A permission; without effect.")
      .value("EDITABLE_TIMING_CACHE", BuilderFlag::kEDITABLE_TIMING_CACHE,
             "Without effect: timing caches can always be edited.")
      .value("DISTRIBUTIVE_INDEPENDENCE", BuilderFlag::kDISTRIBUTIVE_INDEPENDENCE,
             "Not here: a build raises Error.");
}

void bind_builder_enums(nb::module_& m) {
  bind_build_flags(m);
  nb::enum_<ProfilingVerbosity>(m, "ProfilingVerbosity", nb::is_arithmetic(),
                                "How much an engine keeps to say about its layers.")
      .value("LAYER_NAMES_ONLY", ProfilingVerbosity::kLAYER_NAMES_ONLY, "Names, kinds and types.")
      .value("NONE", ProfilingVerbosity::kNONE, "As LAYER_NAMES_ONLY.")
      .value("DETAILED", ProfilingVerbosity::kDETAILED, "What the tuner compared as well.");
  nb::enum_<PreviewFeature>(m, "PreviewFeature", nb::is_arithmetic(),
                            "Features that TensorRT has behind a switch.")
      .value("ALIASED_PLUGIN_IO_10_03", PreviewFeature::kALIASED_PLUGIN_IO_10_03,
             "Plugin outputs that share the memory of an input.")
      .value("RUNTIME_ACTIVATION_RESIZE_10_10", PreviewFeature::kRUNTIME_ACTIVATION_RESIZE_10_10,
             "IExecutionContext.update_device_memory_size_for_shapes().");
  nb::enum_<MemoryPoolType>(
      m, "MemoryPoolType", nb::is_arithmetic(),
      "Memory whose use a build of TensorRT can limit; limits are kept here, without effect.")
      .value("WORKSPACE", MemoryPoolType::kWORKSPACE, "Scratch memory of kernels.")
      .value("DLA_MANAGED_SRAM", MemoryPoolType::kDLA_MANAGED_SRAM, "Of a DLA.")
      .value("DLA_LOCAL_DRAM", MemoryPoolType::kDLA_LOCAL_DRAM, "Of a DLA.")
      .value("DLA_GLOBAL_DRAM", MemoryPoolType::kDLA_GLOBAL_DRAM, "Of a DLA.")
      .value("TACTIC_DRAM", MemoryPoolType::kTACTIC_DRAM,
             "Memory of the device while kernels are timed.")
      .value("TACTIC_SHARED_MEMORY", MemoryPoolType::kTACTIC_SHARED_MEMORY,
             "Shared memory of a block of threads.");
  nb::enum_<HardwareCompatibilityLevel>(m, "HardwareCompatibilityLevel", nb::is_arithmetic(),
                                        "Other GPUs that an engine is to run on.")
      .value("NONE", HardwareCompatibilityLevel::kNONE, "Those that the engine says it serves.")
      .value("AMPERE_PLUS", HardwareCompatibilityLevel::kAMPERE_PLUS,
             "Those of compute capability 8.0 and newer.")
      .value("SAME_COMPUTE_CAPABILITY", HardwareCompatibilityLevel::kSAME_COMPUTE_CAPABILITY,
             "Those of the GPU's own compute capability.");
  nb::enum_<RuntimePlatform>(m, "RuntimePlatform", nb::is_arithmetic(),
                             "The system that an engine is to run on.")
      .value("SAME_AS_BUILD", RuntimePlatform::kSAME_AS_BUILD, "That of the build.")
      .value("WINDOWS_AMD64", RuntimePlatform::kWINDOWS_AMD64, "Not here: raises Error.");
  nb::enum_<TilingOptimizationLevel>(
      m, "TilingOptimizationLevel", nb::is_arithmetic(),
      "How far a build of TensorRT goes in dividing layers into tiles; a hint, without effect.")
      .value("NONE", TilingOptimizationLevel::kNONE, "Not at all.")
      .value("FAST", TilingOptimizationLevel::kFAST, "By rules.")
      .value("MODERATE", TilingOptimizationLevel::kMODERATE, "With some search.")
      .value("FULL", TilingOptimizationLevel::kFULL, "With all search.");
  nb::enum_<TacticSource>(m, "TacticSource", nb::is_arithmetic(),
                          "Sources of kernels in TensorRT; here CUBLAS_LT and CUDNN count.")
      .value("CUBLAS", TacticSource::kCUBLAS, "cuBLAS.")
      .value("CUBLAS_LT", TacticSource::kCUBLAS_LT, "cuBLASLt.")
      .value("CUDNN", TacticSource::kCUDNN, "cuDNN.")
      .value("EDGE_MASK_CONVOLUTIONS", TacticSource::kEDGE_MASK_CONVOLUTIONS,
             "Convolutions with tables of their edges.")
      .value("JIT_CONVOLUTIONS", TacticSource::kJIT_CONVOLUTIONS,
             "Convolutions that are compiled during the build.");
}

}  // namespace opwright::python
