#include "network/kernel_launch.h"

#include <iomanip>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/types.h"

namespace opwright {

std::vector<ExprInstruction> KernelLaunch::part(int32_t instruction) const {
  const auto last = static_cast<size_t>(instruction);
  std::vector<int32_t> place(last + 1, -1);  // 0: the instruction is needed
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
  // Works from front to back, so that a shared expression is made once, at any depth.
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

namespace {

/// A kernel's parameters hardly have room for more.
constexpr size_t kMostMaps = 16;

/// Checks what does not depend on shapes, within the limits that devices document.
void validate(const KernelLaunch::TensorMap& map) {
  const auto check = [](bool condition, const auto&... what) {
    require(condition, "the launch of a compiled kernel has a tensor map ", what...);
  };
  constexpr size_t kMostAxes = 5, kFewestOfWindows = 3;
  constexpr int32_t kMostOfBox = 256, kMostPixels = 1024, kMostStep = 8;
  const size_t rank = map.extents.size();
  check(map.input >= 0, "of input ", map.input, ", which is none");
  constexpr DataType kTypes[] = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16,
                                 DataType::kFP8,   DataType::kINT8, DataType::kUINT8};
  check(std::ranges::find(kTypes, map.type) != std::end(kTypes), "of elements of the type ",
        static_cast<int32_t>(map.type), "; expected FP32, FP16, BF16, FP8, INT8 or UINT8");
  check(rank >= (map.has_windows() ? kFewestOfWindows : 1) && rank <= kMostAxes, "of ", rank,
        " axes");
  check(map.strides.size() == rank - 1, "of ", rank, " axes with ", map.strides.size(), " strides");
  check(map.steps.size() == rank, "of ", rank, " axes with ", map.steps.size(), " steps");
  for (const int32_t step : map.steps)
    check(step >= 1 && step <= kMostStep, "with a step of ", step);
  const size_t sides = map.has_windows() ? 2 : rank;
  check(map.box.size() == sides, "with a box of ", map.box.size(), " extents; expected ", sides);
  for (size_t i = 0; i < sides; ++i) {
    const int32_t most = map.has_windows() && i == 1 ? kMostPixels : kMostOfBox;
    check(map.box[i] >= 1 && map.box[i] <= most, "with a box of extent ", map.box[i]);
  }
  check(map.box[0] * bits(map.type) / 8 == KernelLaunch::TensorMap::kBytes, "with rows of ",
        map.box[0], " elements; expected ", KernelLaunch::TensorMap::kBytes, " bytes");
  const size_t corners = map.has_windows() ? rank - 2 : 0;
  check(map.lower.size() == corners && map.upper.size() == corners, "with corners of ",
        map.lower.size(), " and ", map.upper.size(), " axes; expected ", corners);
}

}  // namespace

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
  constexpr size_t kMostArguments = 1U << 16U;  // no kernel takes more
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
  check(launch.maps.size() <= kMostMaps, launch.maps.size(), " tensor maps; at most ", kMostMaps,
        " are possible");
  for (const KernelLaunch::TensorMap& map : launch.maps) {
    validate(map);
    for (const auto* numbers : {&map.extents, &map.strides, &map.lower, &map.upper})
      for (const int32_t instruction : *numbers) check_index(instruction, "part of a tensor map");
  }
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
  for (const KernelLaunch::TensorMap& map : launch.maps) {
    out << " map " << map.input << ' ' << static_cast<int>(map.type);
    for (const auto* numbers :
         {&map.extents, &map.strides, &map.box, &map.steps, &map.lower, &map.upper}) {
      out << " (";
      for (const int32_t number : *numbers) out << ' ' << number;
      out << ')';
    }
  }
  out << " order";
  for (const int32_t argument : launch.order) out << ' ' << argument;
  return out.str();
}

}  // namespace opwright
