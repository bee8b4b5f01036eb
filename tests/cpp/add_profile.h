#pragma once

#include <memory>
#include <utility>

#include "compile/builder_config.h"

namespace opwright {

/// Gives the config one more profile, which the caller may go on to set.
inline OptimizationProfile& add_profile(BuilderConfig& config, OptimizationProfile profile = {}) {
  auto added = std::make_shared<OptimizationProfile>(std::move(profile));
  config.profiles.push_back(added);
  return *added;
}

}  // namespace opwright
