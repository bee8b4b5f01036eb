#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "network/operator.h"
#include "opwright/plugin_base.h"
#include "plugin/registry/called_plugin.h"
#include "plugin/registry/fields.h"

namespace opwright {

class ExprBuilder;
class StoredPorts;

/// Whether the plugin is of the Quick family: its core part says so.
bool is_quick(IPluginV3& plugin);
/// Throws Error when the plugin cannot be cloned.
std::unique_ptr<IPluginV3> clone_of(IPluginV3& plugin);

/// What the two families of V3 plugins, One and Quick, have in common: a plugin that is owned, its
/// identity, and the questions that both answer.
class V3PluginBase : public CalledPlugin {
 public:
  virtual ~V3PluginBase() = default;
  IPluginV3& object() const { return *object_; }

  /// Whether there is a build part, which what follows needs, but for check_ports() and
  /// fields().
  virtual bool has_build() const = 0;
  int num_outputs(std::string_view layer) const;
  /// The input that the output is aliased to, or -1. Throws Error for an input that is not there.
  int aliased_input(std::string_view layer, int output, int num_inputs) const;
  /// Types and shapes of the outputs. The last `num_shape_inputs` inputs of the context are shape
  /// tensors. `builder` gives the expressions that the plugin sees.
  std::vector<OutputInfo> infer(InferContext& context, ExprBuilder& builder, int num_inputs,
                                int num_shape_inputs) const;
  /// Throws Error where the ports that a plan stores are not as the plugin says: their number,
  /// shape inputs, and aliases. Without a build part only the inputs are known.
  void check_ports(const StoredPorts& ports, const KernelArgs& args, int num_inputs,
                   int num_shape_inputs) const;
  /// The tactics for the last configuration, 0 where there are none.
  std::vector<int32_t> tactics(std::string_view layer) const;
  /// getTimingCacheID(): null where the plugin gives none.
  const char* timing_cache_id() const;
  /// getMetadataString(), empty where the plugin gives none.
  std::string metadata() const;
  /// getFieldsToSerialize().
  FieldValues fields() const;

 protected:
  explicit V3PluginBase(std::unique_ptr<IPluginV3> object)
      : code_(keep_code(*object)), object_(std::move(object)) {}
  V3PluginBase(V3PluginBase&&) = default;

  /// The core part, which must be there, of one of these interfaces.
  IPluginCapability* core(std::initializer_list<std::string_view> kinds) const;
  /// Throws Error when the plugin cannot be cloned.
  std::unique_ptr<IPluginV3> clone_object() const;
  /// Null where there is none. Throws Error when it is not of one of these interfaces.
  IPluginCapability* part(PluginCapabilityType type, const char* what,
                          std::initializer_list<std::string_view> kinds) const;
  /// To be called once, with the core part.
  template <class Core>
  void identify(const Core& core) {
    const char* const name = call({}, [&] { return core.getPluginName(); });
    const char* const version = call({}, [&] { return core.getPluginVersion(); });
    set_identity(name, version, call({}, [&] { return core.getPluginNamespace(); }));
  }

 private:
  // What both families have in the build part, which must be there.
  virtual int32_t get_num_outputs() const = 0;
  virtual int32_t get_output_types(DataType* outputs, int32_t num_outputs, const DataType* inputs,
                                   const int32_t* ranks, int32_t num_inputs) const = 0;
  virtual int32_t get_output_shapes(const DimsExprs* inputs, int32_t num_inputs,
                                    const DimsExprs* shape_inputs, int32_t num_shape_inputs,
                                    DimsExprs* outputs, int32_t num_outputs,
                                    IExprBuilder& builder) const = 0;
  virtual int32_t get_aliased_input(int32_t output) const = 0;
  virtual int32_t get_num_tactics() const = 0;
  virtual int32_t get_tactics(int32_t* tactics, int32_t count) const = 0;
  virtual const char* get_timing_cache_id() const = 0;
  virtual const char* get_metadata() const = 0;
  // Of the runtime part.
  virtual const PluginFieldCollection* get_fields() const = 0;

  void set_identity(const char* name, const char* version, const char* plugin_namespace);
  std::vector<DataType> infer_types(const InferContext& context, int num_inputs,
                                    int num_outputs) const;
  std::vector<OutputInfo> infer_shapes(const InferContext& context, ExprBuilder& builder,
                                       int num_inputs, int num_shape_inputs, int num_outputs) const;

  std::shared_ptr<const void> code_;  ///< the library that implements the plugin
  std::unique_ptr<IPluginV3> object_;
};

}  // namespace opwright
