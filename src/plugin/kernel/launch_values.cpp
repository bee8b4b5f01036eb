#include "plugin/kernel/launch_values.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/types.h"
#include "base/units.h"

namespace opwright {

LaunchValues::LaunchValues(KernelLaunch launch, std::string name, const KernelArgs& args)
    : layer_(args.layer),
      name_(std::move(name)),
      launch_(std::move(launch)),
      num_inputs_(args.inputs.size()),
      num_outputs_(args.outputs.size()),
      values_(launch_.program.size()),
      scalars_(launch_.arguments.size()),
      pointers_(num_inputs_ + num_outputs_ + launch_.scratch.size()),
      maps_(launch_.maps.size()),
      elements_(num_inputs_) {
  for (size_t i = 0; i < num_inputs_; ++i) {
    const int rank = args.inputs[i].present ? args.inputs[i].opt.rank() : 0;
    for (int axis = 0; axis < rank; ++axis)
      symbol_names_.push_back(str("inputs[", i, "].shape[", axis, "]"));
  }
  num_extents_ = symbol_names_.size();
  for (const int32_t input : launch_.shape_inputs) add_shape_input(input, args.inputs);
  symbols_.resize(symbol_names_.size());
  validate(launch_.program, static_cast<int>(symbols_.size()));
  for (size_t i = 0; i < num_inputs_; ++i) arguments_.push_back(&pointers_[i]);
  for (size_t i = 0; i < scalars_.size(); ++i) {
    const bool is_pointer = launch_.arguments[i].type == ArgumentType::kPOINTER;
    scalars_[i].address = &scalars_[i].int64;
    arguments_.push_back(is_pointer ? static_cast<void*>(&scalars_[i].address)
                                    : &scalars_[i].int64);
  }
  for (size_t i = num_inputs_; i < pointers_.size(); ++i) arguments_.push_back(&pointers_[i]);
  for (size_t i = 0; i < maps_.size(); ++i) {
    const KernelLaunch::TensorMap& map = launch_.maps[i];
    const auto input = static_cast<size_t>(map.input);
    require(input < num_inputs_ && args.inputs[input].present, who(), "tensor map ", i,
            " is of input ", map.input, ", which is absent (", describe_arguments(), ")");
    const DataType type = args.inputs[input].type.dtype;
    require(type == map.type, who(), "tensor map ", i, " has elements of type ",
            opwright::name(map.type), ", and input ", map.input, " those of ",
            opwright::name(type));
    arguments_.push_back(maps_[i].bytes);
  }
  if (launch_.order.empty()) return;
  std::vector<void*> parameters;
  for (const int32_t argument : launch_.order) {
    require(argument >= 0 && std::cmp_less(argument, arguments_.size()), who(), "parameter ",
            parameters.size(), " takes argument ", argument, " of ", arguments_.size(), " (",
            describe_arguments(), ")");
    parameters.push_back(arguments_[static_cast<size_t>(argument)]);
  }
  arguments_ = std::move(parameters);
}

void LaunchValues::add_shape_input(int32_t input, std::span<const PortDesc> ports) {
  require(std::cmp_less(input, ports.size()) && ports[static_cast<size_t>(input)].present, "input ",
          input, " of compiled kernel '", name_, "', a shape input, is absent");
  const PortDesc& port = ports[static_cast<size_t>(input)];
  const DataType dtype = port.type.dtype;
  require(dtype == DataType::kINT32 || dtype == DataType::kINT64, "input ", input,
          " of compiled kernel '", name_, "' is a shape input of type ", name(dtype),
          "; expected INT32 or INT64");
  const int64_t count = port.opt.numel();
  require(port.min == port.max && count <= TensorInfo::kMaxValues, "input ", input,
          " of compiled kernel '", name_, "' is a shape input of shape ", port.max,
          "; expected a constant shape of at most ", TensorInfo::kMaxValues, " elements");
  shape_inputs_.push_back(
      {static_cast<size_t>(input), symbol_names_.size(), static_cast<size_t>(count)});
  for (int64_t i = 0; i < count; ++i) symbol_names_.push_back(str("inputs[", input, "][", i, "]"));
}

void LaunchValues::set_shapes(std::span<const Shape> inputs, std::span<const Shape> outputs) {
  for (size_t i = 0; i < num_inputs_ && i < inputs.size(); ++i) elements_[i] = inputs[i].numel();
  size_t next = 0;
  for (const Shape& input : inputs)
    for (const int64_t extent : input)
      if (next < num_extents_) symbols_[next++] = extent;
  unwritten_.reset();
  for (size_t o = 0; o < outputs.size() && !unwritten_; ++o)
    if (outputs[o].numel() != 0) unwritten_ = o;
}

void LaunchValues::set_values(int input, std::span<const int64_t> elements) {
  for (const ShapeInput& shape : shape_inputs_)
    if (std::cmp_equal(shape.input, input))
      std::copy_n(elements.begin(), std::min(elements.size(), shape.count),
                  symbols_.begin() + static_cast<std::ptrdiff_t>(shape.first));
}

void LaunchValues::evaluate() {
  try {
    opwright::evaluate(launch_.program, symbols_, values_);
  } catch (const Error& error) {
    fail(who(), find_failing(), ": ", error.what());
  }
  require_checks(launch_, values_, layer_, name_);
  __int128 cells = 1;
  for (int i = 0; i < 3; ++i) {
    const int64_t extent = value(launch_.grid[i]);
    require_at_least(extent == 0 && !unwritten_ ? 0 : 1, launch_.grid[i], kGridNames[i]);
    require_at_least(1, launch_.block[i], kBlockNames[i]);
    cells = std::min<__int128>(cells * extent, std::numeric_limits<int64_t>::max());
  }
  cells_ = static_cast<int64_t>(cells);
  require_at_least(0, launch_.shared_memory, "shared_mem");
  for (size_t i = 0; i < launch_.scratch.size(); ++i)
    require_at_least(0, launch_.scratch[i], "the size of a scratch buffer");
}

void LaunchValues::accept() {
  for (size_t i = 0; i < scalars_.size(); ++i) set_scalar(i);
}

std::string LaunchValues::who() const {
  return str("layer '", layer_, "': compiled kernel '", name_, "': ");
}

std::string LaunchValues::text(int32_t instruction) const {
  try {
    return launch_.expression(instruction).str(symbol_names_);
  } catch (const Error& error) {
    return error.what();
  }
}

void LaunchValues::require_at_least(int64_t least, int32_t instruction, const char* what) const {
  const int64_t found = value(instruction);
  if (found >= least) [[likely]]
    return;
  if (found == 0 && unwritten_)
    fail(who(), what, " is 0 (", text(instruction), "), so that nothing would write output ",
         *unwritten_, ", which has elements; it must be at least ", least);
  fail(who(), what, " is ", found, " (", text(instruction), "); it must be at least ", least);
}

std::string LaunchValues::describe_arguments() const {
  const std::string scratch =
      launch_.scratch.empty() ? "" : ", " + counted(launch_.scratch.size(), "scratch pointer");
  const std::string maps = maps_.empty() ? "" : ", " + counted(maps_.size(), "tensor map");
  return str(counted(num_inputs_, "input"), ", ", counted(scalars_.size(), "extra argument"), ", ",
             counted(num_outputs_, "output"), scratch, maps);
}

/// The first expression of the launch that cannot be evaluated for the symbols.
std::string LaunchValues::find_failing() const {
  std::vector<std::pair<std::string, int32_t>> parts;
  for (int i = 0; i < 3; ++i) {
    parts.emplace_back(kGridNames[i], launch_.grid[i]);
    parts.emplace_back(kBlockNames[i], launch_.block[i]);
  }
  parts.emplace_back("shared_mem", launch_.shared_memory);
  for (size_t i = 0; i < launch_.arguments.size(); ++i)
    parts.emplace_back(str("extra argument ", i), launch_.arguments[i].value);
  for (const int32_t bytes : launch_.scratch)
    parts.emplace_back("the size of a scratch buffer", bytes);
  for (const auto& [what, instruction] : parts) {
    try {
      launch_.evaluate(instruction, symbols_);
    } catch (const Error&) {
      return str(what, " (", text(instruction), ")");
    }
  }
  return "the launch parameters";
}

template <class T>
T LaunchValues::narrow(size_t i, int64_t value) const {
  if (!std::in_range<T>(value)) [[unlikely]]
    fail(who(), "extra argument ", i, " is ", value, " (", text(launch_.arguments[i].value),
         "), which does not fit ", 8 * sizeof(T), " bits; pass it as SymInt64");
  return static_cast<T>(value);
}

void LaunchValues::set_scalar(size_t i) {
  const KernelLaunch::Argument& argument = launch_.arguments[i];
  const int64_t number = value(argument.value);
  switch (argument.type) {
    case ArgumentType::kINT8:
      scalars_[i].int8 = narrow<int8_t>(i, number);
      break;
    case ArgumentType::kINT16:
      scalars_[i].int16 = narrow<int16_t>(i, number);
      break;
    case ArgumentType::kINT32:
      scalars_[i].int32 = narrow<int32_t>(i, number);
      break;
    case ArgumentType::kINT64:
    case ArgumentType::kPOINTER:
      scalars_[i].int64 = number;
      break;
    case ArgumentType::kFLOAT32:
      scalars_[i].float32 = static_cast<float>(static_cast<double>(number) + argument.constant);
      break;
    case ArgumentType::kFLOAT64:
      scalars_[i].float64 = static_cast<double>(number) + argument.constant;
      break;
  }
}

}  // namespace opwright
