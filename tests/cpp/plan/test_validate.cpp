#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/sample_plan.h"
#include "plan/shapes.h"

namespace opwright {
namespace {

TEST(Validate, AcceptsTheSample) { EXPECT_NO_THROW(validate(sample_plan())); }

struct Damage {
  const char* what;
  void (*apply)(Plan&);
  const char* message;
};

class ValidateDamage : public testing::TestWithParam<Damage> {};

TEST_P(ValidateDamage, IsNamed) {
  Plan plan = sample_plan();
  GetParam().apply(plan);
  try {
    validate(plan);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos)
        << error.what();
  }
}

Schedule& first(Plan& plan) { return plan.schedules[0]; }
FieldValue& field(Plan& plan, size_t number) {
  return std::get<FieldValues>(first(plan).steps[1].attributes[0].value)[number];
}
KernelLaunch& launch(Plan& plan) {
  return std::get<KernelLaunch>(first(plan).steps[2].attributes[0].value);
}

const Damage kDamages[] = {
    {"device", [](Plan& p) { p.device_type = static_cast<DeviceType>(9); }, "device type 9"},
    {"backend", [](Plan& p) { p.backend.clear(); }, "the backend that the engine is for has no"},
    {"no_profile", [](Plan& p) { p.schedules.clear(); }, "no optimization profile"},
    {"stream_below", [](Plan& p) { first(p).steps[1].stream = -2; }, "'filter' is on stream -2"},
    {"stream_above", [](Plan& p) { first(p).steps[1].stream = 16; }, "on stream 16; at most 15"},
    {"zero_byte", [](Plan& p) { p.name = std::string("a\0b", 3); }, "zero byte"},
    {"same_names", [](Plan& p) { p.inputs[1].name = "x"; }, "used twice"},
    {"port_dims", [](Plan& p) { p.inputs[0].dims[0] = 99; }, "uses expression 99"},
    {"rank", [](Plan& p) { p.outputs[2].dims.assign(9, 0); }, "rank 9"},
    {"dtype", [](Plan& p) { p.inputs[0].type.dtype = static_cast<DataType>(50); }, "data type 50"},
    {"format", [](Plan& p) { p.inputs[0].type.format = static_cast<TensorFormat>(-1); },
     "format -1"},
    {"format_rank", [](Plan& p) { p.inputs[0].type.format = TensorFormat::kCHW16; },
     "cannot have the format"},
    {"alias", [](Plan& p) { p.outputs[1].aliased_input = 3; }, "aliased to input 3"},
    {"expression_order", [](Plan& p) { p.expressions.back().a = 1000; }, "expression"},
    {"symbol_tensor", [](Plan& p) { p.symbols[0].tensor = "z"; }, "'z'"},
    {"symbol_index", [](Plan& p) { p.symbols[0].index = 2; }, "element 2"},
    {"symbol_kind", [](Plan& p) { p.symbols[0].kind = static_cast<Symbol::Kind>(7); },
     "unknown kind 7"},
    {"bound_of_itself", [](Plan& p) { p.size_bounds[2].second = p.outputs[0].dims[0]; },
     "before its bounds"},
    {"bounds_missing", [](Plan& p) { p.size_bounds.pop_back(); }, "bounds"},
    {"field_type", [](Plan& p) { field(p, 0).type = static_cast<PluginFieldType>(14); },
     "layer 'filter': plugin field 'axes' has the unknown type 14"},
    {"field_negative_type", [](Plan& p) { field(p, 0).type = static_cast<PluginFieldType>(-1); },
     "unknown type -1"},
    {"field_other_type", [](Plan& p) { field(p, 0).type = PluginFieldType::kINT32; },
     "has 16 bytes; expected 8 for 2 of INT32"},
    {"field_size", [](Plan& p) { field(p, 0).data = Blob::copy("fifteen bytes..", 15); },
     "has 15 bytes; expected 16"},
    {"field_length", [](Plan& p) { field(p, 0).length = -2; }, "has -2 elements"},
    {"field_long", [](Plan& p) { field(p, 0).length = 2147483647; }, "expected 17179869176"},
    {"field_extents",
     [](Plan& p) {
       field(p, 1).extents = {{2, 1}};
     },
     "what its extents"},
    {"field_negative_extents",
     [](Plan& p) {
       field(p, 1).extents = {{-1, -1}};
     },
     "what its extents"},
    {"field_overflow",
     [](Plan& p) {
       field(p, 1).extents = {{1LL << 62, 4}};
     },
     "what its extents"},
    {"field_texts",
     [](Plan& p) {
       field(p, 2).extents = {{3, 3}};
     },
     "what its extents"},
    {"field_texts_overflow",
     [](Plan& p) {
       field(p, 2).extents = {{9223372036854775807LL, 9223372036854775807LL, 7}};
     },
     "what its extents"},
    {"launch_grid", [](Plan& p) { launch(p).grid[1] = 3; },
     "layer 'pad': the launch of a compiled kernel has expression 3 of 3 as an extent of its grid"},
    {"launch_block", [](Plan& p) { launch(p).block[2] = -1; }, "expression -1 of 3 as an extent"},
    {"launch_shared", [](Plan& p) { launch(p).shared_memory = 99; }, "as its shared memory"},
    {"launch_argument", [](Plan& p) { launch(p).arguments[1].value = 3; }, "as an argument"},
    {"launch_argument_type",
     [](Plan& p) { launch(p).arguments[1].type = static_cast<ArgumentType>(7); },
     "an argument of the unknown type 7"},
    {"launch_arguments", [](Plan& p) { launch(p).arguments.resize(70000); },
     "more arguments than any kernel takes"},
    {"map_type", [](Plan& p) { launch(p).maps[0].type = DataType::kINT32; }, "of the type 3"},
    {"map_input", [](Plan& p) { launch(p).maps[0].input = -1; }, "of input -1"},
    {"map_extent", [](Plan& p) { launch(p).maps[0].extents[1] = 99; }, "part of a tensor map"},
    {"map_corner", [](Plan& p) { launch(p).maps[1].upper[1] = -1; }, "part of a tensor map"},
    {"map_axes", [](Plan& p) { launch(p).maps[0].extents.resize(6); }, "of 6 axes"},
    {"map_strides", [](Plan& p) { launch(p).maps[0].strides.pop_back(); }, "with 1 strides"},
    {"map_steps", [](Plan& p) { launch(p).maps[1].steps[1] = 9; }, "with a step of 9"},
    {"map_box", [](Plan& p) { launch(p).maps[0].box[1] = 257; }, "with a box of extent 257"},
    {"map_row", [](Plan& p) { launch(p).maps[1].box[0] = 32; }, "with rows of 32 elements"},
    {"map_corners", [](Plan& p) { launch(p).maps[1].lower.pop_back(); }, "with corners of"},
    {"map_count", [](Plan& p) { launch(p).maps.resize(17); }, "17 tensor maps"},
    {"launch_scratch", [](Plan& p) { launch(p).scratch[0] = -5; }, "the size of a scratch buffer"},
    {"launch_shape_input", [](Plan& p) { launch(p).shape_inputs[0] = -1; }, "which is no input"},
    {"launch_check", [](Plan& p) { launch(p).checks[0].condition = 3; }, "as a condition"},
    {"launch_order", [](Plan& p) { launch(p).program[2].a = 2; }, "an expression that is none"},
    {"launch_operation", [](Plan& p) { launch(p).program[0].op = static_cast<ExprOp>(200); },
     "an expression that is none"},
    {"launch_of_refit",
     [](Plan& p) {
       p.refit.operations[0].attributes.push_back({"launch", KernelLaunch{}});
     },
     "expression 0 of 0"},
    {"profile_order", [](Plan& p) { first(p).inputs[0].min[0] = 100; }, "not ordered"},
    {"profile_constant", [](Plan& p) { first(p).inputs[0].max[1] = 4; }, "constant 3"},
    {"profile_count", [](Plan& p) { first(p).inputs.pop_back(); }, "2 of 3 inputs"},
    {"profile_values", [](Plan& p) { first(p).inputs[2].values = false; }, "holds a shape"},
    {"refit_name", [](Plan& p) { p.refit.weights[1].name = "weights"; }, "used twice"},
    {"refit_dtype", [](Plan& p) { p.refit.weights[0].dtype = static_cast<DataType>(77); },
     "data type 77"},
    {"refit_shape", [](Plan& p) { p.refit.weights[0].shape = {-3}; }, "the shape -3"},
    {"refit_overflow",
     [](Plan& p) {
       p.refit.values[1].shape = {1LL << 30, 1LL << 30, 1LL << 30};
     },
     "63 bits"},
    {"refit_bytes", [](Plan& p) { p.refit.weights[1].data = floats({1}); }, "have 4 bytes"},
    {"refit_role", [](Plan& p) { p.refit.weights[0].uses[0].role = 6; }, "unknown role 6"},
    {"refit_constant", [](Plan& p) { p.refit.values[0].data = Blob(); }, "value 2 has 0 bytes"},
    {"refit_result_bytes",
     [](Plan& p) {
       p.refit.values[1].data = floats({1, 2, 3});
     },
     "value 3 has 12 bytes"},
    {"refit_operand", [](Plan& p) { p.refit.operations[0].inputs[1] = 4; }, "reads value 4 of 4"},
    {"refit_order", [](Plan& p) { p.refit.operations[0].inputs[1] = 3; }, "given later"},
    {"refit_overwrites", [](Plan& p) { p.refit.operations[0].outputs = {0}; }, "a weight or given"},
    {"refit_source", [](Plan& p) { first(p).tensors[2].source = 9; }, "made of value 9 of 4"},
    {"refit_source_shape", [](Plan& p) { first(p).tensors[3].source = 0; }, "has the shape 2"},
    {"refit_no_weight", [](Plan& p) { first(p).tensors[4].source = 0; }, "is no weight"},
    {"refit_packed",
     [](Plan& p) {
       first(p).tensors[2].source = -1, first(p).steps[0].inputs[2] = 3,
       first(p).steps[0].candidate.inputs[2] = first(p).tensors[3].type;
     },
     "not recorded"},
    {"arena_end", [](Plan& p) { first(p).arena_size = 256; }, "arena of 256"},
    {"arena_alignment", [](Plan& p) { first(p).tensors[5].offset = 130; }, "not aligned"},
    {"arena_overflow", [](Plan& p) { first(p).tensors[5].size = ~uint64_t{0}; }, "arena"},
    {"arena_small", [](Plan& p) { first(p).tensors[4].size = 95; }, "takes 96 bytes"},
    {"input_index", [](Plan& p) { first(p).tensors[0].index = 3; }, "input 3 of 3"},
    {"input_type", [](Plan& p) { first(p).tensors[0].type.dtype = DataType::kHALF; }, "differs"},
    {"input_view_bytes", [](Plan& p) { first(p).tensors[0].dims.push_back(p.inputs[0].dims[1]); },
     "takes 288 bytes at the profile's maximum, network input 'x', in whose memory it lies, has "
     "96"},
    {"input_view_aliased",
     [](Plan& p) { std::swap(first(p).tensors[1].dims[0], first(p).tensors[1].dims[1]); },
     "differs from network input 'y'"},
    {"output_view_size", [](Plan& p) { first(p).tensors[8].dims = p.inputs[0].dims; },
     "network output 'out', but one of their shapes depends on a size tensor"},
    {"weight_size",
     [](Plan& p) {
       first(p).tensors[3].data = floats({1, 2, 3});
     },
     "12 bytes"},
    {"weight_dims", [](Plan& p) { first(p).tensors[3].dims[0] = p.inputs[0].dims[0]; }, "dynamic"},
    {"weight_gone",
     [](Plan& p) {
       first(p).tensors[2].source = -1;
       first(p).steps[0].packed.clear();
     },
     "holds no data"},
    {"values_count", [](Plan& p) { first(p).tensors[7].values.pop_back(); }, "1 values"},
    {"values_format",
     [](Plan& p) {
       PlanTensor& tensor = first(p).tensors[7];
       tensor.dims.assign(4, tensor.dims[0]);
       tensor.type.format = TensorFormat::kCHW32;
     },
     "LINEAR"},
    {"values_index", [](Plan& p) { first(p).tensors[7].values[0] = -5; }, "expression -5"},
    {"location", [](Plan& p) { first(p).tensors[4].location = PlanTensor::Location(8); },
     "location 8"},
    {"step_input", [](Plan& p) { first(p).steps[1].inputs[0] = 400; }, "tensor 400"},
    {"step_output", [](Plan& p) { first(p).steps[1].outputs[0] = -1; }, "tensor -1"},
    {"step_order", [](Plan& p) { std::swap(first(p).steps[0], first(p).steps[1]); },
     "no earlier layer writes"},
    {"step_types", [](Plan& p) { first(p).steps[0].candidate.inputs.pop_back(); }, "types for"},
    {"step_type", [](Plan& p) { first(p).steps[0].candidate.inputs[0].dtype = DataType::kINT8; },
     "another type"},
    {"step_code", [](Plan& p) { first(p).steps[1].code[0] = 4; }, "code object 4"},
    {"library_index", [](Plan& p) { p.plugin_libraries[0] = 4; }, "code object 4 of 4"},
    {"library_negative", [](Plan& p) { p.plugin_libraries[0] = -1; }, "code object -1"},
    {"library_harmless", [](Plan& p) { p.plugin_libraries[0] = 1; }, "not marked"},
    {"library_twice", [](Plan& p) { p.plugin_libraries.push_back(2); }, "listed twice"},
    {"source_index", [](Plan& p) { p.plugin_sources[0] = 9; }, "code object 9 of 4"},
    {"source_harmless", [](Plan& p) { p.code[3].host = false; }, "not marked"},
    {"source_and_library", [](Plan& p) { p.plugin_sources[0] = 2; }, "listed twice"},
    {"packed_twice",
     [](Plan& p) { first(p).steps[0].packed.push_back(first(p).steps[0].packed[0]); }, "twice"},
    {"packed_range", [](Plan& p) { first(p).steps[0].packed[0].input = 3; }, "packs input 3"},
    {"packed_tensor", [](Plan& p) { first(p).steps[0].packed[0].input = 0; }, "is no weight"},
    {"writes_weight", [](Plan& p) { first(p).steps[0].outputs[0] = 3; }, "constant"},
    {"writes_twice", [](Plan& p) { first(p).steps[2].outputs[0] = 6; }, "written before"},
    {"size_symbol", [](Plan& p) { first(p).steps[1].size_symbols[0] = 0; }, "no size tensor"},
    {"size_twice", [](Plan& p) { first(p).steps[1].size_symbols[1] = 2; }, "written twice"},
    {"size_output",
     [](Plan& p) {
       first(p).steps[1].size_symbols = {-1, 2};
     },
     "not an INT32 or INT64 scalar"},
    {"size_unknown", [](Plan& p) { first(p).steps[1].size_symbols.clear(); }, "before the size"},
    {"output_missing", [](Plan& p) { first(p).copies.pop_back(); }, "no layer writes output"},
    {"copy_twice",
     [](Plan& p) {
       first(p).copies.push_back({1, 1});
     },
     "written before"},
    {"copy_shape", [](Plan& p) { first(p).copies[1].tensor = 0; }, "in type, format or shape"},
    {"copy_range", [](Plan& p) { first(p).copies[1].tensor = -1; }, "tensor -1"},
    {"debug_range", [](Plan& p) { first(p).debug[0].tensor = 99; }, "tensor 99 of"},
    {"debug_no_data",
     [](Plan& p) {
       first(p).tensors[2].source = -1;
       first(p).debug[0].tensor = 2;
     },
     "never written"},
    {"debug_not_written",
     [](Plan& p) {
       first(p).tensors.push_back(first(p).tensors[4]);
       first(p).debug[0].tensor = static_cast<int32_t>(first(p).tensors.size()) - 1;
     },
     "debug tensor 'x' is tensor 'h', which is never written"},
    {"debug_format",
     [](Plan& p) {
       first(p).tensors.push_back(first(p).tensors[3]);
       first(p).tensors.back().source = -1;
       first(p).tensors.back().type.format = TensorFormat::kHWC;
       first(p).tensors.back().dims = {first(p).tensors[2].dims[0], first(p).tensors[2].dims[0],
                                       first(p).tensors[2].dims[0]};
       first(p).tensors.back().data = floats(std::vector<float>(27));
       first(p).debug[1].tensor = static_cast<int32_t>(first(p).tensors.size()) - 1;
     },
     "in the format HWC, not LINEAR"},
};
INSTANTIATE_TEST_SUITE_P(All, ValidateDamage, testing::ValuesIn(kDamages),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(Shapes, ProfileValuesTakeSizesAtTheirBounds) {
  const Plan plan = sample_plan();
  const ProfileValues values(plan, plan.schedules[0].inputs);
  const auto& dims = plan.outputs[0].dims;  // [count, 3] with count <= n, opt ceil(n / 2)
  EXPECT_EQ(values.shape(dims, OptProfileSelector::kMIN), Shape({1, 3}));
  EXPECT_EQ(values.shape(dims, OptProfileSelector::kOPT), Shape({2, 3}));
  EXPECT_EQ(values.shape(dims, OptProfileSelector::kMAX), Shape({8, 3}));
  EXPECT_EQ(values.largest_bytes({}, dims), 96u);
}

TEST(Shapes, ResolvingStepIsTheOneThatWritesTheSize) {
  const Plan plan = sample_plan();
  const auto known = resolving_steps(plan, plan.schedules[0]);
  EXPECT_EQ(known[plan.inputs[0].dims[0]], -1);
  EXPECT_EQ(known[plan.outputs[0].dims[0]], 1);
}

}  // namespace
}  // namespace opwright
