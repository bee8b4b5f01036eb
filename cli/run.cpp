#include "run.h"

#include <link.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/did_you_mean.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/units.h"
#include "commands.h"
#include "usage.h"

namespace opwright::cli {
namespace {

struct RunOptions {
  EngineOptions engine;
  std::vector<std::string> inputs, outputs, feeds;
  int steps = 1;
  bool json = false;
};

/// Paths of the shared libraries of this process.
std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (info->dlpi_name[0] != '\0')
          static_cast<std::vector<std::string>*>(out)->push_back(info->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

/// Parses texts of the form "OUTPUT=INPUT".
std::vector<Feed> parse_feeds(const std::vector<std::string>& texts, const Plan& plan) {
  std::vector<Feed> feeds;
  for (const std::string& text : texts) {
    const auto [output, input] = split_name(text, plan.outputs);
    require_usage(!output.empty() && !input.empty(), "--feed '", text, "'; expected OUTPUT=INPUT");
    const Feed feed = {find_port(plan.outputs, output, "output"),
                       find_port(plan.inputs, input, "input")};
    require(!plan.inputs[feed.input].is_shape_input, "--feed '", text, "': the values of '", input,
            "' decide shapes, which the host has to know");
    require(plan.outputs[feed.output].aliased_input < 0, "--feed '", text, "': '", output,
            "' lies in the memory of an input already");
    feeds.push_back(feed);
  }
  return feeds;
}

/// Stacks an output of all steps in one array.
class Stack {
 public:
  Stack(Runner& runner, const Plan& plan, int output, int steps)
      : runner_(runner), port_(plan.outputs[output]), output_(output), steps_(steps) {}
  int output() const { return output_; }

  /// Appends the output of the current step, in the order of the queue.
  void add() {
    const Shape shape = runner_.output_shape(output_);
    const auto bytes = static_cast<size_t>(bytes_of(port_.type.dtype, shape.numel()));
    if (count_ == 0) {
      shape_ = shape;
      const int64_t all =
          checked_product("bytes of all steps", {static_cast<int64_t>(bytes), steps_});
      memory_.grow(runner_.device(), static_cast<size_t>(std::max<int64_t>(all, 1)));
    }
    require(shape == shape_, "output '", port_.name, "' is ", shape_, " first and ", shape,
            " in step ", count_ + 1, ": steps of several shapes are not stacked");
    if (bytes > 0)
      runner_.device().copy(memory_.data() + bytes * count_, runner_.output_address(output_), bytes,
                            nullptr);
    ++count_;
  }
  NpyArray array() const {
    std::vector<int64_t> extents = {steps_};
    for (int i = 0; i < shape_.rank(); ++i) extents.push_back(shape_[i]);
    const Shape all{std::span<const int64_t>(extents)};
    const auto size = static_cast<size_t>(bytes_of(port_.type.dtype, all.numel()));
    return {port_.type.dtype, all, Blob::make(size, [&](void* to) {
              if (size > 0) runner_.device().copy(to, memory_.data(), size, nullptr);
            })};
  }

 private:
  Runner& runner_;
  const PlanPort& port_;
  int output_, steps_;
  size_t count_ = 0;
  Shape shape_;
  DeviceMemory memory_;
};

/// Milliseconds of the first step, and the mean of the following steps.
struct StepTimes {
  double first = 0, next = 0;
};

StepTimes run_steps(Runner& runner, int steps, const std::vector<Feed>& feeds,
                    std::vector<Stack>& stacks) {
  using Clock = std::chrono::steady_clock;
  const auto milliseconds = [](Clock::time_point from) {
    return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
  };
  StepTimes times;
  Clock::time_point begin = Clock::now();
  for (int step = 0; step < steps; ++step) {
    if (step > 0) runner.feed(feeds);
    runner.start();
    for (Stack& stack : stacks) stack.add();
    if (step > 0) continue;
    runner.wait();
    times.first = milliseconds(begin);
    begin = Clock::now();
  }
  runner.wait();
  if (steps > 1) times.next = milliseconds(begin) / (steps - 1);
  return times;
}

void run(const RunOptions& options) {
  const std::shared_ptr<Engine> engine = options.engine.load();
  const Plan& plan = engine->plan();
  for (const std::vector<PlanPort>* ports : {&plan.inputs, &plan.outputs})
    for (const PlanPort& port : *ports)
      require(port.type.format == TensorFormat::kLINEAR, "'", port.name, "' has the format ",
              name(port.type.format),
              ", which no NPY file has; build the engine with LINEAR inputs "
              "and outputs");
  std::vector<std::string> engine_files = options.engine.plugins;
  engine_files.push_back(options.engine.path);
  std::vector<std::pair<int, std::string>> output_files;
  for (const std::string& text : options.outputs) {
    const auto [name, file] = split_name(text, plan.outputs);
    output_files.emplace_back(find_port(plan.outputs, name, "output"), file);
    require_other_file(file, engine_files, "the engine, or a plugin library");
  }
  set_crash_stage("running '" + options.engine.path + "'");
  const std::vector<Feed> feeds = parse_feeds(options.feeds, plan);
  Runner runner(engine);
  std::vector<std::pair<int, NpyArray>> arrays;
  std::vector<std::pair<int, Shape>> shapes;
  for (const std::string& text : options.inputs) {
    const auto [name, file] = split_name(text, plan.inputs);
    const int index = find_port(plan.inputs, name, "input");
    arrays.emplace_back(index, read_npy(file));
    shapes.emplace_back(arrays.back().first, arrays.back().second.shape);
  }
  runner.choose_profile(shapes);
  for (auto& [index, array] : arrays) runner.set_input(index, std::move(array));
  runner.prepare();
  std::vector<Stack> stacks;
  if (options.steps > 1)
    for (const auto& [index, file] : output_files)
      if (plan.outputs[index].aliased_input < 0)
        stacks.emplace_back(runner, plan, index, options.steps);
  const StepTimes times = run_steps(runner, options.steps, feeds, stacks);
  for (const auto& [index, file] : output_files) {
    const auto stack = std::ranges::find(stacks, index, &Stack::output);
    write_npy(file, stack != stacks.end() ? stack->array() : runner.output(index));
  }
  std::string listed;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const NpyArray array = runner.output(static_cast<int>(i));
    if (options.json)
      listed += (i > 0 ? ", " : "") + str("{\"name\": ", json_string(plan.outputs[i].name),
                                          ", \"type\": \"", name(array.dtype),
                                          "\", \"shape\": ", json_array(array.shape), "}");
    else
      std::printf("%s: %s %s\n", printable(plan.outputs[i].name).c_str(),
                  std::string(name(array.dtype)).c_str(), array.shape.str().c_str());
  }
  if (!options.json) {
    if (options.steps > 1)
      std::printf("%d steps: the first %s, then %s each\n", options.steps,
                  time_text(times.first).c_str(), time_text(times.next).c_str());
    return;
  }
  std::string libraries;
  for (const std::string& path : loaded_libraries())
    libraries += (libraries.empty() ? "" : ", ") + json_string(path);
  std::printf("{\"outputs\": [%s], \"first_ms\": %.6f, \"step_ms\": %.6f, \"libraries\": [%s]}\n",
              listed.c_str(), times.first, times.next, libraries.c_str());
}

}  // namespace

int find_port(const std::vector<PlanPort>& ports, const std::string& name, const char* what) {
  if (name.empty() && ports.size() == 1) return 0;
  std::string known;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
    known += (i > 0 ? ", '" : "'") + ports[i].name + "'";
  }
  if (name.empty())
    fail("the engine has ", ports.size(), " ", what, "s (", known, "): write --", what,
         " NAME=FILE.npy");
  std::vector<std::string> names;
  for (const PlanPort& port : ports) names.push_back(port.name);
  fail("the engine has no ", what, " '", name, "'; it has ", known, did_you_mean(name, names));
}

Runner::Runner(std::shared_ptr<Engine> engine, bool watched)
    : engine_(engine),
      device_(engine->device()),
      context_(engine),
      inputs_(engine->plan().inputs.size()),
      input_memory_(inputs_.size()),
      output_memory_(engine->plan().outputs.size()),
      host_inputs_(inputs_.size()),
      host_outputs_(output_memory_.size()) {
  if (watched)
    watched_.emplace(context_);
  else
    queue_ = device_.make_queue();
}

void Runner::choose_profile(const std::vector<std::pair<int, Shape>>& shapes) {
  const std::vector<Schedule>& schedules = engine_->plan().schedules;
  for (size_t profile = 0; profile < schedules.size(); ++profile) {
    const bool fits = std::ranges::all_of(shapes, [&](const std::pair<int, Shape>& given) {
      const ProfileInput& range = schedules[profile].inputs[given.first];
      const Shape& shape = given.second;
      if (range.values || shape.rank() != range.min.rank()) return range.values;
      for (int i = 0; i < shape.rank(); ++i)
        if (shape[i] < range.min[i] || shape[i] > range.max[i]) return false;
      return true;
    });
    if (!fits) continue;
    if (std::cmp_not_equal(profile, context_.profile()))
      context_.set_profile(static_cast<int>(profile));
    return;
  }
}

bool Runner::is_updated(int input) const {
  return std::ranges::any_of(engine_->plan().outputs,
                             [&](const PlanPort& port) { return port.aliased_input == input; });
}

void* Runner::own_memory(int input, const void* from, size_t bytes) {
  DeviceMemory& memory = input_memory_[input];
  memory.grow(device_, std::max<size_t>(bytes, 1));
  if (bytes > 0) device_.copy(memory.data(), from, bytes, nullptr);
  return memory.data();
}

void Runner::set_input(int index, NpyArray array) {
  const PlanPort& port = engine_->plan().inputs[index];
  require(array.dtype == port.type.dtype, "input '", port.name, "' is ", name(port.type.dtype),
          "; the file has ", name(array.dtype));
  context_.set_input_shape(index, array.shape);
  const int64_t size = tensor_bytes(array.shape, port.type.dtype, port.type.format);
  require(std::cmp_greater_equal(array.data.size(), size), "input '", port.name, "' in the format ",
          name(port.type.format), " takes ", size, " bytes for ", array.shape, "; there are ",
          array.data.size());
  const void* address = array.data.data();
  if (!port.is_shape_input && (!device_.is_host() || is_updated(index)) && array.data.size() > 0)
    address = own_memory(index, array.data.data(), array.data.size());
  context_.set_input_address(index, address);
  inputs_[index] = std::move(array);
}

void Runner::feed(const std::vector<Feed>& feeds) {
  const Plan& plan = engine_->plan();
  std::vector<std::pair<int, Shape>> shapes;
  for (size_t i = 0; i < inputs_.size(); ++i)
    shapes.emplace_back(static_cast<int>(i), inputs_[i].shape);
  for (const Feed& feed : feeds) {
    const Shape shape = output_shape(feed.output);
    const PlanPort &from = plan.outputs[feed.output], &to = plan.inputs[feed.input];
    const size_t bytes = static_cast<size_t>(bytes_of(from.type.dtype, shape.numel()));
    require(bytes <= output_memory_[feed.output].size(), "output '", from.name, "' grew to ", shape,
            " beyond its bound");
    own_memory(feed.input, output_memory_[feed.output].data(), bytes);
    shapes[feed.input].second = inputs_[feed.input].shape = shape;
    require(from.type.dtype == to.type.dtype, "output '", from.name, "' is ", name(from.type.dtype),
            ", input '", to.name, "' ", name(to.type.dtype));
  }
  const int before = context_.profile();
  choose_profile(shapes);
  for (const auto& [input, shape] : shapes) {
    const bool is_fed =
        std::ranges::any_of(feeds, [&, name = input](const Feed& f) { return f.input == name; });
    if (!is_fed && context_.profile() == before) continue;
    context_.set_input_shape(input, shape);
    if (is_fed) context_.set_input_address(input, input_memory_[input].data());
  }
  prepare();
}

void Runner::prepare() {
  const Plan& plan = engine_->plan();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const int index = static_cast<int>(i);
    const PlanPort& port = plan.inputs[i];
    const ProfileInput& range = plan.schedules[context_.profile()].inputs[i];
    if (inputs_[i].data.empty() && is_updated(index) && range.min == range.max) {
      const auto size =
          static_cast<size_t>(tensor_bytes(range.max, port.type.dtype, port.type.format));
      set_input(index, {port.type.dtype, range.max,
                        Blob::make(size, [&](void* to) { std::memset(to, 0, size); })});
    }
    require(!inputs_[i].data.empty(), "input '", port.name, "' is missing: --input ", port.name,
            "=FILE.npy");
  }
  for (size_t i = 0; i < output_memory_.size(); ++i) {
    if (plan.outputs[i].aliased_input >= 0) continue;
    const int index = static_cast<int>(i);
    const PortType type = plan.outputs[index].type;
    const int64_t size = tensor_bytes(context_.max_output_shape(index), type.dtype, type.format);
    output_memory_[i].grow(device_, static_cast<size_t>(std::max<int64_t>(size, 1)));
    context_.set_output_address(index, output_memory_[i].data());
  }
}

void Runner::start() { context_.enqueue(queue()); }
void Runner::wait() { context_.synchronize(queue()); }

void Runner::copy_inputs() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Blob& data = inputs_[i].data;
    if (plan().inputs[i].is_shape_input || data.size() == 0) continue;
    if (host_inputs_[i] == nullptr) {
      host_inputs_[i] = std::make_unique<PinnedMemory>(device_, data.size());
      std::memcpy(host_inputs_[i]->data(), data.data(), data.size());
    }
    device_.copy(input_memory_[i].data(), host_inputs_[i]->data(), data.size(), queue());
  }
}

void Runner::copy_outputs() {
  for (size_t i = 0; i < host_outputs_.size(); ++i) {
    const int output = static_cast<int>(i);
    const PortType type = plan().outputs[i].type;
    const Shape shape = context_.max_output_shape(output);
    const auto bytes = static_cast<size_t>(tensor_bytes(shape, type.dtype, type.format));
    if (bytes == 0) continue;
    if (host_outputs_[i] == nullptr)
      host_outputs_[i] = std::make_unique<PinnedMemory>(device_, bytes);
    device_.copy(host_outputs_[i]->data(), output_address(output), bytes, queue());
  }
}
void Runner::run() {
  start();
  wait();
}

Shape Runner::output_shape(int index) { return context_.output_shape(index); }

const void* Runner::output_address(int index) const {
  const int input = engine_->plan().outputs[index].aliased_input;
  return input >= 0 ? context_.input_address(input) : output_memory_[index].data();
}

NpyArray Runner::output(int index) {
  const PlanPort& port = engine_->plan().outputs[index];
  const PortType type = port.type;
  const Shape shape = context_.output_shape(index), allocated = context_.max_output_shape(index);
  const size_t size = static_cast<size_t>(bytes_of(type.dtype, shape.numel()));
  require(port.aliased_input >= 0 || size <= output_memory_[index].size(), "output '", port.name,
          "' grew to ", shape, " beyond its bound ", allocated);
  return {type.dtype, shape, Blob::make(size, [&](void* to) {
            if (size > 0) device_.copy(to, output_address(index), size, nullptr);
          })};
}

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run",
      "Run an engine on arrays in NPY files; with --ranks N, the engines of a manifest that "
      "`opwright shard` wrote, whose options `opwright run --ranks N --help` shows");
  options->engine.add_to(*command);
  command
      ->add_option("--input", options->inputs,
                   "NAME=FILE.npy (repeatable; the name may be left out where there is one)")
      ->allow_extra_args(false);
  command->add_option("--output", options->outputs, "NAME=FILE.npy to write (repeatable; likewise)")
      ->allow_extra_args(false);
  command
      ->add_option("--steps", options->steps,
                   "Run so often; outputs that are written have the steps as a first axis then")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--feed", options->feeds,
                   "OUTPUT=INPUT: an output becomes that input of the next step (repeatable)")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json,
                    "Print the outputs' types and shapes, and the process's libraries, as JSON");
  command->add_flag("--debug-plugins,!--no-debug-plugins", options->engine.how.debug_plugins,
                    "Check every call of a plugin; without either, as the engine was built");
  command->callback([options] { run(*options); });
}

}  // namespace opwright::cli
