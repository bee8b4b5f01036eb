// A function plugin of Python: the calls that the engine makes to it.

#include "function_definition.h"

#include <algorithm>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "plugin/kernel/code_fault.h"
#include "plugin/kernel/host_code.h"
#include "plugin/model/autotune.h"
#include "plugin/model/fit_field.h"
#include "plugin_callbacks.h"
#include "tensor_desc.h"

namespace opwright::python {
namespace {

size_t slot(DeviceType device) { return device == DeviceType::kCPU ? 0 : 1; }

void append(std::vector<nb::object>& to, std::vector<nb::object> more) {
  for (nb::object& object : more) to.push_back(std::move(object));
}

/// Whether the expression contains a symbol whose id is at least `first`.
bool has_symbol_from(const Expr& expr, int first) {
  if (expr.op() == ExprOp::kSymbol) return expr.symbol_id() >= first;
  for (int i = 0; i < expr.arity(); ++i)
    if (has_symbol_from(expr.operand(i), first)) return true;
  return false;
}

thread_local std::string building_for;

/// Makes build_architecture() return the device's architecture while this object lives.
class BuildScope {
 public:
  explicit BuildScope(const Device* device)
      : previous_(std::exchange(
            building_for, device != nullptr ? device->architecture() : str(host_architecture()))) {}
  ~BuildScope() { building_for = std::move(previous_); }
  BuildScope(const BuildScope&) = delete;
  BuildScope& operator=(const BuildScope&) = delete;

 private:
  std::string previous_;
};

bool has_placeholder(const Expr& expr) { return has_symbol_from(expr, kFirstPlaceholder); }

}  // namespace

std::string_view build_architecture() { return building_for; }

PythonDefinition::PythonDefinition(std::string plugin_namespace, std::string name,
                                   std::vector<FunctionParameter> parameters, int num_outputs,
                                   std::string signature, nb::object function, nb::dict enums)
    : namespace_(std::move(plugin_namespace)),
      name_(std::move(name)),
      parameters_(std::move(parameters)),
      num_outputs_(num_outputs),
      signature_(std::move(signature)),
      enums_(std::move(enums)) {
  int attributes = 0;
  register_.function = Reference(std::move(function));
  for (const FunctionParameter& parameter : parameters_) {
    if (!parameter.is_attribute()) {
      ++num_tensors_;
      continue;
    }
    register_.attributes.push_back(attributes++);
    if (parameter.is_keyword_only) register_.keywords.push_back(parameter.name);
  }
}

void PythonDefinition::set(PerDevice& functions, std::optional<DeviceType> device,
                           PluginFunction function) {
  if (device) {
    functions[slot(*device)] = std::move(function);
    return;
  }
  functions[1] = PluginFunction{Reference(function.function.get()),
                                function.attributes,
                                function.wants_tactic,
                                function.keywords,
                                function.fingerprint,
                                function.communicator,
                                function.capturable};
  functions[0] = std::move(function);
}

void PythonDefinition::set_impl(std::optional<DeviceType> device, PluginFunction function) {
  set(impls_, device, std::move(function));
}

void PythonDefinition::set_aot_impl(std::optional<DeviceType> device, PluginFunction function) {
  set(aot_impls_, device, std::move(function));
}

bool PythonDefinition::has_aot_impl(DeviceType device) const {
  return aot_impls_[slot(device)].has_value() || pointwise_.has_value();
}

bool PythonDefinition::has_impl(DeviceType device) const {
  return impls_[slot(device)].has_value();
}

bool PythonDefinition::communicates() const {
  return std::ranges::any_of(impls_, [](const std::optional<PluginFunction>& impl) {
    return impl.has_value() && impl->communicator >= 0;
  });
}

const PluginFunction& PythonDefinition::impl(DeviceType device) const {
  return *impls_[slot(device)];
}

std::vector<std::string> PythonDefinition::impl_attributes() const {
  std::vector<std::string> names;
  for (const auto& impl : impls_) {
    if (!impl) continue;
    for (int attribute : impl->attributes) {
      const std::string& name = parameters_[static_cast<size_t>(num_tensors_ + attribute)].name;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string PythonDefinition::fingerprint(FunctionMode mode) const {
  std::string all;
  for (const auto& function : mode == FunctionMode::kCompiled ? aot_impls_ : impls_)
    if (function) all += function->fingerprint;
  return all;
}

nb::object PythonDefinition::attribute_value(const FunctionParameter& attribute,
                                             const FieldValue& value) const {
  const auto text = [](std::string_view bytes) { return nb::str(bytes.data(), bytes.size()); };
  const std::string_view bytes(value.data.as<char>(), value.data.size());
  switch (attribute.form) {
    case AttributeForm::kText:
      return text(bytes);
    case AttributeForm::kBytes:
      return nb::bytes(bytes.data(), bytes.size());
    case AttributeForm::kEnum:
      return enums_.get()[attribute.name.c_str()][text(bytes)];
    default:
      break;
  }
  nb::list elements;
  if (attribute.type == PluginFieldType::kCHAR) {
    for (std::string_view each : texts_of(value)) elements.append(text(each));
  } else {
    nb::object array = field_data(value);
    if (attribute.is_bool) array = array.attr("astype")("bool");
    if (attribute.form == AttributeForm::kScalar) return array.attr("item")();
    if (attribute.form == AttributeForm::kArray)
      return value.extents ? array.attr("reshape")(nb::cast(*value.extents)) : array;
    elements = nb::list(array.attr("tolist")());
  }
  if (attribute.form == AttributeForm::kTuple) return nb::tuple(elements);
  return elements;
}

std::vector<nb::object> PythonDefinition::bind_attributes(const PluginFunction& function,
                                                          const FieldValues& attributes) const {
  std::vector<nb::object> values;
  for (int attribute : function.attributes) {
    const FunctionParameter& parameter = parameters_[static_cast<size_t>(num_tensors_ + attribute)];
    const auto found =
        std::find_if(attributes.begin(), attributes.end(),
                     [&](const FieldValue& value) { return value.name == parameter.name; });
    require(found != attributes.end(), "plugin '", id(), "': attribute '", parameter.name,
            "' is missing; the engine may have been built with another definition of the plugin, "
            "whose impl did not take it");
    check_attribute(*found, parameter, str("plugin '", id(), "'"));
    values.push_back(attribute_value(parameter, *found));
  }
  return values;
}

nb::object PythonDefinition::call(const char* name, const PluginFunction& function,
                                  std::string_view layer,
                                  const std::vector<nb::object>& arguments) const {
  const size_t positional = arguments.size() - function.keywords.size();
  nb::list list;
  for (size_t i = 0; i < positional; ++i) list.append(arguments[i]);
  nb::dict named;
  for (size_t i = positional; i < arguments.size(); ++i)
    named[function.keywords[i - positional].c_str()] = arguments[i];
  try {
    return function.function.get()(*list, **named);
  } catch (nb::python_error& error) {
    add_note(error, str("layer '", layer, "': ", name, " function of plugin '", id(), "'"));
    throw;
  }
}

std::vector<nb::object> PythonDefinition::call_register(std::string_view layer,
                                                        const std::vector<nb::object>& inputs,
                                                        const FieldValues& attributes) const {
  std::vector<nb::object> arguments = inputs;
  append(arguments, bind_attributes(register_, attributes));
  nb::object result = call("register", register_, layer, arguments);
  std::vector<nb::object> outputs;
  if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result)) {
    for (nb::handle output : nb::iter(result)) outputs.push_back(nb::borrow(output));
  } else {
    outputs.push_back(std::move(result));
  }
  if (std::cmp_not_equal(outputs.size(), num_outputs_))
    reject(layer, "its register function returned ", outputs.size(), " outputs; its signature `",
           signature_, "` says ", num_outputs_);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!nb::isinstance<TensorDesc>(outputs[o]))
      reject(layer, "its register function returned ", class_name(outputs[o]), " for output ", o,
             "; expected a TensorDesc");
    const auto& desc = nb::cast<TensorDesc&>(outputs[o]);
    if (desc.read_only)
      reject(layer, "its register function returned the input ", desc.input, " itself as output ",
             o, "; return inp.like() for a tensor of its own, or inp.aliased() to work in place");
  }
  return outputs;
}

std::vector<OutputInfo> PythonDefinition::infer(InferContext& context,
                                                const FieldValues& attributes) const {
  nb::gil_scoped_acquire gil;
  const DescribedInputs inputs = describe_inputs(*this, context);
  const std::vector<nb::object> outputs = call_register(context.layer, inputs.objects, attributes);

  std::map<int, Expr> symbols;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!nb::isinstance<SizeTensorDesc>(outputs[o])) continue;
    auto& size = nb::cast<SizeTensorDesc&>(outputs[o]);
    if (size.dtype != DataType::kINT32 && size.dtype != DataType::kINT64)
      reject(context.layer, "size tensor ", o, " has the type ", opwright::name(size.dtype),
             "; expected INT32 or INT64");
    if (symbols.contains(size.placeholder))
      reject(context.layer, "outputs ", size.index, " and ", o, " are the same size tensor");
    size.index = static_cast<int>(o);
    const Expr &opt = size.opt.expr, &upper_bound = size.upper_bound.expr;
    if (has_placeholder(opt) || has_placeholder(upper_bound))
      reject(context.layer, "opt or upper_bound of size tensor ", o,
             " depends on a size tensor of the plugin itself; they bound memory that is needed "
             "before it runs");
    if (upper_bound.is_constant() && upper_bound.constant() < 0)
      reject(context.layer, "the upper bound of size tensor ", o, " is ", upper_bound.constant());
    symbols[size.placeholder] = context.declare_size_tensor(size.index, opt, upper_bound);
  }
  std::vector<OutputInfo> infos;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto& desc = nb::cast<TensorDesc&>(outputs[o]);
    OutputInfo info;
    info.dtype = desc.dtype;
    info.aliased_input = aliased_input(desc);
    for (size_t i = 0; i < desc.shape_expr->extents.size(); ++i) {
      const Expr extent = replace_symbols(desc.shape_expr->extents[i].expr, symbols);
      if (extent.is_constant() && extent.constant() < 0)
        reject(context.layer, "extent ", i, " of output ", o, " is ", extent.constant());
      if (has_placeholder(extent))
        reject(context.layer, "extent ", i, " of output ", o,
               " depends on a size tensor that is not among the outputs; return it too");
      info.dims.push_back(extent);
    }
    if (info.aliased_input >= 0) {
      const TensorInfo& input = *context.inputs[static_cast<size_t>(info.aliased_input)];
      if (input.dtype != info.dtype || input.dims != info.dims)
        reject(context.layer, "output ", o, " is aliased to input ", info.aliased_input, " (",
               opwright::name(input.dtype), " ", opwright::str(input.dims),
               "), so it must have its type and shape, but is ", opwright::name(info.dtype), " ",
               opwright::str(info.dims));
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

nb::tuple PythonDefinition::describe_outputs(std::string_view layer, const DescribedInputs& inputs,
                                             std::span<const PortDesc> outputs,
                                             const FieldValues& attributes) const {
  const std::vector<nb::object> inferred = call_register(layer, inputs.objects, attributes);
  std::map<int, Expr> sizes;  // upper bounds of size tensors, as the kernel gets them
  for (const nb::object& output : inferred) {
    if (!nb::isinstance<SizeTensorDesc>(output)) continue;
    const auto& size = nb::cast<SizeTensorDesc&>(output);
    sizes[size.placeholder] = size.upper_bound.expr;
  }
  nb::list list;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto& desc = nb::cast<TensorDesc&>(inferred[o]);
    check_again(layer, static_cast<int>(o), exprs(desc.shape_expr->extents), outputs[o].opt,
                inputs.opt);
    SymShape extents;
    for (const ShapeExpr& extent : desc.shape_expr->extents)
      extents.push_back(replace_symbols(extent.expr, sizes));
    TensorDesc output = describe_port(outputs[o], -1, extents);
    output.aliased = desc.aliased;
    list.append(output);
  }
  return nb::tuple(list);
}

/// Throws Error unless `register` returns the same extents in the build as when the layer was made.
void PythonDefinition::check_again(std::string_view layer, int output, const SymShape& extents,
                                   const Shape& expected, std::span<const int64_t> symbols) const {
  bool agrees = std::cmp_equal(extents.size(), expected.rank());
  for (int axis = 0; agrees && axis < expected.rank(); ++axis) {
    const Expr& extent = extents[static_cast<size_t>(axis)];
    // The value of a size tensor is not known here.
    agrees = has_symbol_from(extent, static_cast<int>(symbols.size())) ||
             extent.evaluate(symbols) == expected[axis];
  }
  if (!agrees)
    reject(layer, "its register function described output ", output, " as ", opwright::str(extents),
           " this time, but the network was made with a shape that is ", expected,
           " here; it must depend on nothing but the descriptors and the attributes");
}

std::vector<Candidate> PythonDefinition::autotune(const CandidateQuery& query,
                                                  const FieldValues& attributes) const {
  nb::gil_scoped_acquire gil;
  const DescribedInputs inputs = describe_inputs(*this, query.inputs);
  const nb::tuple outputs = describe_outputs(query.layer, inputs, query.outputs, attributes);
  std::vector<nb::object> arguments = inputs.objects;
  append(arguments, bind_attributes(*autotune_, attributes));
  arguments.push_back(outputs);
  const BuildScope scope(query.device);
  nb::object result = call("autotune", *autotune_, query.layer, arguments);
  std::vector<AutoTuneCombination> combinations;
  if (nb::isinstance<AutoTuneCombination>(result)) {
    combinations.push_back(nb::cast<AutoTuneCombination&>(result));
  } else {
    const bool is_list = nb::isinstance<nb::list>(result) || nb::isinstance<nb::tuple>(result);
    if (!is_list)
      reject(query.layer, "its autotune function returned ", class_name(result),
             "; expected a list of AutoTuneCombination");
    for (nb::handle combination : nb::iter(result)) {
      if (!nb::isinstance<AutoTuneCombination>(combination))
        reject(query.layer, "its autotune function returned a list with ", class_name(combination),
               "; expected AutoTuneCombination");
      combinations.push_back(nb::cast<AutoTuneCombination&>(combination));
    }
  }
  return expand(combinations, query, id());
}

std::unique_ptr<Kernel> PythonDefinition::attach(const KernelArgs& args,
                                                 const FieldValues& attributes,
                                                 const FunctionOutputs& outputs) const {
  nb::gil_scoped_acquire gil;
  const DeviceType device = args.device != nullptr ? args.device->type() : DeviceType::kCPU;
  const PluginFunction& function = impl(device);
  return attach_impl(id(), function, bind_attributes(function, attributes), args, outputs);
}

Attributes PythonDefinition::pointwise(std::string_view layer,
                                       const FieldValues& attributes) const {
  nb::gil_scoped_acquire gil;
  if (!pointwise_) return {};
  const nb::object traced =
      call("pointwise_impl", *pointwise_, layer, bind_attributes(*pointwise_, attributes));
  return {{"code", nb::cast<Ints>(traced[0])},
          {"immediates", nb::cast<Floats>(traced[1])},
          {"results", nb::cast<Ints>(traced[2])}};
}

KernelCode PythonDefinition::compile(const KernelArgs& args, const FieldValues& attributes) const {
  nb::gil_scoped_acquire gil;
  const DescribedInputs inputs = describe_inputs(*this, args.inputs);
  const nb::tuple outputs = describe_outputs(args.layer, inputs, args.outputs, attributes);
  std::vector<nb::object> arguments = inputs.objects;
  const bool on_cpu = args.device == nullptr || args.device->type() == DeviceType::kCPU;
  const std::optional<PluginFunction>& found = aot_impls_[on_cpu ? 0 : 1];
  if (!found) reject(args.layer, "it has no aot_impl function for the ", on_cpu ? "CPU" : "GPU");
  const PluginFunction& aot_impl = *found;
  append(arguments, bind_attributes(aot_impl, attributes));
  arguments.push_back(outputs);
  arguments.push_back(nb::int_(args.candidate->tactic));
  const BuildScope scope(args.device);
  nb::object result = call("aot_impl", aot_impl, args.layer, arguments);

  constexpr const char* kExpected =
      "its aot_impl function must return (kernel name, code, KernelLaunchParams, SymIntExprs)";
  if (!nb::isinstance<nb::tuple>(result) || nb::len(result) != 4)
    reject(args.layer, kExpected, "; it returned ", class_name(result),
           nb::isinstance<nb::tuple>(result) ? str(" of ", nb::len(result)) : "");
  if (!is_text(result[0]) || !is_text(result[1]))
    reject(args.layer, kExpected, ", name and code as str or bytes; they are ",
           class_name(result[0]), " and ", class_name(result[1]));
  if (!nb::isinstance<LaunchParams>(result[2]))
    reject(args.layer, kExpected, "; its third value is ", class_name(result[2]));
  const bool has_arguments = nb::isinstance<SymExprs>(result[3]);
  if (!has_arguments && !nb::isinstance<nb::tuple>(result[3]) &&
      !nb::isinstance<nb::list>(result[3]))
    reject(args.layer, kExpected, "; its fourth value is ", class_name(result[3]));

  KernelCode code;
  code.name = to_text(result[0]);
  const std::string bytes = to_text(result[1]);
  code.object.name = id() + " " + code.name;
  code.object.bytes = Blob::copy(bytes.data(), bytes.size());
  nb::object source = nb::borrow(result[1]);
  code.object.host = on_cpu;
  code.object.target = nb::hasattr(source, "target") ? nb::cast<std::string>(source.attr("target"))
                                                     : std::string(build_architecture());
  const std::string fault = code_fault(code.object, args.device);
  if (!fault.empty())
    reject(args.layer, "the code of kernel '", code.name, "' is ", fault,
           ", but the engine is built for the ", on_cpu ? "CPU" : "GPU", " (", build_architecture(),
           "); ",
           on_cpu ? "make it with opwright.aot.cpp or opwright.aot.numba"
                  : "make it with opwright.aot.cuda or opwright.aot.triton",
           ", and define both with aot_impl(id, device=\"cpu\") and aot_impl(id, "
           "device=\"cuda\")");
  const nb::object sizes = nb::borrow(result[2]);
  const auto& launch = nb::cast<LaunchParams&>(sizes);
  std::copy(std::begin(launch.grid), std::end(launch.grid), code.grid);
  std::copy(std::begin(launch.block), std::end(launch.block), code.block);
  code.shared_memory = launch.shared_memory;
  nb::object extra = has_arguments ? nb::borrow(result[3])
                                   : nb::module_::import_("opwright._core")
                                         .attr("_plugin")
                                         .attr("SymIntExprs")
                                         .attr("from_tuple")(result[3]);
  const auto& list = nb::cast<SymExprs&>(extra).arguments;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i]) reject(args.layer, "extra argument ", i, " of its aot_impl was never set");
    code.arguments.push_back(*list[i]);
  }
  if (nb::hasattr(source, "parameters") && !source.attr("parameters").is_none())
    check_parameters(args, source.attr("parameters"), extra);
  if (nb::hasattr(source, "scratch")) {
    const Expr cells = code.grid[0] * code.grid[1] * code.grid[2];
    for (nb::handle bytes_per_cell : nb::iter(source.attr("scratch")))
      code.scratch.push_back(cells * Expr(nb::cast<int64_t>(bytes_per_cell)));
  }
  // A kernel may take more arguments than inputs, extra arguments and outputs, or another order.
  if (nb::hasattr(source, "added") && !source.attr("added").is_none())
    for (const auto& argument : nb::cast<SymExprs&>(source.attr("added")).arguments)
      code.arguments.push_back(argument.value());
  if (nb::hasattr(source, "begins_early"))
    code.begins_early = nb::cast<bool>(source.attr("begins_early"));
  if (nb::hasattr(source, "order")) code.order = nb::cast<std::vector<int>>(source.attr("order"));
  check_extents(args.layer, code);
  code.shape_inputs = inputs.shape_inputs;
  return code;
}

void PythonDefinition::check_extents(std::string_view layer, const KernelCode& code) const {
  std::vector<Expr> all(std::begin(code.grid), std::end(code.grid));
  all.insert(all.end(), std::begin(code.block), std::end(code.block));
  all.push_back(code.shared_memory);
  for (const KernelArgument& argument : code.arguments) all.push_back(argument.value);
  for (const Expr& expr : all)
    if (has_open_extent(expr))
      reject(layer,
             "its aot_impl function returned a kernel for extents of "
             "opwright.aot.open_extents(), which no network has; save that kernel, and give "
             "opwright.aot.load() the descriptors");
}

void PythonDefinition::check_parameters(const KernelArgs& args, nb::handle parameters,
                                        nb::handle extra) const {
  nb::list classes;
  for (nb::handle argument : nb::iter(extra)) classes.append(argument.type());
  const nb::object given =
      nb::make_tuple(args.inputs.size(), nb::tuple(classes), args.outputs.size());
  if (given.equal(parameters)) return;
  const auto describe = [](nb::handle kernel) {
    std::string arguments;
    for (nb::handle type : nb::iter(kernel[1]))
      arguments += (arguments.empty() ? "" : ", ") + nb::cast<std::string>(type.attr("__name__"));
    return str(nb::cast<int>(kernel[0]), " inputs, the extra arguments (", arguments, ") and ",
               nb::cast<int>(kernel[2]), " outputs");
  };
  reject(args.layer, "its aot_impl returned a kernel that was compiled for ", describe(parameters),
         ", but the kernel gets ", describe(given));
}

}  // namespace opwright::python
