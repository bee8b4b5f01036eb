#include "api/trial_server.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/memory.h"
#include "base/error.h"
#include "base/message_stream.h"
#include "compile/timing_memory.h"
#include "compile/trial_process.h"
#include "plan/shapes.h"
#include "plugin/registry/registry.h"
#include "runtime/context.h"

namespace opwright {
namespace {

/// Drops messages: the parent reports.
class Silence final : public ILogger {
 public:
  void log(Severity, AsciiChar const*) noexcept override {}
};

/// Closes files that the parent left open for its own programs.
void close_inherited() {
  std::vector<int> open;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename();
    int number = 0;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number > STDERR_FILENO) open.push_back(number);
  }
  for (const int number : open) close(number);
}

/// Runs the only profile of the file once. Where the device's context is lost, nothing can be given
/// back to the device: `end` ends the process.
void run(const Blob& file, const Device& device, const Log& log,
         const std::function<void(const DeviceLostError&)>& end) {
  LoadOptions options;
  options.allow_host_code = true;  // the code is the parent's, which wrote the file
  options.device_ordinal = device.ordinal();
  options.weights = WeightCheck::kDeferred;
  options.log = log;
  TimingMemory memory(device);
  Context context(Engine::load(deserialize(file, WeightCheck::kDeferred), options));
  const Plan& plan = context.engine()->plan();
  const Schedule& schedule = plan.schedules.front();
  const ProfileValues values(plan, schedule.inputs);
  const auto bytes_of = [&](const PlanPort& port) {
    return static_cast<size_t>(values.largest_bytes(port.type, port.dims));
  };
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanPort& port = plan.inputs[i];
    const int number = static_cast<int>(i);
    context.set_input_shape(number, schedule.inputs[i].opt);
    context.set_input_address(
        number, memory.input(number, port.type.dtype, bytes_of(port), TimingNumbers::kFractions));
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlanPort& port = plan.outputs[i];
    const int number = static_cast<int>(i);
    if (port.aliased_input < 0)
      context.set_output_address(number, memory.output(number, bytes_of(port)));
  }
  try {
    context.enqueue();
    device.synchronize(nullptr);
  } catch (const DeviceLostError& error) {
    end(error);
  }
}

/// The error's text without the advice at its end, which concerns a process that goes on.
std::string cause_of(const DeviceLostError& error) {
  const std::string text = error.what();
  return text.substr(0, text.rfind("; the "));
}

template <class Work>
TrialProcess::Answer answer_of(const Work& work) {
  try {
    work();
    return {TrialOutcome::kRan, {}};
  } catch (const DeviceLostError& error) {
    return {TrialOutcome::kFault, cause_of(error)};
  } catch (const Error& error) {
    return {error.code() == ErrorCode::kFAILED_ALLOCATION ? TrialOutcome::kNoMemory
                                                          : TrialOutcome::kUnknown,
            error.what()};
  } catch (const std::bad_alloc& error) {
    return {TrialOutcome::kNoMemory, error.what()};
  } catch (const std::exception& error) {
    return {TrialOutcome::kUnknown, error.what()};
  } catch (...) {
    return {TrialOutcome::kUnknown, "an exception of unknown type"};
  }
}

}  // namespace

int serve_trials(const char* device_name) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close_inherited();
  // Standard output is the parent's, whose results may go there.
  dup2(STDERR_FILENO, STDOUT_FILENO);
  Silence silence;
  const Log log(&silence);
  const MessageStream parent(STDIN_FILENO);
  const auto reply = [&](const TrialProcess::Answer& answer) {
    const Blob text = Blob::copy(answer.text.data(), answer.text.size());
    return parent.send(static_cast<uint8_t>(answer.outcome), {&text, 1}, [] { return true; });
  };
  const Device* device = nullptr;
  TrialProcess::Answer start = answer_of([&] {
    device = &get_device(parse_device(device_name, "the device"));
    const DeviceScope scope(*device);
    DeviceMemory memory;
    memory.grow(*device, 1);
  });
  if (start.outcome == TrialOutcome::kRan) start.text = device->identity();
  if (!reply(start) || start.outcome != TrialOutcome::kRan) return 1;
  const DeviceScope scope(*device);
  const auto end = [&](const DeviceLostError& error) {
    reply({TrialOutcome::kFault, cause_of(error)});
    std::_Exit(1);
  };
  while (const auto request = parent.receive(UINT64_MAX, [] { return true; })) {
    const Blob& bytes = request->bytes;
    const TrialProcess::Answer answer = answer_of([&] {
      if (request->kind == static_cast<uint8_t>(TrialRequest::kLoadLibrary)) {
        PluginRegistry::global().load_library(std::string(bytes.as<char>(), bytes.size()));
      } else {
        run(bytes, *device, log, end);
      }
    });
    if (!reply(answer) || answer.outcome == TrialOutcome::kFault) break;
  }
  // Nobody waits for libraries' work at the end of a process.
  std::_Exit(0);
}

}  // namespace opwright
