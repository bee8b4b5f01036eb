#include "control/body.h"

#include <algorithm>

#include "backend/backend.h"
#include "base/error.h"
#include "compile/compile.h"
#include "compile/enclosing_build.h"
#include "runtime/enclosing_engine.h"

namespace opwright {
namespace {

// Limits the depth of nested bodies: a file could nest them without end.
constexpr int kMaxDepth = 16;
thread_local int depth = 0;

/// Exists while a body is read, whose layers may have bodies.
class Nesting {
 public:
  Nesting() {
    require(depth < kMaxDepth, "its body is nested in more than ", kMaxDepth, " loops");
    ++depth;
  }
  ~Nesting() { --depth; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
};

}  // namespace

void write_zeros(const Device& device, std::byte* to, size_t bytes, Queue queue) {
  static constexpr std::byte zeros[1 << 14]{};
  for (size_t done = 0; done < bytes; done += sizeof zeros)
    device.copy(to + done, zeros, std::min(bytes - done, sizeof zeros), queue);
}

std::string state_input(int index) { return str("state ", index); }
std::string capture_input(int index) { return str("captured ", index); }

void BodyExtents::add(const std::string& name, const TensorInfo& outside) {
  const Tensor* inner = body_.find_tensor(name);
  if (inner == nullptr) return;
  require(inner->dtype() == outside.dtype && inner->rank() == static_cast<int>(outside.dims.size()),
          "what its body knows as '", name, "' is ", opwright::name(outside.dtype), " of rank ",
          outside.dims.size(), "; expected ", opwright::name(inner->dtype()), " of rank ",
          inner->rank());
  inputs_[name] = outside.dims;
}

void BodyExtents::check() {
  for (const auto& [name, dims] : inputs_)
    require((*this)(body_.find_tensor(name)->dims()) == dims, "what its body knows as '", name,
            "' has shape ", dims, ", which is not what the body was made for");
}

SymShape BodyExtents::operator()(const SymShape& dims) {
  SymShape result;
  for (const Expr& extent : dims) result.push_back((*this)(extent));
  return result;
}

Expr BodyExtents::operator()(const Expr& extent) {
  if (extent.is_constant()) return extent;
  auto& known = done_[extent.hash()];
  for (const auto& [from, to] : known)
    if (from == extent) return to;
  constexpr int kMaxExprDepth = 1000;
  require(depth_ < kMaxExprDepth, "its body computes an extent by more than ", kMaxExprDepth,
          " operations one on the other");
  ++depth_;
  Expr result = make(extent);
  --depth_;
  done_[extent.hash()].emplace_back(extent, result);
  return result;
}

Expr BodyExtents::make(const Expr& e) {
  if (e.op() == ExprOp::kSymbol) {
    const Symbol& symbol = body_.symbols()[e.symbol_id()];
    const auto found = inputs_.find(symbol.tensor);
    require(symbol.kind == Symbol::Kind::kInputExtent && found != inputs_.end() &&
                symbol.index < static_cast<int>(found->second.size()),
            "its body computes an extent ('", symbol.name,
            "') that depends on data; expected one that follows from the shapes of its inputs");
    return found->second[static_cast<size_t>(symbol.index)];
  }
  if (e.op() == ExprOp::kSelect)
    return Expr::select((*this)(e.operand(0)), (*this)(e.operand(1)), (*this)(e.operand(2)));
  Expr result = (*this)(e.operand(0));
  for (int i = 1; i < e.arity(); ++i) result = Expr::make(e.op(), result, (*this)(e.operand(i)));
  return result;
}

Blob compile_body(const Network& body, std::span<const std::pair<std::string, int>> inputs,
                  const KernelArgs& args) {
  BuilderConfig config(
      DeviceId{std::string(args.device->backend().name()), args.device->ordinal()});
  config.hardware_compatibility = args.hardware_compatibility;
  config.timing = false;
  config.max_aux_streams = 0;
  if (const EnclosingBuild* build = EnclosingBuild::current()) {
    config.enclosing = build;
    config.limits = build->config().limits;
    config.limits.build_memory = std::max<uint64_t>(build->budget().memory_left(), 1);
    config.interrupt_check = build->config().interrupt_check;
    config.log = build->config().log;
  }
  auto profile = std::make_shared<OptimizationProfile>();
  for (const auto& [name, index] : inputs) {
    const PortDesc& port = args.inputs[static_cast<size_t>(index)];
    if (body.find_tensor(name) != nullptr) profile->set_shape(name, port.min, port.opt, port.max);
  }
  config.profiles.push_back(std::move(profile));
  try {
    const std::vector<Blob> pieces = serialize(compile(body, config));
    size_t size = 0;
    for (const Blob& piece : pieces) size += piece.size();
    return Blob::make(size, [&](void* memory) {
      auto* to = static_cast<std::byte*>(memory);
      for (const Blob& piece : pieces) to = std::copy_n(piece.data(), piece.size(), to);
    });
  } catch (const BuildEndError&) {
    throw;
  } catch (const Error& error) {
    fail_with(error.code(), "layer '", args.layer,
              "': its body cannot be compiled: ", error.what());
  }
}

std::shared_ptr<const Engine> load_body(const Blob& file, const Device& device,
                                        std::optional<std::span<const LoadedCode>> code) {
  const Nesting nesting;
  Plan plan = deserialize(file);
  require(plan.backend == device.backend().name() && plan.schedules.size() == 1,
          "its body must be for the device of the layer, with one profile");
  const auto is_permitted = [&](const CodeObject& object) {
    return !object.host &&
           (!code || std::any_of(code->begin(), code->end(), [&](const LoadedCode& loaded) {
             return loaded.permitted && loaded.object == object;
           }));
  };
  require(
      plan.requirements.empty() && std::all_of(plan.code.begin(), plan.code.end(), is_permitted),
      "its body has plugins, or code that the layer does not have");
  for (const auto* ports : {&plan.inputs, &plan.outputs})
    for (const PlanPort& port : *ports)
      require(port.type.format == TensorFormat::kLINEAR && !port.is_shape_input &&
                  port.aliased_input < 0 && bits(port.type.dtype) >= 8,
              "'", port.name,
              "' of its body decides shapes, is not LINEAR, lies in an input, or has elements of "
              "less than a byte");
  LoadOptions options;
  options.allow_device_code = true;
  options.device_ordinal = device.is_host() ? -1 : device.ordinal();
  // The engine around the body limits the time of a run.
  if (!code) {
    if (const EnclosingBuild* build = EnclosingBuild::current()) {
      options.limits = build->config().limits;
      options.log = build->config().log;
    }
  } else if (EnclosingEngine* engine = EnclosingEngine::current()) {
    options.enclosing = engine;
    options.limits = engine->limits();
    options.log = engine->log();
  }
  options.limits.run_seconds = 0;
  options.is_body = true;
  return Engine::load(std::move(plan), options);
}

bool has_collective(const std::vector<const Network*>& bodies) {
  for (const Network* body : bodies)
    for (int i = 0; i < body->num_layers(); ++i)
      if (body->layer(i)->op()->communicates()) return true;
  return false;
}

std::vector<CodeObject> code_of(const Engine& body) { return body.plan().code; }

void check_body_device(const Engine& body, const KernelArgs& args) {
  require(args.device == nullptr || args.device == &body.device(),
          "its body is for another device than the layer");
}

const Device& body_device(const OperatorLoadContext& context) {
  return context.device != nullptr ? *context.device : get_device(DeviceType::kCPU);
}

std::vector<int> find_inputs(const Engine& body, std::span<const std::string> names) {
  std::vector<int> found;
  std::vector<bool> is_found(body.plan().inputs.size());
  for (const std::string& name : names) {
    const Port* port = body.find_port(name);
    found.push_back(port != nullptr && port->is_input ? port->index : -1);
    if (found.back() >= 0) is_found[static_cast<size_t>(found.back())] = true;
  }
  require(std::find(is_found.begin(), is_found.end(), false) == is_found.end(),
          "its body has an input that the layer does not have");
  return found;
}

}  // namespace opwright
