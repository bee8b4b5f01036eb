#include "network/operator.h"

#include <gtest/gtest.h>

#include "network/operator_registry.h"
#include "network/test_operators.h"

namespace opwright {
namespace {

enum class Mode : int32_t { kFirst, kSecond };

struct Params {
  bool flag = true;
  Mode mode = Mode::kSecond;
  int8_t small = -3;
  double factor = 0.1;
  float single = 0.25f;
  std::string text = "a \"b\"";
  Ints ints{1, -2};
  Floats floats{0.5, 1e300};
  Blob blob = Blob::copy("xyz", 3);
  template <class V>
  void visit(V& v) {
    v("flag", flag), v("mode", mode), v("small", small), v("factor", factor), v("single", single);
    v("text", text), v("ints", ints), v("floats", floats), v("blob", blob);
  }
};

Attributes written(Params params) {
  AttributeWriter writer;
  params.visit(writer);
  return writer.attributes;
}

TEST(Attributes, GoThereAndBack) {
  const Attributes attributes = written({});
  Params params;
  params.flag = false, params.mode = Mode::kFirst, params.small = 0, params.factor = 0,
  params.single = 0, params.text = "", params.ints = {}, params.floats = {}, params.blob = {};
  AttributeReader reader("Test", attributes);
  params.visit(reader);
  EXPECT_EQ(written(params), attributes);
  EXPECT_EQ(params.mode, Mode::kSecond);
  EXPECT_EQ(params.factor, 0.1);
}

TEST(Attributes, TextIdentifiesThem) {
  const std::string all = str(written({}));
  EXPECT_TRUE(all.starts_with(
      R"(flag=1 mode=1 small=-3 factor=0.1 single=0.25 text="a \"b\"" ints=[1, -2] floats=[0.5, 1e+300] blob=3 bytes #)"))
      << all;
  Params other;
  other.blob = Blob::copy("xyy", 3);
  EXPECT_NE(str(written(other)), all);
  EXPECT_NE(str(Attributes{{"a", 1.0000000000000002}}), str(Attributes{{"a", 1.0}}));
}

TEST(Attributes, WrongOnesAreRejected) {
  const auto message = [](const Attributes& attributes) {
    return error_of([&] {
      AttributeReader reader("Test", attributes);
      int8_t member = 0;
      reader("a", member);
    });
  };
  EXPECT_EQ(message({{"a", int64_t{127}}}), "no error");
  EXPECT_EQ(message({}), "Test: the attribute 'a' is missing");
  EXPECT_EQ(message({{"a", std::string("1")}}),
            "Test: the attribute 'a' must be an integer, not a string");
  EXPECT_EQ(message({{"a", int64_t{128}}}), "Test: the attribute 'a' cannot be 128");
  EXPECT_EQ(find(Attributes{{"a", int64_t{1}}}, "b"), nullptr);
}

TEST(Operator, TimingKeyIsKindAndAttributes) {
  EXPECT_EQ(Grow({.amount = 5}).timing_key(), "Grow amount=5 axis=0");
}

class StoredGrow final : public PlannedOperator {
 public:
  explicit StoredGrow(int64_t amount) : amount_(amount) {}
  std::string_view kind() const override { return "test_grow"; }
  std::vector<OutputInfo> infer(InferContext&) const override { return {}; }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs&) const override { return nullptr; }
  Attributes attributes() const override { return {{"amount", amount_}}; }

 private:
  const int64_t amount_;
};

TEST(OperatorRegistry, LoadsRegisteredKinds) {
  register_operator_kind("test_grow", [](const Attributes& attributes, const OperatorLoadContext&) {
    return std::make_shared<StoredGrow>(std::get<int64_t>(*find(attributes, "amount")));
  });
  OperatorLoadContext context;
  context.layer = "l";
  const Attributes stored{{"amount", int64_t{9}}};
  EXPECT_EQ(load_operator("test_grow", stored, context)->attributes(), stored);
  EXPECT_EQ(error_of([&] { load_operator("test_unknown", {}, context); }),
            "layer 'l': there is no operator of the kind 'test_unknown' in this version of the "
            "library");
  register_operator_kind("test_grow",
                         [](const Attributes&, const OperatorLoadContext&) { return nullptr; });
  EXPECT_THROW(load_operator("test_grow", {}, context), Error);
}

}  // namespace
}  // namespace opwright
