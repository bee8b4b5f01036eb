// The example plugins, driven through their interfaces as an engine would. Expected values come
// from the definition of circular padding: out[i] = in[(i - before) mod n].

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "NvInfer.h"

namespace {

using namespace nvinfer1;

/// Plugins stay loaded: their creators are registered for the life of the process.
IPluginCreatorV3One* load_creator(std::string const& name) {
  std::string const path = std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/" + name + ".so";
  if (dlopen(path.c_str(), RTLD_NOW) == nullptr) {
    ADD_FAILURE() << dlerror();
    return nullptr;
  }
  IPluginCreatorInterface* const creator = getPluginRegistry()->getCreator(name.c_str(), "1", "");
  if (creator == nullptr ||
      std::strcmp(creator->getInterfaceInfo().kind, "PLUGIN CREATOR_V3ONE") != 0) {
    ADD_FAILURE() << name << " did not register a V3 creator";
    return nullptr;
  }
  return static_cast<IPluginCreatorV3One*>(creator);
}

std::unique_ptr<IPluginV3> make_circ_pad(std::vector<int32_t> const& pads) {
  PluginField const field("pads", pads.data(), PluginFieldType::kINT32,
                          static_cast<int32_t>(pads.size()));
  PluginFieldCollection const fields{1, &field};
  return std::unique_ptr<IPluginV3>(
      load_creator("circ_pad_plugin")->createPlugin("layer", &fields, TensorRTPhase::kBUILD));
}

IPluginV3OneRuntime* runtime_part(IPluginV3& plugin) {
  return static_cast<IPluginV3OneRuntime*>(
      plugin.getCapabilityInterface(PluginCapabilityType::kRUNTIME));
}

PluginTensorDesc describe(std::vector<int64_t> const& shape, DataType type) {
  PluginTensorDesc desc{};
  desc.dims.nbDims = static_cast<int32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) desc.dims.d[i] = shape[i];
  desc.type = type;
  return desc;
}

template <typename T>
std::vector<T> run(IPluginV3& plugin, int32_t tactic, std::vector<int64_t> const& in_shape,
                   std::vector<T> const& input, std::vector<int64_t> const& out_shape,
                   DataType type) {
  PluginTensorDesc const in = describe(in_shape, type);
  PluginTensorDesc const out = describe(out_shape, type);
  size_t count = 1;
  for (int64_t extent : out_shape) count *= static_cast<size_t>(extent);
  std::vector<T> output(count + 1, T{99});  // One more, to see writes past the end.
  IPluginV3OneRuntime& runtime = *runtime_part(plugin);
  EXPECT_EQ(runtime.setTactic(tactic), 0);
  EXPECT_EQ(runtime.onShapeChange(&in, 1, &out, 1), 0);
  void const* const inputs[] = {input.data()};
  void* const outputs[] = {output.data()};
  EXPECT_EQ(runtime.enqueue(&in, &out, inputs, outputs, nullptr, nullptr), 0);
  EXPECT_EQ(output.back(), T{99});
  output.pop_back();
  return output;
}

TEST(CircPadPlugin, PadsLastDimensionsFirst) {
  // Last dimension: one before, two after; the one before it: two before, none after.
  auto const plugin = make_circ_pad({1, 2, 2, 0});
  ASSERT_NE(plugin, nullptr);
  std::vector<float> const input = {1, 2, 3, 4, 5, 6};  // 2 x 3
  std::vector<float> const expected = {3, 1, 2, 3, 1, 2, 6, 4, 5, 6, 4, 5,
                                       3, 1, 2, 3, 1, 2, 6, 4, 5, 6, 4, 5};
  for (int32_t tactic : {1, 2}) {
    EXPECT_EQ(run(*plugin, tactic, {2, 3}, input, {4, 6}, DataType::kFLOAT), expected);
    EXPECT_EQ(run(*plugin, tactic, {1, 2, 3}, input, {1, 4, 6}, DataType::kFLOAT), expected);
  }
}

TEST(CircPadPlugin, PadsByMoreThanTheExtent) {
  auto const plugin = make_circ_pad({3, 4});
  ASSERT_NE(plugin, nullptr);
  std::vector<float> const expected = {2, 1, 2, 1, 2, 1, 2, 1, 2};
  for (int32_t tactic : {1, 2}) {
    EXPECT_EQ(run<float>(*plugin, tactic, {2}, {1, 2}, {9}, DataType::kFLOAT), expected);
  }
}

TEST(CircPadPlugin, PadsHalfFloats) {
  auto const plugin = make_circ_pad({1, 1});
  ASSERT_NE(plugin, nullptr);
  std::vector<uint16_t> const expected = {12, 10, 11, 12, 10};
  for (int32_t tactic : {1, 2}) {
    EXPECT_EQ(run<uint16_t>(*plugin, tactic, {3}, {10, 11, 12}, {5}, DataType::kHALF), expected);
  }
}

TEST(CircPadPlugin, SerializesItsPads) {
  auto const plugin = make_circ_pad({1, 2});
  ASSERT_NE(plugin, nullptr);
  PluginFieldCollection const& fields = *runtime_part(*plugin)->getFieldsToSerialize();
  std::unique_ptr<IPluginV3> const copy(
      load_creator("circ_pad_plugin")->createPlugin("layer", &fields, TensorRTPhase::kRUNTIME));
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(run<float>(*copy, 2, {2}, {1, 2}, {5}, DataType::kFLOAT),
            (std::vector<float>{2, 1, 2, 1, 2}));
}

TEST(CircPadPlugin, RefusesWrongFields) {
  EXPECT_EQ(make_circ_pad({1, 2, 3}), nullptr);  // Not in pairs.
  EXPECT_EQ(make_circ_pad({-1, 0}), nullptr);
  PluginFieldCollection const none{};
  EXPECT_EQ(load_creator("circ_pad_plugin")->createPlugin("layer", &none, TensorRTPhase::kBUILD),
            nullptr);
}

/// The C++ sample, made with pads and remade from its bytes, on a tensor of 1, 2, 3, ...
std::vector<float> run_sample(std::vector<int32_t> const& pads,
                              std::vector<int64_t> const& in_shape,
                              std::vector<int64_t> const& out_shape) {
  std::string const path = std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/circ_pad_sample.so";
  if (dlopen(path.c_str(), RTLD_NOW) == nullptr) {
    ADD_FAILURE() << dlerror();
    return {};
  }
  auto* const creator =
      static_cast<IPluginCreator*>(getPluginRegistry()->getCreator("CircPadPlugin", "1", ""));
  PluginField const field("pads", pads.data(), PluginFieldType::kINT32,
                          static_cast<int32_t>(pads.size()));
  PluginFieldCollection const fields{1, &field};
  IPluginV2* const made = creator->createPlugin("layer", &fields);
  if (made == nullptr) return {};
  std::vector<char> bytes(made->getSerializationSize());
  made->serialize(bytes.data());
  made->destroy();
  auto* const plugin = static_cast<IPluginV2DynamicExt*>(
      creator->deserializePlugin("layer", bytes.data(), bytes.size()));

  PluginTensorDesc const in = describe(in_shape, DataType::kFLOAT);
  PluginTensorDesc const out = describe(out_shape, DataType::kFLOAT);
  std::vector<float> input(100), output(100, -1.0F);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i + 1);
  void const* const inputs[] = {input.data()};
  void* const outputs[] = {output.data()};
  EXPECT_EQ(plugin->enqueue(&in, &out, inputs, outputs, nullptr, nullptr), 0);
  plugin->destroy();
  size_t count = 1;
  for (int64_t extent : out_shape) count *= static_cast<size_t>(extent);
  EXPECT_EQ(output[count], -1.0F);  // Nothing is written past the end.
  output.resize(count);
  return output;
}

TEST(CircPadSample, Pads) {
  EXPECT_EQ(
      run_sample({1, 2, 2, 0}, {2, 3}, {4, 6}),
      (std::vector<float>{3, 1, 2, 3, 1, 2, 6, 4, 5, 6, 4, 5, 3, 1, 2, 3, 1, 2, 6, 4, 5, 6, 4, 5}));
  EXPECT_EQ(run_sample({3, 4}, {2}, {9}), (std::vector<float>{2, 1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(run_sample({0, 0, 1, 0}, {2, 2, 1}, {2, 3, 1}), (std::vector<float>{2, 1, 2, 4, 3, 4}));
  EXPECT_EQ(run_sample({}, {}, {}), (std::vector<float>{1}));
}

TEST(CircPadSample, RefusesPadsThatAreNoPairsOrNegative) {
  EXPECT_TRUE(run_sample({1, 2, 3}, {2}, {2}).empty());
  EXPECT_TRUE(run_sample({-1, 2}, {2}, {3}).empty());
}

TEST(IdentityPlugin, Copies) {
  PluginFieldCollection const none{};
  std::unique_ptr<IPluginV3> const plugin(
      load_creator("identity_plugin")->createPlugin("layer", &none, TensorRTPhase::kBUILD));
  ASSERT_NE(plugin, nullptr);
  std::vector<uint16_t> const input = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(run(*plugin, 0, {2, 3}, input, {2, 3}, DataType::kBF16), input);
}

}  // namespace
