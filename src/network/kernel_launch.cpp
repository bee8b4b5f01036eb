#include "network/kernel_launch.h"

#include <iomanip>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "base/error.h"

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

void validate(const KernelLaunch& launch) {
  const auto check = [](bool condition, const auto&... what) {
    require(condition, "the launch of a compiled kernel has ", what...);
  };
  try {
    opwright::validate(launch.program, std::numeric_limits<int>::max());
  } catch (const Error& error) {
    check(false, "an expression that is none: ", error.what());
  }
  const auto check_index = [&](int32_t instruction, const char* what) {
    check(instruction >= 0 && std::cmp_less(instruction, launch.program.size()), "expression ",
          instruction, " of ", launch.program.size(), " as ", what);
  };
  for (int i = 0; i < 3; ++i) {
    check_index(launch.grid[i], "an extent of its grid");
    check_index(launch.block[i], "an extent of its block");
  }
  check_index(launch.shared_memory, "its shared memory");
  constexpr size_t kMostArguments = 1U << 16U;  // no kernel takes as many
  check(launch.arguments.size() + launch.scratch.size() <= kMostArguments,
        "more arguments than any kernel takes");
  check(launch.order.size() <= kMostArguments, "more parameters than any kernel takes");
  for (const int32_t argument : launch.order)
    check(argument >= 0, "the argument ", argument, " for a parameter");
  for (const KernelLaunch::Argument& argument : launch.arguments) {
    check(argument.type >= ArgumentType::kINT32 && argument.type <= ArgumentType::kPOINTER,
          "an argument of the unknown type ", static_cast<int32_t>(argument.type));
    check_index(argument.value, "an argument");
  }
  for (const int32_t bytes : launch.scratch) check_index(bytes, "the size of a scratch buffer");
  for (const int32_t input : launch.shape_inputs)
    check(input >= 0, "the shape input ", input, ", which is no input");
  for (const KernelLaunch::Check& condition : launch.checks)
    check_index(condition.condition, "a condition");
}

std::string_view name(ArgumentType type) {
  static constexpr std::string_view kNames[] = {"INT32", "INT64", "FLOAT32", "FLOAT64",
                                                "INT8",  "INT16", "POINTER"};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "an unknown type";
}

std::string str(const KernelLaunch& launch) {
  std::ostringstream out;
  out << std::quoted(launch.symbol) << ' ' << std::quoted(launch.layer_kind) << " (";
  for (const ExprInstruction& i : launch.program)
    out << static_cast<int>(i.op) << ' ' << i.a << ' ' << i.b << ' ' << i.c << ' ' << i.value
        << ", ";
  out << ") grid";
  for (const int32_t extent : launch.grid) out << ' ' << extent;
  out << " block";
  for (const int32_t extent : launch.block) out << ' ' << extent;
  out << " shared " << launch.shared_memory << (launch.begins_early ? " early" : "")
      << " arguments";
  for (const KernelLaunch::Argument& argument : launch.arguments)
    out << ' ' << name(argument.type) << ' ' << argument.value << ' ' << std::hexfloat
        << argument.constant;
  out << " scratch";
  for (const int32_t bytes : launch.scratch) out << ' ' << bytes;
  out << " shape inputs";
  for (const int32_t input : launch.shape_inputs) out << ' ' << input;
  out << " checks";
  for (const KernelLaunch::Check& check : launch.checks)
    out << ' ' << check.condition << ' ' << std::quoted(check.message);
  out << " order";
  for (const int32_t argument : launch.order) out << ' ' << argument;
  return out.str();
}

}  // namespace opwright
