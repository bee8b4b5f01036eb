#pragma once

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/blob.h"
#include "opwright/types.h"

namespace opwright {

/// A tensor that a step of a DnnlProgram reads or writes.
struct Operand {
  enum class Source : uint8_t { kInput, kOutput, kTemporary, kScratchpad, kConstant };
  Source source = Source::kConstant;
  size_t position = 0;         ///< number of the input or output, or offset in the workspace
  const void* data = nullptr;  ///< kConstant
  dnnl::memory::desc desc;
};

/// Primitives that run one after another for one set of shapes. All objects are made while the
/// program is composed; run() only sets addresses.
class DnnlProgram {
 public:
  Operand input(int index, dnnl::memory::desc desc) const;
  Operand output(int index, dnnl::memory::desc desc) const;
  Operand constant(const void* data, dnnl::memory::desc desc) const;
  /// Like constant(); the program keeps the data alive.
  Operand constant(Blob data, dnnl::memory::desc desc);
  /// A tensor in the workspace.
  Operand temporary(dnnl::memory::desc desc);

  /// The operand in another layout or type: itself when they agree, else a temporary. A new step
  /// reorders the operand into the temporary.
  Operand as(const Operand& operand, const dnnl::memory::desc& desc);
  /// The operand to which a primitive that wants this layout writes `target`: the target itself, or
  /// a temporary. copy() then brings the temporary to the target.
  Operand staging(const Operand& target, const dnnl::memory::desc& desc);
  /// Adds a reorder, which does nothing at run time when both operands turn out to be the same
  /// memory.
  void copy(const Operand& from, const Operand& to);
  /// Adds a step that runs the primitive. The scratchpad is added to the arguments; the primitive
  /// must take it from the user.
  void add(const dnnl::primitive_desc_base& desc,
           std::initializer_list<std::pair<int, Operand>> arguments);
  void add(const dnnl::primitive_desc_base& desc,
           const std::vector<std::pair<int, Operand>>& arguments);

  size_t workspace_size() const { return temporaries_ + scratchpad_; }
  void run(void const* const* inputs, void* const* outputs, void* workspace);

  /// Description of the program, for people.
  std::string description;

 private:
  struct Binding {
    Operand::Source source;
    size_t position;
    dnnl_memory_t memory;
    void* address;
  };
  /// A primitive. Without a primitive, the step converts all elements of bindings[0] into
  /// bindings[1].
  struct Step {
    dnnl::primitive primitive;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
    std::vector<Binding> bindings;
    bool is_copy = false;
    int64_t elements = 0;
    DataType from = DataType::kFLOAT, to = DataType::kFLOAT;
  };
  /// Adds a conversion between types for which oneDNN has no reorder on this processor. The layouts
  /// must agree.
  void convert_elements(const Operand& from, const Operand& to);

  std::vector<Step> steps_;
  std::vector<Blob> constants_;
  size_t temporaries_ = 0;
  size_t scratchpad_ = 0;
  dnnl::stream stream_;
};

/// Attributes under which a primitive takes its scratchpad from the program's workspace.
dnnl::primitive_attr workspace_attributes();

/// Reorders at once, between any types.
void reorder_now(const void* from, const dnnl::memory::desc& from_desc, void* to,
                 const dnnl::memory::desc& to_desc);

}  // namespace opwright
