#include "compile/config.h"

#include "base/error.h"
#include "opwright/builder.h"

namespace opwright {
namespace {

struct MissingFlag {
  BuilderFlag flag;
  const char* name;
  const char* why;
};

constexpr MissingFlag kMissingFlags[] = {
    {BuilderFlag::kSAFETY_SCOPE, "SAFETY_SCOPE", "there are no engines for safety"},
    {BuilderFlag::kSTRICT_NANS, "STRICT_NANS", "no kernel is built otherwise for it"},
    {BuilderFlag::kDISTRIBUTIVE_INDEPENDENCE, "DISTRIBUTIVE_INDEPENDENCE",
     "kernels may compute parts of an axis in different ways"},
};

bool has_flag(uint32_t flags, BuilderFlag flag) {
  return (flags >> static_cast<int>(flag) & 1) != 0;
}

}  // namespace

TuningEffort tuning_effort(int level, int max_tactics) {
  require(level >= 0 && level <= 5, "the builder optimization level is ", level,
          "; expected 0 to 5");
  require(max_tactics == -1 || max_tactics > 0, "the number of tactics is ", max_tactics,
          "; expected 1 or more, or -1 for what the optimization level says");
  TuningEffort effort;
  effort.timing = level > 0;
  if (max_tactics > 0) {
    effort.max_candidates = max_tactics;
  } else if (level == 1 || level == 2) {
    effort.max_candidates = 2 * level;
  }
  return effort;
}

void check_builder_flags(uint32_t flags) {
  for (const MissingFlag& missing : kMissingFlags) {
    require(!has_flag(flags, missing.flag), "BuilderFlag.", missing.name,
            " is set, but this is not here: ", missing.why, "; clear the flag");
  }
  refit_mode(flags);
}

uint32_t default_tactic_sources() {
  return 1u << static_cast<int>(TacticSource::kEDGE_MASK_CONVOLUTIONS) |
         1u << static_cast<int>(TacticSource::kJIT_CONVOLUTIONS);
}

void check_layer_device(const std::string& layer, DeviceType asked, DeviceType engine) {
  static constexpr const char* kNames[EnumMax<DeviceType>()] = {"the GPU", "a DLA", "the CPU"};
  require(asked == engine, "layer '", layer, "' is to run on ", kNames[static_cast<size_t>(asked)],
          ", but the engine is built for ", kNames[static_cast<size_t>(engine)],
          ", where all of its layers run: choose the default device type");
}

void BuildConfig::set_precisions(uint32_t builder_flags, bool strongly_typed) {
  const auto has = [&](BuilderFlag flag) {
    return !strongly_typed && (builder_flags >> static_cast<int>(flag) & 1) != 0;
  };
  fp16 = has(BuilderFlag::kFP16);
  bf16 = has(BuilderFlag::kBF16);
  int8 = has(BuilderFlag::kINT8);
  fp8 = has(BuilderFlag::kFP8);
  tf32 = (builder_flags >> static_cast<int>(BuilderFlag::kTF32) & 1) != 0;
  constraints = has(BuilderFlag::kOBEY_PRECISION_CONSTRAINTS)     ? PrecisionConstraints::kOBEY
                : has(BuilderFlag::kPREFER_PRECISION_CONSTRAINTS) ? PrecisionConstraints::kPREFER
                                                                  : PrecisionConstraints::kIGNORE;
}

RefitMode refit_mode(uint32_t flags) {
  const bool all = has_flag(flags, BuilderFlag::kREFIT),
             identical = has_flag(flags, BuilderFlag::kREFIT_IDENTICAL),
             individual = has_flag(flags, BuilderFlag::kREFIT_INDIVIDUAL);
  require(!individual || (!all && !identical), "BuilderFlag.REFIT_INDIVIDUAL is set beside ",
          all ? "REFIT" : "REFIT_IDENTICAL", "; clear one of them");
  if (individual) return RefitMode::kIndividual;
  if (all) return RefitMode::kAll;
  return identical || strips_plan(flags) ? RefitMode::kIdentical : RefitMode::kNone;
}

bool strips_plan(uint32_t flags) { return has_flag(flags, BuilderFlag::kSTRIP_PLAN); }

}  // namespace opwright
