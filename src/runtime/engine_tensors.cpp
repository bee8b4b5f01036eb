// The engine's queries about its tensors, its profiles and itself.

#include <algorithm>

#include "backend/backend.h"
#include "backend/code_format.h"
#include "backend/release.h"
#include "base/error.h"
#include "plan/shapes.h"
#include "runtime/context.h"
#include "runtime/engine.h"
#include "runtime/inspect.h"
#include "runtime/weight_fetch.h"

namespace opwright {
namespace {

/// The number of channels in a vector of the port's format; 1 for formats without vectors.
int vector_size(const Port& port) { return layout_of(port.plan->type.format).block; }

const Shape& range_end(const ProfileInput& range, OptProfileSelector select) {
  switch (select) {
    case OptProfileSelector::kMIN:
      return range.min;
    case OptProfileSelector::kOPT:
      return range.opt;
    case OptProfileSelector::kMAX:
      return range.max;
  }
  fail("the selector ", static_cast<int>(select), " is none of kMIN, kOPT and kMAX");
}

}  // namespace

const Port* Engine::find_port(std::string_view name) const {
  const auto found = ports_.find(name);
  return found == ports_.end() ? nullptr : &found->second;
}

const Port& Engine::port(std::string_view name) const {
  if (const Port* found = find_port(name); found != nullptr) [[likely]]
    return *found;
  std::string known;
  for (int i = 0; i < num_io_tensors(); ++i) known += (i == 0 ? "'" : ", '") + tensor_name(i) + "'";
  fail("the engine has no input or output '", name, "'; it has ", known);
}

int Engine::input(std::string_view name) const {
  const Port& found = port(name);
  require(found.is_input, "'", name, "' is an output, not an input");
  return found.index;
}

int Engine::output(std::string_view name) const {
  const Port& found = port(name);
  require(!found.is_input, "'", name, "' is an input, not an output");
  return found.index;
}

int Engine::num_io_tensors() const {
  return static_cast<int>(plan_.inputs.size() + plan_.outputs.size());
}

const std::string& Engine::tensor_name(int index) const {
  require(index >= 0 && index < num_io_tensors(), "tensor ", index,
          " does not exist: the engine has ", num_io_tensors(), " inputs and outputs");
  const auto i = static_cast<size_t>(index), inputs = plan_.inputs.size();
  return i < inputs ? plan_.inputs[i].name : plan_.outputs[i - inputs].name;
}

TensorIOMode Engine::tensor_mode(std::string_view name) const {
  const Port* const found = find_port(name);  // asking for an unknown name is no error
  if (found == nullptr) return TensorIOMode::kNONE;
  return found->is_input ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT;
}

Shape Engine::tensor_shape(std::string_view name) const {
  return declared_shape(plan_, *port(name).plan);
}

TensorLocation Engine::tensor_location(std::string_view name) const {
  return port(name).plan->is_shape_input ? TensorLocation::kHOST : TensorLocation::kDEVICE;
}

bool Engine::is_shape_inference_io(std::string_view name) const {
  const Port& found = port(name);
  if (found.is_input) return found.plan->is_shape_input;
  const Schedule& first = plan_.schedules[0];
  return std::any_of(first.copies.begin(), first.copies.end(), [&](const OutputCopy& copy) {
    return copy.output == found.index &&
           first.tensors[copy.tensor].location == PlanTensor::Location::kValues;
  });
}

const std::string* Engine::aliased_input_tensor(std::string_view name) const {
  const int32_t input = port(name).plan->aliased_input;
  return input < 0 ? nullptr : &plan_.inputs[input].name;
}

const Schedule& Engine::schedule(int profile) const {
  require(profile >= 0 && profile < num_profiles(), "profile ", profile,
          " does not exist: the engine has ", num_profiles());
  return plan_.schedules[profile];
}

const Port& Engine::port_in(std::string_view name, int profile) const {
  schedule(profile);
  return port(name);
}

TensorFormat Engine::tensor_format(std::string_view name, int profile) const {
  return port_in(name, profile).plan->type.format;
}

const std::string& Engine::tensor_format_desc(std::string_view name, int profile) const {
  return port_in(name, profile).format_desc;
}

int Engine::tensor_bytes_per_component(std::string_view name, int profile) const {
  const Port& found = port_in(name, profile);
  return vector_size(found) > 1 ? static_cast<int>(bytes_of(found.plan->type.dtype, 1)) : -1;
}

int Engine::tensor_components_per_element(std::string_view name, int profile) const {
  const int size = vector_size(port_in(name, profile));
  return size > 1 ? size : -1;
}

int Engine::tensor_vectorized_dim(std::string_view name, int profile) const {
  return vector_size(port_in(name, profile)) > 1 ? 1 : -1;
}

const ProfileInput& Engine::profile_input(std::string_view name, int profile) const {
  const Schedule& chosen = schedule(profile);
  return chosen.inputs[input(name)];
}

Shape Engine::profile_shape(std::string_view name, int profile, OptProfileSelector select) const {
  const ProfileInput& range = profile_input(name, profile);
  const Shape& end = range_end(range, select);
  return range.values ? tensor_shape(name) : end;
}

const Shape& Engine::profile_values(std::string_view name, int profile,
                                    OptProfileSelector select) const {
  const ProfileInput& range = profile_input(name, profile);
  require(range.values, "the profile has a shape for input '", name, "', not values");
  return range_end(range, select);
}

uint64_t Engine::memory_size(int profile) const { return context_memory(schedule(profile)); }
uint64_t Engine::memory_size() const { return context_memory(plan_); }

ProfilingVerbosity Engine::profiling_verbosity() const {
  const auto& steps = plan_.schedules[0].steps;
  const bool detailed = std::any_of(steps.begin(), steps.end(),
                                    [](const PlanStep& step) { return !step.considered.empty(); });
  return detailed ? ProfilingVerbosity::kDETAILED : ProfilingVerbosity::kLAYER_NAMES_ONLY;
}

HardwareCompatibilityLevel Engine::hardware_compatibility_level() const {
  return device().backend().code_format().level(plan_.code);
}

uint32_t Engine::tactic_sources() const {
  uint32_t sources = 0;
  for (const auto& schedule : operators_)
    for (const PlannedOperatorPtr& op : schedule) sources |= op->tactic_sources();
  return sources;
}

int Engine::num_aux_streams() const {
  int32_t most = 0;
  for (const Schedule& schedule : plan_.schedules)
    for (const PlanStep& step : schedule.steps) most = std::max(most, step.stream);
  return most;
}

int64_t Engine::stat(EngineStat stat) const {
  if (stat == EngineStat::kSTRIPPED_WEIGHTS_SIZE)
    return static_cast<int64_t>(plan_.refit.stripped_bytes);
  require(stat == EngineStat::kTOTAL_WEIGHTS_SIZE, "there is no EngineStat ",
          static_cast<int32_t>(stat));
  return static_cast<int64_t>(weights_size(plan_));
}

bool Engine::is_debug_tensor(std::string_view name) const {
  return opwright::is_debug_tensor(plan_, name);
}

int64_t Engine::streamable_weights_size() const {
  return static_cast<int64_t>(DeviceWeights::streamable(plan_));
}

void Engine::set_weight_streaming_budget(int64_t bytes) {
  require(bytes >= 0, "the weight streaming budget is ", bytes, "; expected 0 or more bytes");
  require(plan_.weight_streaming || bytes == 0, name(),
          " was not built with BuilderFlag.WEIGHT_STREAMING, so all of its weights stay in the ",
          "device's memory; leave the budget at 0");
  if (!plan_.weight_streaming) return;
  const DeviceScope scope(*device_);
  const std::unique_lock lock(weights_mutex_);
  const auto contexts = contexts_.use_count() - 1;
  if (contexts > 0)
    fail_with(ErrorCode::kINVALID_STATE, "the weight streaming budget of ", name(),
              " cannot be set while it has execution contexts, and there are ", contexts,
              ": set it before they are made");
  const size_t budget = std::min(static_cast<size_t>(bytes), DeviceWeights::streamable(plan_));
  // The old weights are released first, as the device may have no room for both. If it has none for
  // the new ones, the first context brings the weights with the old budget.
  release_on(*device_, [&] { weights_.reset(); });
  weights_ = make_weights(plan_, budget);
  budget_ = budget;
}

int64_t Engine::automatic_weight_streaming_budget() const {
  const size_t streamable = DeviceWeights::streamable(plan_);
  if (device_->is_host()) return static_cast<int64_t>(streamable);
  const auto lock = lock_weights();
  const size_t resident = weights_ == nullptr ? 0 : weights_->resident();
  const uint64_t free = device_->free_memory() + resident;
  const uint64_t others = memory_size() + free / 8;
  return static_cast<int64_t>(std::min<uint64_t>(streamable, free > others ? free - others : 0));
}

int64_t Engine::weight_streaming_scratch_size() const {
  const auto lock = lock_weights();
  if (weights_ == nullptr) return 0;  // weights that are not brought are not streamed
  size_t most = 0;
  for (const Schedule& schedule : plan_.schedules)
    most = std::max(most, WeightFetch::size(schedule, *weights_));
  return static_cast<int64_t>(most);
}

}  // namespace opwright
