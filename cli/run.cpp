#include "run.h"

#include <link.h>

#include <cstdio>
#include <utility>

#include "base/printable.h"
#include "commands.h"

namespace opwright::cli {
namespace {

struct RunOptions {
  EngineOptions engine;
  std::vector<std::string> inputs, outputs;
  bool json = false;
  std::optional<bool> debug_plugins;
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

void run(const RunOptions& options) {
  const std::shared_ptr<Engine> engine = options.engine.load(options.debug_plugins);
  const Plan& plan = engine->plan();
  for (const std::vector<PlanPort>* ports : {&plan.inputs, &plan.outputs})
    for (const PlanPort& port : *ports)
      require(port.type.format == TensorFormat::kLINEAR, "'", port.name, "' has the format ",
              name(port.type.format),
              ", which no NPY file has; build the engine with LINEAR inputs "
              "and outputs");
  std::vector<std::pair<int, std::string>> output_files;
  for (const std::string& text : options.outputs) {
    const auto [name, file] = split_name(text, '=');
    output_files.emplace_back(find_port(plan.outputs, name, "output"), file);
  }
  set_crash_stage("running '" + options.engine.path + "'");
  Runner runner(engine);
  for (const std::string& text : options.inputs) {
    const auto [name, file] = split_name(text, '=');
    runner.set_input(find_port(plan.inputs, name, "input"), read_npy(file));
  }
  runner.prepare();
  runner.run();
  for (const auto& [index, file] : output_files) write_npy(file, runner.output(index));
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
  if (!options.json) return;
  std::string libraries;
  for (const std::string& path : loaded_libraries())
    libraries += (libraries.empty() ? "" : ", ") + json_string(path);
  std::printf("{\"outputs\": [%s], \"libraries\": [%s]}\n", listed.c_str(), libraries.c_str());
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
  fail("the engine has no ", what, " '", name, "'; it has ", known);
}

Runner::Runner(std::shared_ptr<Engine> engine)
    : engine_(engine),
      device_(engine->device()),
      context_(engine),
      watched_(context_),
      inputs_(engine->plan().inputs.size()),
      input_memory_(inputs_.size()),
      output_memory_(engine->plan().outputs.size()) {}

void Runner::set_input(int index, NpyArray array) {
  const PlanPort& port = engine_->plan().inputs[index];
  require(array.dtype == port.type.dtype, "input '", port.name, "' is ", name(port.type.dtype),
          "; the file has ", name(array.dtype));
  const int64_t size = tensor_bytes(array.shape, port.type.dtype, port.type.format);
  require(std::cmp_greater_equal(array.data.size(), size), "input '", port.name, "' in the format ",
          name(port.type.format), " takes ", size, " bytes for ", array.shape, "; there are ",
          array.data.size());
  context_.set_input_shape(index, array.shape);
  const void* address = array.data.data();
  if (!device_.is_host() && !port.is_shape_input && array.data.size() > 0) {
    DeviceMemory& memory = input_memory_[index];
    memory.grow(device_, array.data.size());
    device_.copy(memory.data(), array.data.data(), array.data.size(), nullptr);
    address = memory.data();
  }
  context_.set_input_address(index, address);
  inputs_[index] = std::move(array);
}

void Runner::prepare() {
  for (size_t i = 0; i < inputs_.size(); ++i)
    require(!inputs_[i].data.empty(), "input '", engine_->plan().inputs[i].name,
            "' is missing: --input ", engine_->plan().inputs[i].name, "=FILE.npy");
  for (size_t i = 0; i < output_memory_.size(); ++i) {
    const int index = static_cast<int>(i);
    const PortType type = engine_->plan().outputs[index].type;
    const int64_t size = tensor_bytes(context_.max_output_shape(index), type.dtype, type.format);
    output_memory_[i].grow(device_, static_cast<size_t>(std::max<int64_t>(size, 1)));
    context_.set_output_address(index, output_memory_[i].data());
  }
}

void Runner::run() {
  context_.enqueue();
  context_.synchronize();
}

NpyArray Runner::output(int index) {
  const PortType type = engine_->plan().outputs[index].type;
  const Shape shape = context_.output_shape(index), allocated = context_.max_output_shape(index);
  const DeviceMemory& memory = output_memory_[index];
  const size_t size = static_cast<size_t>(bytes_of(type.dtype, shape.numel()));
  require(size <= memory.size(), "output '", engine_->plan().outputs[index].name, "' grew to ",
          shape, " beyond its bound ", allocated);
  return {type.dtype, shape, Blob::make(size, [&](void* to) {
            if (size > 0) device_.copy(to, memory.data(), size, nullptr);
          })};
}

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Run an engine once on arrays in NPY files");
  options->engine.add_to(*command);
  command
      ->add_option("--input", options->inputs,
                   "NAME=FILE.npy (repeatable; the name may be left out where there is one)")
      ->allow_extra_args(false);
  command->add_option("--output", options->outputs, "NAME=FILE.npy to write (repeatable; likewise)")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json,
                    "Print the outputs' types and shapes, and the process's libraries, as JSON");
  command->add_flag("--debug-plugins,!--no-debug-plugins", options->debug_plugins,
                    "Check every call of a plugin; without either, as the engine was built");
  command->callback([options] { run(*options); });
}

}  // namespace opwright::cli
