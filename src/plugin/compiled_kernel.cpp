#include "plugin/compiled_kernel.h"

#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/parallel.h"
#include "network/operator_registry.h"
#include "plugin/host_code.h"
#include "symbolic/expr_program.h"

namespace opwright {

namespace {

/// A kernel's launch as one expression program over the extents of the inputs.
struct Launch {
  std::string name;  ///< the exported symbol
  std::vector<ExprInstruction> program;
  std::array<int32_t, 3> grid{}, block{};  ///< instructions
  int32_t shared_memory = 0;
  struct Argument {
    ArgumentType type = ArgumentType::kINT32;
    int32_t value = -1;  ///< instruction; -1 for floating types
    double constant = 0;
  };
  std::vector<Argument> arguments;
};

bool is_floating(ArgumentType type) {
  return type == ArgumentType::kFLOAT32 || type == ArgumentType::kFLOAT64;
}

Launch make_launch(const KernelCode& code) {
  Launch launch;
  launch.name = code.name;
  ExprProgramBuilder builder;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = builder.add(code.grid[i]);
    launch.block[i] = builder.add(code.block[i]);
  }
  launch.shared_memory = builder.add(code.shared_memory);
  for (const KernelArgument& argument : code.arguments)
    launch.arguments.push_back({argument.type,
                                is_floating(argument.type) ? -1 : builder.add(argument.value),
                                argument.constant});
  launch.program.assign(builder.instructions().begin(), builder.instructions().end());
  return launch;
}

Attributes encode(const Launch& launch) {
  Ints program, types, values;
  Floats constants;
  for (const ExprInstruction& i : launch.program)
    program.insert(program.end(), {static_cast<int64_t>(i.op), i.a, i.b, i.c, i.value});
  for (const Launch::Argument& argument : launch.arguments) {
    types.push_back(static_cast<int64_t>(argument.type));
    values.push_back(argument.value);
    constants.push_back(argument.constant);
  }
  return {{"symbol", launch.name},
          {"program", program},
          {"grid", Ints(launch.grid.begin(), launch.grid.end())},
          {"block", Ints(launch.block.begin(), launch.block.end())},
          {"shared_memory", Ints{launch.shared_memory}},
          {"argument_types", types},
          {"argument_values", values},
          {"argument_constants", constants}};
}

/// The launch from untrusted attributes; symbols are checked when the number of extents is known.
Launch decode(const Attributes& attributes, std::string_view layer) {
  struct Stored {
    std::string symbol;
    Ints program, grid, block, shared_memory, types, values;
    Floats constants;
    void visit(AttributeReader& v) {
      v("symbol", symbol);
      v("program", program);
      v("grid", grid);
      v("block", block);
      v("shared_memory", shared_memory);
      v("argument_types", types);
      v("argument_values", values);
      v("argument_constants", constants);
    }
  } stored;
  AttributeReader reader("CompiledKernel", attributes);
  stored.visit(reader);

  const auto check = [&](bool condition, const char* what) {
    require(condition, "layer '", layer, "': the stored launch of a compiled kernel has ", what);
  };
  constexpr size_t kFields = 5;  // op, a, b, c, value
  check(stored.program.size() % kFields == 0, "an incomplete expression");
  const size_t size = stored.program.size() / kFields;
  const auto to_index = [&](int64_t value) {
    check(value >= 0 && std::cmp_less(value, size), "an expression index that is out of range");
    return static_cast<int32_t>(value);
  };

  Launch launch;
  launch.name = stored.symbol;
  for (size_t i = 0; i < size; ++i) {
    const int64_t* field = stored.program.data() + i * kFields;
    check(field[0] >= 0 && field[0] <= static_cast<int64_t>(ExprOp::kSelect),
          "an unknown operation");
    launch.program.push_back({static_cast<ExprOp>(field[0]), to_index(field[1]), to_index(field[2]),
                              to_index(field[3]), field[4]});
  }
  check(stored.grid.size() == 3 && stored.block.size() == 3 && stored.shared_memory.size() == 1,
        "a grid or block that is not three numbers");
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = to_index(stored.grid[i]);
    launch.block[i] = to_index(stored.block[i]);
  }
  launch.shared_memory = to_index(stored.shared_memory[0]);
  check(
      stored.types.size() == stored.values.size() && stored.types.size() == stored.constants.size(),
      "argument lists of different lengths");
  for (size_t i = 0; i < stored.types.size(); ++i) {
    check(stored.types[i] >= 0 && stored.types[i] <= static_cast<int64_t>(ArgumentType::kINT16),
          "an unknown argument type");
    const auto type = static_cast<ArgumentType>(stored.types[i]);
    launch.arguments.push_back(
        {type, is_floating(type) ? -1 : to_index(stored.values[i]), stored.constants[i]});
  }
  return launch;
}

/// The function's own calling convention: args[i] points to argument i.
using HostFunction = void(void** args, int64_t x, int64_t y, int64_t z);

class HostKernel final : public Kernel {
 public:
  HostKernel(const Launch& launch, std::shared_ptr<const HostCode> code, const KernelArgs& args)
      : layer_(args.layer),
        launch_(launch),
        code_(std::move(code)),
        function_(reinterpret_cast<HostFunction*>(code_->symbol(launch_.name))),
        num_inputs_(args.inputs.size()),
        num_outputs_(args.outputs.size()),
        values_(launch_.program.size()),
        scalars_(launch_.arguments.size()),
        pointers_(num_inputs_ + num_outputs_) {
    size_t extents = 0;
    for (const PortDesc& input : args.inputs)
      extents += input.present ? static_cast<size_t>(input.opt.rank()) : 0;
    symbols_.resize(extents);
    validate(launch_.program, static_cast<int>(extents));
    for (size_t i = 0; i < num_inputs_; ++i) args_.push_back(&pointers_[i]);
    for (Scalar& scalar : scalars_) args_.push_back(&scalar);
    for (size_t o = 0; o < num_outputs_; ++o) args_.push_back(&pointers_[num_inputs_ + o]);
  }

  std::string description() const override { return "compiled:" + launch_.name; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    size_t next = 0;
    for (const Shape& input : inputs)
      for (const int64_t extent : input)
        if (next < symbols_.size()) symbols_[next++] = extent;
    try {
      evaluate(launch_.program, symbols_, values_);
    } catch (const Error& error) {
      fail("layer '", layer_, "': launch parameters of compiled kernel '", launch_.name,
           "': ", error.what());
    }
    cells_ = 1;
    for (int i = 0; i < 3; ++i) {
      grid_[i] = values_[launch_.grid[i]];
      require(grid_[i] >= 0 && !__builtin_mul_overflow(cells_, grid_[i], &cells_), "layer '",
              layer_, "': the grid of compiled kernel '", launch_.name, "' is ",
              values_[launch_.grid[0]], " x ", values_[launch_.grid[1]], " x ",
              values_[launch_.grid[2]]);
    }
    for (size_t i = 0; i < scalars_.size(); ++i) set_scalar(i);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    for (size_t i = 0; i < num_inputs_; ++i) pointers_[i] = const_cast<void*>(inputs[i]);
    for (size_t o = 0; o < num_outputs_; ++o) pointers_[num_inputs_ + o] = outputs[o];
    if (cells_ == 1) {
      function_(args_.data(), 0, 0, 0);
      return;
    }
    parallel_for(cells_, 1, [this](int64_t begin, int64_t end) {
      int64_t x = begin % grid_[0];
      int64_t y = begin / grid_[0] % grid_[1];
      int64_t z = begin / grid_[0] / grid_[1];
      for (int64_t cell = begin; cell < end; ++cell) {
        function_(args_.data(), x, y, z);
        if (++x < grid_[0]) continue;
        x = 0;
        if (++y < grid_[1]) continue;
        y = 0;
        ++z;
      }
    });
  }

 private:
  union Scalar {
    int8_t int8;
    int16_t int16;
    int32_t int32;
    int64_t int64 = 0;
    float float32;
    double float64;
  };

  template <class T>
  T narrow(size_t i, int64_t value) const {
    require(std::in_range<T>(value), "layer '", layer_, "': extra argument ", i,
            " of compiled kernel '", launch_.name, "' is ", value, ", which does not fit ",
            8 * sizeof(T), " bits");
    return static_cast<T>(value);
  }

  void set_scalar(size_t i) {
    const Launch::Argument& argument = launch_.arguments[i];
    const int64_t value = argument.value >= 0 ? values_[argument.value] : 0;
    switch (argument.type) {
      case ArgumentType::kINT8:
        scalars_[i].int8 = narrow<int8_t>(i, value);
        break;
      case ArgumentType::kINT16:
        scalars_[i].int16 = narrow<int16_t>(i, value);
        break;
      case ArgumentType::kINT32:
        scalars_[i].int32 = narrow<int32_t>(i, value);
        break;
      case ArgumentType::kINT64:
        scalars_[i].int64 = value;
        break;
      case ArgumentType::kFLOAT32:
        scalars_[i].float32 = static_cast<float>(argument.constant);
        break;
      case ArgumentType::kFLOAT64:
        scalars_[i].float64 = argument.constant;
        break;
    }
  }

  const std::string layer_;
  const Launch launch_;
  const std::shared_ptr<const HostCode> code_;
  HostFunction* const function_;
  const size_t num_inputs_, num_outputs_;
  std::vector<int64_t> symbols_, values_;
  std::vector<Scalar> scalars_;
  std::vector<void*> pointers_;
  std::vector<void*> args_;
  std::array<int64_t, 3> grid_{};
  int64_t cells_ = 0;
};

/// The expression with each symbol replaced.
Expr substitute(const Expr& expr, std::span<const Expr> symbols, std::string_view layer) {
  switch (expr.op()) {
    case ExprOp::kConstant:
      return expr;
    case ExprOp::kSymbol: {
      const int id = expr.symbol_id();
      require(std::cmp_less(id, symbols.size()), "layer '", layer,
              "': an output of a compiled kernel depends on input extent ", id,
              ", but the inputs have ", symbols.size());
      return symbols[static_cast<size_t>(id)];
    }
    case ExprOp::kSelect:
      return Expr::select(substitute(expr.operand(0), symbols, layer),
                          substitute(expr.operand(1), symbols, layer),
                          substitute(expr.operand(2), symbols, layer));
    default: {
      Expr result = substitute(expr.operand(0), symbols, layer);
      for (int i = 1; i < expr.arity(); ++i)
        result = Expr::make(expr.op(), result, substitute(expr.operand(i), symbols, layer));
      return result;
    }
  }
}

class CompiledKernel final : public Operator {
 public:
  CompiledKernel(Launch launch, CodeObject object, std::vector<Candidate> candidate,
                 std::vector<OutputInfo> outputs, std::string timing_key, bool permitted)
      : launch_(std::move(launch)),
        object_(std::move(object)),
        candidate_(std::move(candidate)),
        outputs_(std::move(outputs)),
        timing_key_(std::move(timing_key)),
        permitted_(permitted) {}

  std::string_view kind() const override { return "CompiledKernel"; }
  bool is_pure() const override { return false; }
  Attributes attributes() const override { return encode(launch_); }
  std::vector<CodeObject> code() const override { return {object_}; }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    require(!outputs_.empty(), "layer '", context.layer, "': compiled kernel '", launch_.name,
            "' cannot be added to a network by itself; add the plugin that it was compiled from");
    std::vector<Expr> extents;
    for (const TensorInfo* input : context.inputs)
      if (input != nullptr) extents.insert(extents.end(), input->dims.begin(), input->dims.end());
    std::vector<OutputInfo> outputs = outputs_;
    for (OutputInfo& output : outputs)
      for (Expr& extent : output.dims) extent = substitute(extent, extents, context.layer);
    return outputs;
  }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    require(!candidate_.empty(), "layer '", query.layer, "': compiled kernel '", launch_.name,
            "' comes from an engine, where its types and formats are chosen already");
    return candidate_;
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    if (args.device != nullptr && args.device->type() != DeviceType::kCPU)
      return args.device->make_kernel(*this, args);
    // What a plan says about its code does not decide whether that code may run here.
    require(permitted_ && object_.host, "layer '", args.layer, "': compiled kernel '", object_.name,
            "' may not run on the host: it is not host code, or loading it was not permitted");
    try {
      return std::make_unique<HostKernel>(launch_, HostCode::load(object_), args);
    } catch (const Error& error) {
      throw Error(error.code(), str("layer '", args.layer, "': ", error.what()));
    }
  }

  std::optional<std::string> timing_key() const override {
    if (timing_key_.empty()) return std::nullopt;
    return timing_key_;
  }

 private:
  const Launch launch_;
  const CodeObject object_;
  const std::vector<Candidate> candidate_;  // empty when it comes from a plan
  const std::vector<OutputInfo> outputs_;
  const std::string timing_key_;
  const bool permitted_;
};

}  // namespace

OperatorPtr make_compiled_kernel(KernelCode code, Candidate candidate,
                                 std::vector<OutputInfo> outputs, std::string timing_key) {
  require(!code.name.empty(), "a compiled kernel has no name");
  require(!code.object.bytes.empty(), "compiled kernel '", code.name, "' has no code");
  if (code.object.name.empty()) code.object.name = code.name;
  trust_code(code.object.bytes);
  Launch launch = make_launch(code);
  return std::make_shared<CompiledKernel>(std::move(launch), std::move(code.object),
                                          std::vector<Candidate>{std::move(candidate)},
                                          std::move(outputs), std::move(timing_key), true);
}

OperatorPtr load_compiled_kernel(const Attributes& attributes, const OperatorLoadContext& context) {
  require(context.code.size() == 1, "layer '", context.layer, "': a compiled kernel has ",
          context.code.size(), " code objects, expected 1");
  const LoadedCode& code = context.code[0];
  require(!code.object.host || code.permitted, "layer '", context.layer, "': compiled kernel '",
          code.object.name,
          "' is code for the host, which the engine may not run without permission; allow host "
          "code when loading if you trust the file");
  return std::make_shared<CompiledKernel>(decode(attributes, context.layer), code.object,
                                          std::vector<Candidate>{}, std::vector<OutputInfo>{},
                                          std::string(), code.permitted);
}

}  // namespace opwright
