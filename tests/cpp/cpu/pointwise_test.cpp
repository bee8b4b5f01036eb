#include "operators/pointwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "cpu/pointwise_program.h"
#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

/// Runs the first, LINEAR candidate.
std::vector<Values> run(const Pointwise& op, const std::vector<TestInput>& inputs,
                        const std::vector<TestOutput>& outputs) {
  return run_kernel(op, candidates_of(op, inputs, outputs).at(0), inputs, outputs);
}

/// Floats of every sign, exponent and many fractions, and the special ones.
Values all_floats() {
  std::vector<double> data;
  for (uint64_t bits = 0; bits < 1ull << 32; bits += 16381)
    data.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const double special : {0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, 88.7, 89.5, -87.0, -104.0,
                               0.5, 1.5, 2.5, -0.5, -1.5})
    data.push_back(static_cast<float>(special));
  for (int i = -4000; i <= 4000; ++i) data.push_back(static_cast<float>(i * 0.0031));
  const auto count = static_cast<int64_t>(data.size());
  return {Shape{count}, std::move(data)};
}

struct Function {
  const char* name;
  PointwiseInstruction instruction;
  double (*reference)(double);
  // The errors of operations that are not exact.
  double tolerance = 1e-6;    ///< relative
  double absolute = 1.2e-38;  ///< results below the normal numbers may be flushed
};

double gelu(double x) { return x == -HUGE_VAL ? 0 : 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double gelu_tanh(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  // x / (1 + e^-2u) is the same without cancellation.
  return x == -HUGE_VAL ? 0 : x / (1 + std::exp(-2 * u));
}

void expect_function(const Function& function, const Values& x, const Values& y) {
  const bool is_exact = facts_of(function.instruction.op)->is(OperationFacts::kExact);
  int failures = 0;
  for (int64_t i = 0; i < x.size() && failures < 5; ++i) {
    double expected = function.reference(x[i]);
    if (std::abs(expected) > 3.402823567e38) expected = std::copysign(HUGE_VAL, expected);
    if (is_exact) expected = static_cast<float>(expected);
    if (std::isnan(y[i]) && std::isnan(expected)) continue;
    if (y[i] == expected) continue;
    const double allowed = std::max(function.absolute, function.tolerance * std::abs(expected));
    if (!is_exact && std::abs(y[i] - expected) <= allowed) continue;
    ++failures;
    ADD_FAILURE() << function.name << "(" << x[i] << ") is " << y[i] << " instead of " << expected;
  }
}

TEST(Pointwise, FunctionsAgreeWithTheMathLibrary) {
  const Function functions[] = {Function{"exp", unary(UnaryOperation::kEXP, 0), std::exp},
                                Function{"log", unary(UnaryOperation::kLOG, 0), std::log},
                                Function{"sqrt", unary(UnaryOperation::kSQRT, 0), std::sqrt},
                                Function{"recip", unary(UnaryOperation::kRECIP, 0),
                                         [](double x) { return 1 / x; }},
                                Function{"abs", unary(UnaryOperation::kABS, 0), std::fabs},
                                Function{"neg", unary(UnaryOperation::kNEG, 0),
                                         [](double x) { return -x; }},
                                Function{"sin", unary(UnaryOperation::kSIN, 0), std::sin},
                                Function{"cos", unary(UnaryOperation::kCOS, 0), std::cos},
                                Function{"tan", unary(UnaryOperation::kTAN, 0), std::tan},
                                Function{"sinh", unary(UnaryOperation::kSINH, 0), std::sinh},
                                Function{"cosh", unary(UnaryOperation::kCOSH, 0), std::cosh},
                                Function{"asin", unary(UnaryOperation::kASIN, 0), std::asin},
                                Function{"acos", unary(UnaryOperation::kACOS, 0), std::acos},
                                Function{"atan", unary(UnaryOperation::kATAN, 0), std::atan},
                                Function{"asinh", unary(UnaryOperation::kASINH, 0), std::asinh},
                                Function{"acosh", unary(UnaryOperation::kACOSH, 0), std::acosh},
                                Function{"atanh", unary(UnaryOperation::kATANH, 0), std::atanh},
                                Function{"ceil", unary(UnaryOperation::kCEIL, 0), std::ceil},
                                Function{"floor", unary(UnaryOperation::kFLOOR, 0), std::floor},
                                Function{"round", unary(UnaryOperation::kROUND, 0), std::nearbyint},
                                Function{"erf", unary(UnaryOperation::kERF, 0), std::erf},
                                Function{"sign", unary(UnaryOperation::kSIGN, 0),
                                         [](double x) { return x > 0   ? 1.0
                                                               : x < 0 ? -1.0
                                                                       : x; }},
                                Function{"relu", activation(ActivationType::kRELU, 0),
                                         [](double x) { return x < 0 ? 0.0 : x; }},
                                Function{"sigmoid", activation(ActivationType::kSIGMOID, 0),
                                         sigmoid},
                                Function{"tanh", activation(ActivationType::kTANH, 0), std::tanh},
                                Function{"leaky_relu",
                                         activation(ActivationType::kLEAKY_RELU, 0, 0.25),
                                         [](double x) { return x < 0 ? 0.25 * x : x; }},
                                Function{"elu", activation(ActivationType::kELU, 0, 0.5),
                                         [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); }},
                                Function{
                                    "selu", activation(ActivationType::kSELU, 0, 1.5, 2),
                                    [](double x) { return 2 * (x > 0 ? x : 1.5 * std::expm1(x)); }},
                                Function{"softsign", activation(ActivationType::kSOFTSIGN, 0),
                                         [](double x) {
                                           return std::isinf(x) ? std::nan("")
                                                                : x / (1 + std::abs(x));
                                         }},
                                Function{"softplus",
                                         activation(ActivationType::kSOFTPLUS, 0, 2, 0.5),
                                         [](double x) {
                                           return 2 * (std::max(x / 2, 0.0) +
                                                       std::log1p(std::exp(-std::abs(x / 2)))) +
                                                  0 * (std::isnan(x) ? x : 0);
                                         },
                                         1e-6, 3e-38},
                                Function{"clip", activation(ActivationType::kCLIP, 0, -1.5, 2.25),
                                         [](double x) {
                                           return x < -1.5 ? -1.5 : x > 2.25 ? 2.25 : x;
                                         }},
                                Function{"hard_sigmoid",
                                         activation(ActivationType::kHARD_SIGMOID, 0, 0.25, 0.5),
                                         [](double x) {
                                           const double y = 0.25 * x + 0.5;
                                           return y < 0 ? 0.0 : y > 1 ? 1.0 : y;
                                         }},
                                Function{"scaled_tanh",
                                         activation(ActivationType::kSCALED_TANH, 0, 1.5, 0.5),
                                         [](double x) { return 1.5 * std::tanh(0.5 * x); }},
                                Function{"thresholded_relu",
                                         activation(ActivationType::kTHRESHOLDED_RELU, 0, 0.75),
                                         [](double x) { return x > 0.75 ? x : 0.0; }},
                                // The tail beyond -7 is cut.
                                Function{"gelu", activation(ActivationType::kGELU_ERF, 0), gelu,
                                         5e-6, 6e-12},
                                Function{"gelu_tanh", activation(ActivationType::kGELU_TANH, 0),
                                         gelu_tanh, 1e-5, 1.3e-37},
                                Function{"square", binary(ElementWiseOperation::kPROD, 0, 0),
                                         [](double x) { return x * x; }},
                                Function{"is_inf",
                                         unary(UnaryOperation::kISINF, 0, DataType::kBOOL),
                                         [](double x) { return std::isinf(x) ? 1.0 : 0.0; }},
                                Function{"is_nan",
                                         unary(UnaryOperation::kISNAN, 0, DataType::kBOOL),
                                         [](double x) { return std::isnan(x) ? 1.0 : 0.0; }}};
  const Values x = all_floats();
  // All in one program, as a GPU's kernel is compiled for each.
  std::vector<PointwiseInstruction> program = {input(0)};
  std::vector<TestOutput> outputs;
  Ints results;
  for (const Function& function : functions) {
    program.push_back(function.instruction);
    results.push_back(static_cast<int64_t>(results.size()) + 1);
    outputs.push_back({x.shape, function.instruction.type});
  }
  const std::vector<Values> y = run(make(program, results), {{x}}, outputs);
  for (size_t i = 0; i < y.size(); ++i) expect_function(functions[i], x, y[i]);
}

TEST(Pointwise, TanhAndErfReachOneAndNeverExceedIt) {
  const Values x = all_floats();
  const std::vector<PointwiseInstruction> program = {input(0), activation(ActivationType::kTANH, 0),
                                                     unary(UnaryOperation::kERF, 0)};
  const std::vector<Values> y = run(make(program, {1, 2}), {{x}}, {{x.shape}, {x.shape}});
  for (const Values& of : y)
    for (int64_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) continue;
      if (std::abs(x[i]) > 10) {
        EXPECT_EQ(of[i], std::copysign(1, x[i])) << x[i];
      }
      EXPECT_LE(std::abs(of[i]), 1) << x[i];
    }
}

template <class E>
void add_operations(DataType type, std::vector<PointwiseInstruction>& program) {
  for (const auto& row : kEnumeration<E>.values)
    if (row.facts.takes(type))
      program.push_back({opcode(row.value), row.facts.gives(type), 0, 0, -1, 0, 1});
}

TEST(Pointwise, EveryOperationTakesTheTypesOfItsRow) {
  for (const DataType type : {DataType::kFLOAT, DataType::kINT8, DataType::kUINT8, DataType::kINT32,
                              DataType::kINT64, DataType::kBOOL}) {
    SCOPED_TRACE(name(type));
    std::vector<PointwiseInstruction> program = {input(0, type)};
    add_operations<ElementWiseOperation>(type, program);
    add_operations<UnaryOperation>(type, program);
    add_operations<ActivationType>(type, program);
    Ints results;
    std::vector<TestOutput> outputs;
    for (size_t i = 1; i < program.size(); ++i) {
      results.push_back(static_cast<int64_t>(i));
      outputs.push_back({{3}, program[i].type});
    }
    EXPECT_EQ(run(make(program, results), {{{Shape{3}, {0, 1, 1}}, type}}, outputs).size(),
              results.size());
  }
}

TEST(Pointwise, FloatingBinaryOperations) {
  const double nan = std::nan("");
  const Values a{Shape{9}, {1, -2, 3.5, nan, 0, -0.0, -7, 7, 2}};
  const Values b{Shape{9}, {2, 3, nan, 1, 0, 0, 2, -2, 10}};
  struct Case {
    ElementWiseOperation op;
    double (*reference)(double, double);
  };
  const Case cases[] = {
      {ElementWiseOperation::kSUM, [](double x, double y) { return x + y; }},
      {ElementWiseOperation::kPROD, [](double x, double y) { return x * y; }},
      {ElementWiseOperation::kSUB, [](double x, double y) { return x - y; }},
      {ElementWiseOperation::kDIV, [](double x, double y) { return x / y; }},
      {ElementWiseOperation::kFLOOR_DIV, [](double x, double y) { return std::floor(x / y); }},
      {ElementWiseOperation::kPOW, [](double x, double y) { return std::pow(x, y); }},
      {ElementWiseOperation::kMAX,
       [](double x, double y) {
         return std::isnan(x) || std::isnan(y) ? std::nan("") : std::max(x, y);
       }},
      {ElementWiseOperation::kMIN,
       [](double x, double y) {
         return std::isnan(x) || std::isnan(y) ? std::nan("") : std::min(x, y);
       }},
  };
  std::vector<PointwiseInstruction> program = {input(0), input(1)};
  Ints results;
  for (const Case& test : cases) {
    results.push_back(static_cast<int64_t>(program.size()));
    program.push_back(binary(test.op, 0, 1));
  }
  const std::vector<TestOutput> outputs(std::size(cases), {a.shape});
  const std::vector<Values> y = run(make(program, results), {{a}, {b}}, outputs);
  for (size_t k = 0; k < y.size(); ++k) {
    SCOPED_TRACE(static_cast<int>(cases[k].op));
    const Values expected =
        make_values(a.shape, [&](int64_t i) { return cases[k].reference(a[i], b[i]); });
    const bool is_exact = facts_of(cases[k].op)->is(OperationFacts::kExact);
    expect_close(y[k], is_exact ? rounded(expected, DataType::kFLOAT) : expected,
                 is_exact ? 0 : 1e-6);
  }
}

TEST(Pointwise, RegistersAreRoundedToNarrowTypes) {
  const Values x = all_floats();
  const std::vector<Values> y =
      run(make({input(0), of_floats(PointwiseOp::kToHalf, 0), of_floats(PointwiseOp::kToBf16, 0)},
               {1, 2}),
          {{x}}, {{x.shape}, {x.shape}});
  const DataType types[] = {DataType::kHALF, DataType::kBF16};
  for (size_t k = 0; k < 2; ++k) {
    const Values expected = rounded(x, types[k]);
    for (int64_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(y[k][i] == expected[i] || (std::isnan(y[k][i]) && std::isnan(expected[i])))
          << name(types[k]) << " of " << x[i] << " is " << y[k][i];
  }
}

/// Quotients of every size, and numbers that are hardly a multiple of the divisor.
TEST(Pointwise, RemaindersAreExact) {
  Values a = all_floats();
  for (int64_t i = 0; i < 20000; ++i) {
    const float divisor = static_cast<float>(1 + i % 97) * 0.3F;
    const float multiple = divisor * static_cast<float>(i * i % 65521);
    a.data.push_back(i % 3 == 0   ? multiple
                     : i % 3 == 1 ? std::nextafterf(multiple, 0.0F)
                                  : std::nextafterf(multiple, HUGE_VALF));
  }
  a.shape = {a.size()};
  Values b = a;
  for (int64_t i = 0; i < b.size(); ++i)
    b[i] = i < b.size() - 20000 ? a[i * 7919 % b.size()]
                                : static_cast<float>(1 + (i - b.size() + 20000) % 97) * 0.3F;
  const double scalars[] = {7, static_cast<float>(0.1), -HUGE_VAL, 0, 0x1p-149, 3e38F};
  std::vector<PointwiseInstruction> program = {input(0), input(1),
                                               of_floats(PointwiseOp::kRemainder, 0, 1)};
  Ints results = {2};
  for (const double scalar : scalars) {
    program.push_back(constant(scalar));
    program.push_back(of_floats(PointwiseOp::kRemainder, 0, static_cast<int>(program.size()) - 1));
    results.push_back(static_cast<int64_t>(program.size()) - 1);
  }
  const std::vector<TestOutput> outputs(results.size(), {a.shape});
  const std::vector<Values> y = run(make(program, results), {{a}, {b}}, outputs);
  for (size_t k = 0; k < y.size(); ++k)
    for (int64_t i = 0; i < a.size(); ++i) {
      const double divisor = k == 0 ? b[i] : scalars[k - 1], expected = std::fmod(a[i], divisor);
      if (std::isnan(expected) && std::isnan(y[k][i])) continue;
      ASSERT_TRUE(y[k][i] == expected && std::signbit(y[k][i]) == std::signbit(expected))
          << a[i] << " mod " << divisor << " is " << y[k][i] << ", not " << expected;
    }
}

TEST(Pointwise, PowerByAScalar) {
  const Values x = random_values({3, 100}, 1, 0.1, 3);
  const Values in = rounded(x, DataType::kFLOAT);
  const std::vector<double> exponents = {2.0, 3.0, 0.5, -1.0, -0.5, 1.7, 0.0};
  std::vector<PointwiseInstruction> program = {input(0)};
  std::vector<TestInput> inputs = {{in}};
  Ints results;
  const auto raise = [&](const PointwiseInstruction& exponent) {
    program.push_back(exponent);
    const int index = static_cast<int>(program.size()) - 1;
    program.push_back(binary(ElementWiseOperation::kPOW, 0, index));
    results.push_back(index + 1);
  };
  for (const double exponent : exponents) {
    raise(constant(exponent));
    raise(input(static_cast<int>(inputs.size())));
    inputs.push_back({{Shape{1}, {exponent}}});
  }
  const std::vector<TestOutput> outputs(results.size(), {x.shape});
  const std::vector<Values> y = run(make(program, results), inputs, outputs);
  for (size_t k = 0; k < y.size(); ++k) {
    SCOPED_TRACE(exponents[k / 2]);
    const auto exponent = static_cast<float>(exponents[k / 2]);
    expect_close(y[k], make_values(x.shape, [&](int64_t i) { return std::pow(in[i], exponent); }),
                 1e-6);
  }
}

template <class T>
void check_integers(DataType type) {
  // Every pair of these, the limits and the divisor 0 included.
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {
      0, 1, 2, 3, 5, 7, 100, Limits::max(), Limits::min(), T(Limits::max() / 2)};
  if (std::is_signed_v<T>)
    for (const int v : {-1, -2, -3, -7, -100}) values.push_back(static_cast<T>(v));
  // Doubles of the harness do not hold the limits of INT64.
  if (sizeof(T) == 8) std::erase_if(values, [](T v) { return std::abs(double(v)) > 0x1p40; });
  const auto n = static_cast<int64_t>(values.size());
  const Values a = make_values({n, 1}, [&](int64_t i) { return double(values[i]); });
  const Values b = make_values({n}, [&](int64_t i) { return double(values[i]); });
  using U = std::make_unsigned_t<T>;
  const auto wrap = [](__int128 v) {
    return static_cast<double>(static_cast<T>(static_cast<U>(v)));
  };
  struct Case {
    ElementWiseOperation op;
    std::function<double(__int128, __int128)> reference;
  };
  const Case cases[] = {
      {ElementWiseOperation::kSUM, [&](__int128 x, __int128 y) { return wrap(x + y); }},
      {ElementWiseOperation::kSUB, [&](__int128 x, __int128 y) { return wrap(x - y); }},
      {ElementWiseOperation::kPROD, [&](__int128 x, __int128 y) { return wrap(x * y); }},
      {ElementWiseOperation::kMAX, [&](__int128 x, __int128 y) { return wrap(std::max(x, y)); }},
      {ElementWiseOperation::kMIN, [&](__int128 x, __int128 y) { return wrap(std::min(x, y)); }},
      {ElementWiseOperation::kDIV,
       [&](__int128 x, __int128 y) { return y == 0 ? 0 : wrap(x / y); }},
      {ElementWiseOperation::kFLOOR_DIV,
       [&](__int128 x, __int128 y) {
         if (y == 0) return 0.0;
         __int128 q = x / y;
         if (q * y != x && (x < 0) != (y < 0)) --q;
         return wrap(q);
       }},
      {ElementWiseOperation::kPOW,
       [&](__int128 x, __int128 y) {
         if (y < 0) return x == 1 ? 1.0 : x == -1 ? (y % 2 == 0 ? 1.0 : -1.0) : 0.0;
         U result = 1;
         for (__int128 i = 0; i < std::min<__int128>(y, 4096); ++i) result *= static_cast<U>(x);
         return static_cast<double>(static_cast<T>(result));
       }},
  };
  Values exponents = b;
  for (double& v : exponents.data) v = std::min(v, 100.0);
  std::vector<PointwiseInstruction> program = {input(0, type), input(1, type), input(2, type)};
  Ints results;
  for (const Case& test : cases) {
    results.push_back(static_cast<int64_t>(program.size()));
    program.push_back(binary(test.op, 0, test.op == ElementWiseOperation::kPOW ? 2 : 1, type));
  }
  const std::vector<TestOutput> outputs(std::size(cases), {{n, n}, type});
  const std::vector<Values> results_of =
      run(make(program, results), {{a, type}, {b, type}, {exponents, type}}, outputs);
  for (size_t k = 0; k < results_of.size(); ++k) {
    const Case& test = cases[k];
    SCOPED_TRACE(::testing::Message() << name(type) << " " << static_cast<int>(test.op));
    const Values& y = test.op == ElementWiseOperation::kPOW ? exponents : b;
    const Values expected = make_values({n, n}, [&](int64_t i) {
      return test.reference(static_cast<__int128>(a[i / n]), static_cast<__int128>(y[i % n]));
    });
    expect_close(results_of[k], expected, 0);
  }
}
TEST(Pointwise, IntegersWrapAroundAndSurviveDivisionByZero) {
  check_integers<int8_t>(DataType::kINT8);
  check_integers<uint8_t>(DataType::kUINT8);
  check_integers<int32_t>(DataType::kINT32);
  check_integers<int64_t>(DataType::kINT64);
}

TEST(Pointwise, IntegerUnaryOperationsAndClip) {
  const Values x{Shape{6}, {-128, -3, 0, 5, 127, -1}};
  std::vector<PointwiseInstruction> program = {
      input(0),
      unary(UnaryOperation::kABS, 0),
      unary(UnaryOperation::kNEG, 0),
      unary(UnaryOperation::kSIGN, 0),
      activation(ActivationType::kRELU, 0),
      activation(ActivationType::kCLIP, 0, -2.5, 1e9),
  };
  for (PointwiseInstruction& instruction : program) instruction.type = DataType::kINT8;
  const std::vector<TestOutput> outputs(5, {x.shape, DataType::kINT8});
  const std::vector<Values> y =
      run(make(program, {1, 2, 3, 4, 5}), {{x, DataType::kINT8}}, outputs);
  expect_close(y[0], {x.shape, {-128, 3, 0, 5, 127, 1}}, 0);
  expect_close(y[1], {x.shape, {-128, 3, 0, -5, -127, 1}}, 0);
  expect_close(y[2], {x.shape, {-1, -1, 0, 1, 1, -1}}, 0);
  expect_close(y[3], {x.shape, {0, 0, 0, 5, 127, 0}}, 0);
  expect_close(y[4], {x.shape, {-2, -2, 0, 5, 127, -1}}, 0);
}

TEST(Pointwise, ComparisonsAndLogic) {
  const Values a = make_values({150}, [](int64_t i) { return i % 3 - 1; });
  const Values b = make_values({150}, [](int64_t i) { return i % 5 - 2; });
  for (const DataType type :
       {DataType::kFLOAT, DataType::kINT8, DataType::kINT32, DataType::kINT64}) {
    SCOPED_TRACE(name(type));
    const DataType logic = DataType::kBOOL;
    const Pointwise op =
        make({input(0, type), input(1, type), binary(ElementWiseOperation::kLESS, 0, 1, logic),
              binary(ElementWiseOperation::kEQUAL, 0, 1, logic),
              binary(ElementWiseOperation::kGREATER, 0, 1, logic),
              binary(ElementWiseOperation::kOR, 2, 3, logic), unary(UnaryOperation::kNOT, 5, logic),
              binary(ElementWiseOperation::kXOR, 2, 3, logic),
              binary(ElementWiseOperation::kAND, 2, 5, logic), select(2, 0, 1, type)},
             {2, 3, 4, 5, 6, 7, 8, 9});
    std::vector<TestOutput> outputs(7, {a.shape, logic});
    outputs.push_back({a.shape, type});
    const std::vector<Values> y = run(op, {{a, type}, {b, type}}, outputs);
    for (int64_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(y[0][i], a[i] < b[i]);
      ASSERT_EQ(y[1][i], a[i] == b[i]);
      ASSERT_EQ(y[2][i], a[i] > b[i]);
      ASSERT_EQ(y[3][i], a[i] <= b[i]);
      ASSERT_EQ(y[4][i], a[i] > b[i]);
      ASSERT_EQ(y[5][i], a[i] <= b[i]);
      ASSERT_EQ(y[6][i], a[i] < b[i]);
      ASSERT_EQ(y[7][i], std::min(a[i], b[i]));
    }
  }
}

TEST(Pointwise, Casts) {
  const double nan = std::nan("");
  const Values x{Shape{12}, {0, 1.9, -1.9, 130, -130, 300, 3e9, -3e9, 1e20, -1e20, nan, 0.4}};
  const auto check = [&](DataType to, std::vector<double> expected) {
    SCOPED_TRACE(name(to));
    const Pointwise op = make({input(0), cast(0, to)}, {1});
    expect_close(run(op, {{x}}, {{x.shape, to}})[0], {x.shape, std::move(expected)}, 0);
  };
  const double low64 = -0x1p63, high64 = 0x1p63;
  check(DataType::kINT8, {0, 1, -1, 127, -128, 127, 127, -128, 127, -128, 0, 0});
  check(DataType::kUINT8, {0, 1, 0, 130, 0, 255, 255, 0, 255, 0, 0, 0});
  check(DataType::kINT32,
        {0, 1, -1, 130, -130, 300, 2147483647, -2147483648.0, 2147483647, -2147483648.0, 0, 0});
  check(DataType::kINT64, {0, 1, -1, 130, -130, 300, 3e9, -3e9, high64, low64, 0, 0});
  check(DataType::kBOOL, {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});

  const Values n{Shape{5}, {300, -1, 0, 128, -129}};
  const Pointwise narrow = make({input(0, DataType::kINT64), cast(0, DataType::kINT8),
                                 cast(1, DataType::kFLOAT), cast(0, DataType::kBOOL)},
                                {1, 2, 3});
  const std::vector<Values> y =
      run(narrow, {{n, DataType::kINT64}},
          {{n.shape, DataType::kINT8}, {n.shape, DataType::kHALF}, {n.shape, DataType::kBOOL}});
  expect_close(y[0], {n.shape, {44, -1, 0, -128, 127}}, 0);
  expect_close(y[1], {n.shape, {44, -1, 0, -128, 127}}, 0);
  expect_close(y[2], {n.shape, {1, 1, 0, 1, 1}}, 0);
}

/// What ONNX's QuantizeLinear asks for; NaN gives 0.
double quantized(double x, double scale, double zero, bool is_signed) {
  const double y =
      std::nearbyint(static_cast<double>(static_cast<float>(x) / static_cast<float>(scale))) + zero;
  if (std::isnan(y)) return 0;
  return std::clamp(y, is_signed ? -128.0 : 0.0, is_signed ? 127.0 : 255.0);
}

TEST(Pointwise, QuantizesInOnePass) {
  const Values values = all_floats();
  for (const DataType type : {DataType::kINT8, DataType::kUINT8})
    for (const bool has_zero : {false, true})
      for (const bool by_row : {false, true})
        for (const bool is_shown : {false, true}) {
          const bool is_signed = type == DataType::kINT8;
          SCOPED_TRACE(::testing::Message() << name(type) << " zero " << has_zero << " by row "
                                            << by_row << " shown " << is_shown);
          // Rows of several tiles, or an odd number of elements.
          const int64_t rows = by_row ? 7 : 1,
                        length = by_row ? 36864 : values.size() / 64 * 64 - 1;
          const Shape shape{rows, length}, scales{rows, 1};
          const int64_t count = rows * length;
          const Values x{shape, {values.data.begin(), values.data.begin() + count}};
          const Values scale = random_values(scales, 1, 0.01, 0.1);
          const Values zero = make_values(
              scales, [&](int64_t i) { return static_cast<double>(i * 9 - (is_signed ? 30 : 0)); });
          std::vector<PointwiseInstruction> program = {input(0), input(1),
                                                       binary(ElementWiseOperation::kDIV, 0, 1),
                                                       unary(UnaryOperation::kROUND, 2)};
          if (has_zero) {
            program.push_back(input(2, type));
            program.push_back(cast(4, DataType::kFLOAT));
            program.push_back(binary(ElementWiseOperation::kSUM, 3, 5));
          }
          const int moved = static_cast<int>(program.size()) - 1;
          program.push_back(activation(ActivationType::kCLIP, moved, is_signed ? -128 : 0,
                                       is_signed ? 127 : 255));
          program.push_back(cast(moved + 1, type));
          Ints results = {moved + 2};
          std::vector<TestInput> inputs = {{x}, {scale}};
          if (has_zero) inputs.push_back({zero, type});
          std::vector<TestOutput> outputs = {{shape, type}};
          if (is_shown) {  // the quotients are results as well, so they cannot go
            results.push_back(2);
            outputs.push_back({shape});
          }
          const std::vector<Values> y = run(make(program, results), inputs, outputs);
          const Values narrow = rounded(scale, DataType::kFLOAT);
          for (int64_t i = 0; i < count; ++i) {
            const int64_t k = i / length;
            ASSERT_EQ(y[0][i], quantized(x[i], narrow[k], has_zero ? zero[k] : 0, is_signed))
                << x[i] << " at " << i;
            if (!is_shown || std::isnan(x[i])) continue;
            ASSERT_EQ(y[1][i], static_cast<float>(x[i]) / static_cast<float>(narrow[k])) << x[i];
          }
        }
}

TEST(Pointwise, StoresOfShortFloatsRoundToNearestEven) {
  const Values x = all_floats();
  const Pointwise op = make({input(0), unary(UnaryOperation::kNEG, 0)}, {1});
  for (const DataType type : {DataType::kHALF, DataType::kBF16, DataType::kFP8}) {
    SCOPED_TRACE(name(type));
    Values negated = x;
    for (double& v : negated.data) v = -v;
    expect_close(run(op, {{x}}, {{x.shape, type}})[0], rounded(negated, type), 0);
    // And back.
    Values expected = rounded(x, type);
    for (double& v : expected.data) v = -v;
    expect_close(run(op, {{x, type}}, {{x.shape}})[0], expected, 0);
  }
}

TEST(Pointwise, BroadcastsAnyShapesInEveryFormat) {
  std::mt19937 random(7);
  const auto up_to = [&](int n) { return static_cast<int>(random() % (n + 1)); };
  const int64_t extents[] = {1, 2, 3, 5, 16, 33, 70};
  int formats = 0;
  Selection selection(40);
  for (int round = 0; round < 300; ++round) {
    Shape shape;
    for (int i = up_to(4); i >= 0; --i) shape.push_back(extents[up_to(6)]);
    if (shape.rank() >= 3 && round % 2) shape[1] = 16 * (1 + up_to(2));
    if (shape.numel() > 200000 || !selection.takes_next()) continue;
    std::vector<TestInput> inputs;
    for (int i = 0; i < 4; ++i) {
      Shape own;
      const int skip = i == 0 ? 0 : up_to(shape.rank());
      for (int axis = skip; axis < shape.rank(); ++axis)
        own.push_back(i > 0 && random() % 2 ? 1 : shape[axis]);
      const DataType type = random() % 3 ? DataType::kFLOAT : DataType::kBF16;
      inputs.push_back({rounded(random_values(own, round * 4 + i), type), type});
    }
    const Pointwise op =
        make({input(0), input(1), input(2), input(3), constant(0.5),
              binary(ElementWiseOperation::kPROD, 0, 1), binary(ElementWiseOperation::kSUB, 2, 3),
              binary(ElementWiseOperation::kMAX, 5, 6), binary(ElementWiseOperation::kSUM, 7, 4),
              binary(ElementWiseOperation::kPROD, 2, 4)},
             {8, 6, 0, 9, 8});
    const std::vector<TestOutput> outputs = {
        {shape}, {shape}, {shape}, {shape}, {shape, DataType::kHALF}};
    std::vector<Values> values;  // the inputs in the outputs' shape
    for (const TestInput& input : inputs)
      values.push_back(make_values(shape, [&, own = input.values.shape](int64_t i) {
        return input.values[broadcast_index(own, shape, i)];
      }));
    Values difference{shape, {}}, result{shape, {}}, half{shape, {}};
    for (int64_t i = 0; i < shape.numel(); ++i) {
      difference.data.push_back(values[2][i] - values[3][i]);
      result.data.push_back(std::max(values[0][i] * values[1][i], difference[i]) + 0.5);
      half.data.push_back(values[2][i] * 0.5);
    }
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      SCOPED_TRACE(::testing::Message() << shape << " " << describe(candidate));
      formats += candidate.outputs[0].format != TensorFormat::kLINEAR;
      const std::vector<Values> y = run_kernel(op, candidate, inputs, outputs);
      expect_close(y[0], result, 1e-6);
      expect_close(y[1], difference, 1e-6);
      expect_close(y[2], values[0], 1e-6);
      expect_close(y[3], half, 1e-6);
      expect_close(y[4], result, 1e-3);
      if (::testing::Test::HasFailure()) return;
    }
  }
  if (test_device().is_host()) {
    EXPECT_GE(formats, at_least(50)) << "formats other than LINEAR were hardly tested";
  }
}

// Operands that are repeated along the last axes have one element in a tile that does not go beyond
// a run, whatever is computed of them.
TEST(Pointwise, ColumnsThatAreOneElementOfATile) {
  using Op = ElementWiseOperation;
  // Runs that tiles divide, that they do not, and that are shorter than a tile.
  for (const int64_t length : {4096, 3136, 2053, 600, 257, 40}) {
    SCOPED_TRACE(length);
    const Shape shape{2, 3, length};
    const Values x = random_values(shape, 1, 0.5, 2), column = random_values({3, 1}, 2, 0.5, 2);
    const Values row = random_values({length}, 3, 0.5, 2), half = random_values({1}, 4, 0.5, 2);
    const Pointwise op = make({input(0), input(1), input(2), input(3),
                               unary(UnaryOperation::kEXP, 1),               // 4: of columns alone
                               binary(Op::kPROD, 4, 0),                      // 5: taken as b
                               binary(Op::kSUM, 5, 1),                       // 6
                               binary(Op::kSUB, 1, 0),                       // 7: not as a
                               binary(Op::kGREATER, 0, 1, DataType::kBOOL),  // 8
                               select(8, 4, 7),                              // 9
                               binary(Op::kDIV, 9, 3),                       // 10: a scalar
                               binary(Op::kPROD, 1, 3),                      // 11: and a column
                               binary(Op::kMAX, 10, 11), binary(Op::kMIN, 2, 1),  // 12, 13
                               binary(Op::kSUB, 12, 13), binary(Op::kPOW, 6, 3)},
                              {14, 15, 11});
    const std::vector<Values> y =
        run(op, {{x}, {column}, {row}, {half}}, {{shape}, {shape}, {shape}});
    Values first{shape, x.data}, second = first, third = first;
    for (int64_t i = 0; i < x.size(); ++i) {
      const double c = column[i / length % 3], h = half[0], r = row[i % length];
      const double chosen = x[i] > c ? std::exp(c) : c - x[i];
      first[i] = std::max(chosen / h, c * h) - std::min(r, c);
      second[i] = std::pow(std::exp(c) * x[i] + c, h);
      third[i] = c * h;
    }
    expect_close(y[0], first, 1e-5), expect_close(y[1], second, 1e-5);
    expect_close(y[2], third, 1e-6);
  }
}

TEST(Pointwise, LowerPrecisionsOfWholeTensors) {
  const Values x = random_values({2, 16, 5, 7}, 1), scale = random_values({16, 1, 1}, 2);
  const Pointwise op = make({input(0), input(1), binary(ElementWiseOperation::kPROD, 0, 1),
                             activation(ActivationType::kRELU, 2)},
                            {3});
  const std::vector<TestInput> inputs = {{x}, {scale}};
  const std::vector<TestOutput> outputs = {{x.shape}};
  QueryOptions options;
  options.bf16 = options.fp16 = true;
  int lower = 0;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs, options)) {
    SCOPED_TRACE(describe(candidate));
    lower += candidate.outputs[0].dtype != DataType::kFLOAT;
    EXPECT_EQ(candidate.inputs[1].dtype, DataType::kFLOAT);
    const Values expected =
        make_values(x.shape, [&](int64_t i) { return std::max(0.0, x[i] * scale[i / 35 % 16]); });
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected,
                 tolerance_of(candidate.outputs[0].dtype));
  }
  EXPECT_GE(lower, at_least(test_device().is_host() ? 4 : 2));
  options.strongly_typed = true;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs, options))
    EXPECT_EQ(candidate.outputs[0].dtype, DataType::kFLOAT);
}

TEST(Pointwise, LongProgramsAndManyLiveValues) {
  // All prefixes x * k stay alive until they are summed up backwards.
  for (const int live : {20, 90}) {
    std::vector<PointwiseInstruction> program = {input(0), constant(1.001)};
    int last = 0;
    for (int i = 0; i < live; ++i) {
      program.push_back(binary(ElementWiseOperation::kPROD, last, 1));
      last = static_cast<int>(program.size()) - 1;
    }
    int sum = last;
    for (int i = last - 1; i >= 2; --i) {
      program.push_back(binary(ElementWiseOperation::kSUM, sum, i));
      sum = static_cast<int>(program.size()) - 1;
    }
    const Pointwise op = make(program, {sum});
    const Values x = random_values({5000}, 3);
    double factor = 0;
    for (int i = 1; i <= live; ++i) factor += std::pow(1.001, i);
    expect_close(run(op, {{x}}, {{x.shape}})[0],
                 make_values(x.shape, [&](int64_t i) { return x[i] * factor; }), 1e-4);
  }
}

TEST(Pointwise, ScalarsAndTensorsWithoutElements) {
  const Pointwise op = make({input(0), input(1), binary(ElementWiseOperation::kSUM, 0, 1)}, {2});
  expect_close(run(op, {{{Shape{}, {2}}}, {{Shape{}, {3}}}}, {{Shape{}}})[0], {Shape{}, {5}}, 0);
  EXPECT_EQ(run(op, {{{Shape{3, 0}, {}}}, {{Shape{1}, {3}}}}, {{{3, 0}}})[0].size(), 0);
}

TEST(Pointwise, FollowsChangingShapes) {
  const Pointwise op = make({input(0), input(1), binary(ElementWiseOperation::kSUM, 0, 1)}, {2});
  const std::vector<TestInput> first = {{random_values({4, 1}, 1)}, {random_values({1}, 2)}};
  const std::vector<Shape> max = {{4, 7000}, {7000}};
  TestKernel kernel(op, candidates_of(op, first, std::vector<TestOutput>{{{4, 1}}}).at(0), first,
                    std::vector<TestOutput>{{{4, 1}}}, {}, max, std::span(max).first(1));
  for (const int64_t n : {100, 3, 64, 1, 7000}) {
    const std::vector<TestInput> inputs = {{random_values({4, n}, 3)}, {random_values({n}, 4)}};
    const Values y = kernel.run(inputs, std::vector<TestOutput>{{{4, n}}})[0];
    expect_close(
        y,
        make_values({4, n},
                    [&](int64_t i) { return inputs[0].values[i] + inputs[1].values[i % n]; }),
        1e-6);
  }
}

}  // namespace
}  // namespace opwright::testing
