#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plugin/behavior.h"

namespace opwright {

/// An expression of a plugin's own, as kernels' launches are made of.
class TestSymExpr final : public ISymExpr {
 public:
  TestSymExpr() = default;
  TestSymExpr(IDimensionExpr const* expr, PluginArgDataType type = PluginArgDataType::kINT32)
      : expr_(expr), type_(type) {}
  PluginArgType getType() const noexcept override { return PluginArgType::kINT; }
  PluginArgDataType getDataType() const noexcept override { return type_; }
  void* getExpr() noexcept override { return const_cast<IDimensionExpr*>(expr_); }

 private:
  IDimensionExpr const* expr_ = nullptr;
  PluginArgDataType type_ = PluginArgDataType::kINT32;
};

/// A plugin of the Quick family whose every answer a test can set. It serializes
/// `configured_type`, the type of input 0 that configurePlugin() told.
class QuickTestPlugin final : public IPluginV3,
                              public IPluginV3QuickCore,
                              public IPluginV3QuickAOTBuild,
                              public IPluginV3QuickRuntime {
 public:
  /// The build part of plugins that are called.
  class Build final : public IPluginV3QuickBuild {
   public:
    explicit Build(QuickTestPlugin& plugin) : p_(plugin) {}
    int32_t getOutputDataTypes(DataType* out, int32_t n, DataType const* in, int32_t const* ranks,
                               int32_t m) const noexcept override {
      return p_.getOutputDataTypes(out, n, in, ranks, m);
    }
    int32_t getOutputShapes(DimsExprs const* in, int32_t n, DimsExprs const* shapes, int32_t s,
                            DimsExprs* out, int32_t m, IExprBuilder& builder) noexcept override {
      return p_.getOutputShapes(in, n, shapes, s, out, m, builder);
    }
    int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t n,
                            DynamicPluginTensorDesc const* out, int32_t m) noexcept override {
      return p_.configurePlugin(in, n, out, m);
    }
    int32_t getNbSupportedFormatCombinations(DynamicPluginTensorDesc const* ports, int32_t n,
                                             int32_t m) noexcept override {
      return p_.getNbSupportedFormatCombinations(ports, n, m);
    }
    int32_t getSupportedFormatCombinations(DynamicPluginTensorDesc const* ports, int32_t n,
                                           int32_t m, PluginTensorDesc* listed,
                                           int32_t count) noexcept override {
      return p_.getSupportedFormatCombinations(ports, n, m, listed, count);
    }
    int32_t getNbOutputs() const noexcept override { return p_.getNbOutputs(); }
    int32_t getAliasedInput(int32_t output) noexcept override { return p_.getAliasedInput(output); }
    int32_t getNbTactics() noexcept override { return p_.getNbTactics(); }
    int32_t getValidTactics(int32_t* tactics, int32_t n) noexcept override {
      return p_.getValidTactics(tactics, n);
    }

   private:
    QuickTestPlugin& p_;
  };

  explicit QuickTestPlugin(Behavior& b, int32_t configured_type = -1)
      : b_(b), configured_type_(configured_type) {
    ++b_.live;
  }
  ~QuickTestPlugin() noexcept override { --b_.live; }
  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    switch (type) {
      case PluginCapabilityType::kCORE:
        return b_.has_core ? static_cast<IPluginV3QuickCore*>(this) : nullptr;
      case PluginCapabilityType::kBUILD:
        if (!b_.has_build) return nullptr;
        return b_.aot
                   ? static_cast<IPluginV3QuickBuild*>(static_cast<IPluginV3QuickAOTBuild*>(this))
                   : &build_;
      case PluginCapabilityType::kRUNTIME:
        return b_.has_runtime && !b_.aot ? static_cast<IPluginV3QuickRuntime*>(this) : nullptr;
    }
    return nullptr;
  }
  QuickTestPlugin* clone() noexcept override {
    ++b_.clones;
    return b_.can_clone ? new QuickTestPlugin(b_, configured_type_) : nullptr;
  }
  APILanguage getAPILanguage() const noexcept override { return b_.language; }
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  char const* getPluginNamespace() const noexcept override { return b_.plugin_namespace.c_str(); }

  int32_t getOutputDataTypes(DataType* out, int32_t m, DataType const* in, int32_t const* ranks,
                             int32_t n) const noexcept override {
    b_.ranks.assign(ranks, ranks + n);
    if (b_.num_inputs >= 0 && n != b_.num_inputs) return 1;
    return b_.types(out, m, in, n);
  }
  int32_t getOutputShapes(DimsExprs const* in, int32_t n, DimsExprs const* shapes, int32_t s,
                          DimsExprs* out, int32_t m, IExprBuilder& builder) noexcept override {
    if (b_.num_inputs >= 0 && n != b_.num_inputs) return 1;
    b_.kept = in[0];
    return b_.shapes(in, n, shapes, s, out, m, builder);
  }
  int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t n,
                          DynamicPluginTensorDesc const* out, int32_t m) noexcept override {
    configured_type_ = static_cast<int32_t>(in[0].desc.type);
    return b_.configure(in, n, out, m);
  }
  int32_t getNbSupportedFormatCombinations(DynamicPluginTensorDesc const* ports, int32_t n,
                                           int32_t m) noexcept override {
    listed_ = b_.combinations.empty() ? supported_combinations(b_, ports, n, m) : b_.combinations;
    return b_.combination_count >= 0 ? b_.combination_count : static_cast<int32_t>(listed_.size());
  }
  int32_t getSupportedFormatCombinations(DynamicPluginTensorDesc const*, int32_t, int32_t,
                                         PluginTensorDesc* listed, int32_t) noexcept override {
    for (auto const& combination : listed_)
      for (auto const& [type, format] : combination) {
        listed->type = type;
        listed->format = format;
        ++listed;
      }
    return 0;
  }
  int32_t getNbOutputs() const noexcept override { return b_.num_outputs; }
  int32_t getAliasedInput(int32_t output) noexcept override { return b_.aliased(output); }
  int32_t getNbTactics() noexcept override {
    return static_cast<int32_t>(b_.tactics(static_cast<DataType>(configured_type_)).size());
  }
  int32_t getValidTactics(int32_t* tactics, int32_t) noexcept override {
    const std::vector<int32_t> all = b_.tactics(static_cast<DataType>(configured_type_));
    std::copy(all.begin(), all.end(), tactics);
    return b_.tactics_status;
  }
  int32_t setTactic(int32_t tactic) noexcept override {
    tactic_ = tactic;
    return b_.set_tactic_status;
  }
  int32_t getLaunchParams(DimsExprs const* in, DynamicPluginTensorDesc const*, int32_t, int32_t,
                          IKernelLaunchParams* launch, ISymExprs* arguments,
                          IExprBuilder& builder) noexcept override {
    return b_.launch(in, *launch, *arguments, builder, tactic_);
  }
  int32_t getKernel(PluginTensorDesc const* in, int32_t, PluginTensorDesc const*, int32_t,
                    char const** name, char** code, int32_t* size) noexcept override {
    return b_.kernel(in, name, code, size, tactic_);
  }
  int32_t enqueue(PluginTensorDesc const* in, PluginTensorDesc const* out,
                  void const* const* inputs, void* const* outputs, Dims const* input_strides,
                  Dims const* output_strides, int32_t, int32_t, cudaStream_t) noexcept override {
    b_.input_strides = input_strides;
    b_.output_strides = output_strides;
    return b_.enqueue(in, out, inputs, outputs, nullptr, tactic_);
  }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override {
    if (b_.fields_are_null) return nullptr;
    field_ = PluginField("configured_type", &configured_type_, PluginFieldType::kINT32, 1);
    fields_ = {1, &field_};
    return &fields_;
  }

 private:
  Behavior& b_;
  Build build_{*this};
  int32_t configured_type_;
  int32_t tactic_ = -1;
  std::vector<std::vector<std::pair<DataType, TensorFormat>>> listed_;
  PluginField field_;
  PluginFieldCollection fields_{};
};

class QuickTestCreator final : public IPluginCreatorV3Quick {
 public:
  explicit QuickTestCreator(Behavior& b) : b_(b) {}
  IPluginV3* createPlugin(AsciiChar const* name, AsciiChar const* nspace,
                          PluginFieldCollection const* fc, TensorRTPhase phase,
                          QuickPluginCreationRequest request) noexcept override {
    given = std::string(nspace) + "::" + name;
    last_phase = phase;
    last_request = request;
    const int32_t type = fc->nbFields == 1 ? *static_cast<int32_t const*>(fc->fields[0].data) : -1;
    last_type = type;
    return b_.can_make ? new QuickTestPlugin(b_, type) : nullptr;
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return nullptr; }
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  char const* getPluginNamespace() const noexcept override { return b_.plugin_namespace.c_str(); }

  std::string given;
  TensorRTPhase last_phase{};
  QuickPluginCreationRequest last_request{};
  int32_t last_type = -1;

 private:
  Behavior& b_;
};

}  // namespace opwright
