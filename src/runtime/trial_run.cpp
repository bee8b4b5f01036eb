#include "runtime/trial_run.h"

#include "runtime/context.h"

namespace opwright {

std::function<void()> make_trial_run(Trial trial) {
  LoadOptions options;
  options.limits = trial.limits;
  options.recorder = trial.services.recorder;
  options.allocator = trial.services.allocator;
  options.log = trial.log;
  auto context = std::make_shared<Context>(
      Engine::from_build(std::move(trial.plan), std::move(trial.operators), options),
      trial.profile);
  for (size_t i = 0; i < trial.inputs.size(); ++i) {
    context->set_input_shape(static_cast<int>(i), trial.input_shapes[i]);
    context->set_input_address(static_cast<int>(i), trial.inputs[i]);
  }
  for (size_t i = 0; i < trial.outputs.size(); ++i)
    context->set_output_address(static_cast<int>(i), trial.outputs[i]);
  return [context] { context->enqueue(); };
}

}  // namespace opwright
