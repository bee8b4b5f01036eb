#include "plugin/kernel_launch.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "network/operator_registry.h"

namespace opwright {

std::vector<ExprInstruction> KernelLaunch::part(int32_t instruction) const {
  const auto last = static_cast<size_t>(instruction);
  std::vector<int32_t> place(last + 1, -1);  // 0: it is needed
  place[last] = 0;
  const auto each_operand = [](const ExprInstruction& i, const auto& visit) {
    if (i.op == ExprOp::kConstant || i.op == ExprOp::kSymbol) return;
    visit(i.a), visit(i.b);
    if (i.op == ExprOp::kSelect) visit(i.c);
  };
  for (size_t number = last + 1; number-- > 0;)
    if (place[number] == 0)
      each_operand(program[number], [&](int32_t operand) { place[operand] = 0; });
  std::vector<ExprInstruction> made;
  for (size_t number = 0; number <= last; ++number) {
    if (place[number] < 0) continue;
    place[number] = static_cast<int32_t>(made.size());
    ExprInstruction i = program[number];
    ExprInstruction moved{i.op, 0, 0, 0, i.value};
    if (i.op != ExprOp::kConstant && i.op != ExprOp::kSymbol) {
      moved.a = place[i.a], moved.b = place[i.b];
      if (i.op == ExprOp::kSelect) moved.c = place[i.c];
    }
    made.push_back(moved);
  }
  return made;
}

int64_t KernelLaunch::evaluate(int32_t instruction, std::span<const int64_t> symbols) const {
  const std::vector<ExprInstruction> needed = part(instruction);
  std::vector<int64_t> values(needed.size());
  opwright::evaluate(needed, symbols, values);
  return values.back();
}

Expr KernelLaunch::expression(int32_t instruction) const {
  // Front to back, so that what is used often is made once, however deep it lies.
  std::vector<Expr> made;
  for (const ExprInstruction& i : part(instruction)) {
    if (i.op == ExprOp::kConstant)
      made.emplace_back(i.value);
    else if (i.op == ExprOp::kSymbol)
      made.push_back(Expr::symbol(static_cast<int>(i.value)));
    else if (i.op == ExprOp::kSelect)
      made.push_back(Expr::select(made[i.a], made[i.b], made[i.c]));
    else
      made.push_back(Expr::make(i.op, made[i.a], made[i.b]));
  }
  return made.back();
}

void require_checks(const KernelLaunch& launch, std::span<const int64_t> values,
                    std::string_view layer, std::string_view kernel) {
  for (const KernelLaunch::Check& check : launch.checks)
    require(values[static_cast<size_t>(check.condition)] != 0, "layer '", layer,
            "': compiled kernel '", kernel, "': ", check.message);
}

KernelLaunch make_launch(const KernelCode& code) {
  KernelLaunch launch;
  launch.symbol = code.name;
  launch.layer_kind = code.layer_kind;
  ExprProgramBuilder builder;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = builder.add(code.grid[i]);
    launch.block[i] = builder.add(code.block[i]);
  }
  launch.shared_memory = builder.add(code.shared_memory);
  for (const KernelArgument& argument : code.arguments)
    launch.arguments.push_back({argument.type, builder.add(argument.value), argument.constant});
  for (const Expr& bytes : code.scratch) launch.scratch.push_back(builder.add(bytes));
  launch.shape_inputs.assign(code.shape_inputs.begin(), code.shape_inputs.end());
  for (const KernelCheck& check : code.checks)
    launch.checks.push_back({builder.add(check.condition), check.message});
  launch.program.assign(builder.instructions().begin(), builder.instructions().end());
  return launch;
}

Attributes encode(const KernelLaunch& launch) {
  Ints program, types, values, conditions;
  Floats constants;
  std::string messages;  // a line each
  for (const ExprInstruction& i : launch.program)
    program.insert(program.end(), {static_cast<int64_t>(i.op), i.a, i.b, i.c, i.value});
  for (const KernelLaunch::Argument& argument : launch.arguments) {
    types.push_back(static_cast<int64_t>(argument.type));
    values.push_back(argument.value);
    constants.push_back(argument.constant);
  }
  for (const KernelLaunch::Check& check : launch.checks) {
    conditions.push_back(check.condition);
    messages += check.message + "\n";
  }
  return {{"symbol", launch.symbol},
          {"layer_kind", launch.layer_kind},
          {"program", program},
          {"grid", Ints(launch.grid.begin(), launch.grid.end())},
          {"block", Ints(launch.block.begin(), launch.block.end())},
          {"shared_memory", Ints{launch.shared_memory}},
          {"argument_types", types},
          {"argument_values", values},
          {"argument_constants", constants},
          {"scratch", Ints(launch.scratch.begin(), launch.scratch.end())},
          {"shape_inputs", Ints(launch.shape_inputs.begin(), launch.shape_inputs.end())},
          {"check_conditions", conditions},
          {"check_messages", messages}};
}

KernelLaunch decode_launch(const Attributes& attributes, std::string_view layer) {
  struct Stored {
    std::string symbol, layer_kind, messages;
    Ints program, grid, block, shared_memory, types, values, scratch, shape_inputs, conditions;
    Floats constants;
    void visit(AttributeReader& v) {
      v("symbol", symbol);
      v("layer_kind", layer_kind);
      v("program", program);
      v("grid", grid);
      v("block", block);
      v("shared_memory", shared_memory);
      v("argument_types", types);
      v("argument_values", values);
      v("argument_constants", constants);
      v("scratch", scratch);
      v("shape_inputs", shape_inputs);
      v("check_conditions", conditions);
      v("check_messages", messages);
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

  KernelLaunch launch;
  launch.symbol = stored.symbol;
  launch.layer_kind = stored.layer_kind;
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
  constexpr size_t kMostArguments = 1U << 16U;  // no kernel takes as many
  check(stored.types.size() + stored.scratch.size() <= kMostArguments,
        "more arguments than any kernel takes");
  check(
      stored.types.size() == stored.values.size() && stored.types.size() == stored.constants.size(),
      "argument lists of different lengths");
  for (size_t i = 0; i < stored.types.size(); ++i) {
    check(stored.types[i] >= 0 && stored.types[i] <= static_cast<int64_t>(ArgumentType::kPOINTER),
          "an unknown argument type");
    launch.arguments.push_back({static_cast<ArgumentType>(stored.types[i]),
                                to_index(stored.values[i]), stored.constants[i]});
  }
  for (const int64_t bytes : stored.scratch) launch.scratch.push_back(to_index(bytes));
  for (const int64_t input : stored.shape_inputs) {
    check(input >= 0 && input <= std::numeric_limits<int32_t>::max(),
          "a shape input that is no input");
    launch.shape_inputs.push_back(static_cast<int32_t>(input));
  }
  size_t begin = 0;
  for (const int64_t condition : stored.conditions) {
    const size_t end = stored.messages.find('\n', begin);
    check(end != std::string::npos, "a check without a message");
    launch.checks.push_back({to_index(condition), stored.messages.substr(begin, end - begin)});
    begin = end + 1;
  }
  return launch;
}

}  // namespace opwright
