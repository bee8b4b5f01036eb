#include "backend/cpu/dnnl_program.h"

#include "backend/cpu/dnnl_memory.h"
#include "base/error.h"
#include "base/half.h"
#include "base/parallel.h"
#include "base/types.h"

namespace opwright {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

void convert_all(const void* from, DataType from_type, void* to, DataType to_type,
                 int64_t elements) {
  constexpr int64_t kGrain = 16384;
  const int64_t from_size = bits(from_type) / 8, to_size = bits(to_type) / 8;
  parallel_for(elements, kGrain, [&](int64_t begin, int64_t end) {
    convert(static_cast<const std::byte*>(from) + begin * from_size, from_type,
            static_cast<std::byte*>(to) + begin * to_size, to_type, end - begin);
  });
}

}  // namespace

Operand DnnlProgram::input(int index, dnnl::memory::desc desc) const {
  return {Operand::Source::kInput, static_cast<size_t>(index), nullptr, std::move(desc)};
}

Operand DnnlProgram::output(int index, dnnl::memory::desc desc) const {
  return {Operand::Source::kOutput, static_cast<size_t>(index), nullptr, std::move(desc)};
}

Operand DnnlProgram::constant(const void* data, dnnl::memory::desc desc) const {
  return {Operand::Source::kConstant, 0, data, std::move(desc)};
}

Operand DnnlProgram::constant(Blob data, dnnl::memory::desc desc) {
  constants_.push_back(std::move(data));
  return constant(constants_.back().data(), std::move(desc));
}

Operand DnnlProgram::temporary(dnnl::memory::desc desc) {
  const size_t offset = temporaries_;
  temporaries_ += aligned(desc.get_size());
  return {Operand::Source::kTemporary, offset, nullptr, std::move(desc)};
}

Operand DnnlProgram::as(const Operand& operand, const dnnl::memory::desc& desc) {
  if (operand.desc == desc) return operand;
  Operand result = temporary(desc);
  copy(operand, result);
  return result;
}

Operand DnnlProgram::staging(const Operand& target, const dnnl::memory::desc& desc) {
  return target.desc == desc ? target : temporary(desc);
}

void DnnlProgram::copy(const Operand& from, const Operand& to) {
  const bool same = from.source == to.source && from.position == to.position;
  if (same && from.source != Operand::Source::kConstant) return;
  require(from.desc.get_dims() == to.desc.get_dims(),
          "a tensor cannot be reordered into one of other extents");
  const dnnl::reorder::primitive_desc desc(dnnl_engine(), from.desc, dnnl_engine(), to.desc,
                                           workspace_attributes(), /*allow_empty=*/true);
  const bool same_type = from.desc.get_data_type() == to.desc.get_data_type();
  const bool simple_layouts = has_port_layout(from.desc) && has_port_layout(to.desc);
  if (!desc || (!same_type && simple_layouts && is_reference(desc.impl_info_str()))) {
    // oneDNN refuses to convert types for which the processor has no arithmetic, or is slow.
    require(!same_type, "oneDNN cannot reorder these layouts");
    if (to.desc == with_type(from.desc, to.desc.get_data_type())) {
      convert_elements(from, to);
    } else if (to.desc.get_data_type() == dnnl::memory::data_type::f32) {
      const Operand widened = temporary(with_type(from.desc, to.desc.get_data_type()));
      convert_elements(from, widened);
      copy(widened, to);
    } else {
      const Operand wide = temporary(with_type(to.desc, dnnl::memory::data_type::f32));
      copy(from, wide);
      convert_elements(wide, to);
    }
    return;
  }
  add(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  steps_.back().is_copy = from.desc == to.desc;
}

void DnnlProgram::add(const dnnl::primitive_desc_base& desc,
                      std::initializer_list<std::pair<int, Operand>> arguments) {
  add(desc, std::vector<std::pair<int, Operand>>(arguments));
}

void DnnlProgram::add(const dnnl::primitive_desc_base& desc,
                      const std::vector<std::pair<int, Operand>>& arguments) {
  if (!stream_) stream_ = dnnl::stream(dnnl_engine());
  Step step;
  step.primitive = dnnl::primitive(desc.get());
  const auto add_argument = [&](int argument, const Operand& operand) {
    const bool fixed = operand.source == Operand::Source::kConstant;
    step.memories.emplace_back(operand.desc, dnnl_engine(),
                               fixed ? const_cast<void*>(operand.data) : DNNL_MEMORY_NONE);
    step.arguments.push_back({argument, step.memories.back().get()});
    if (!fixed)
      step.bindings.push_back(
          {operand.source, operand.position, step.memories.back().get(), nullptr});
  };
  for (const auto& [argument, operand] : arguments) add_argument(argument, operand);
  const dnnl::memory::desc scratchpad = desc.scratchpad_desc();
  if (scratchpad.get_size() > 0) {
    add_argument(DNNL_ARG_SCRATCHPAD, {Operand::Source::kScratchpad, 0, nullptr, scratchpad});
    scratchpad_ = std::max(scratchpad_, aligned(scratchpad.get_size()));
  }
  steps_.push_back(std::move(step));
}

void DnnlProgram::convert_elements(const Operand& from, const Operand& to) {
  Step step;
  step.from = from_dnnl(from.desc.get_data_type());
  step.to = from_dnnl(to.desc.get_data_type());
  step.elements = static_cast<int64_t>(from.desc.get_size()) * 8 / bits(step.from);
  for (const Operand* operand : {&from, &to})
    step.bindings.push_back(
        {operand->source, operand->position, nullptr, const_cast<void*>(operand->data)});
  steps_.push_back(std::move(step));
}

void DnnlProgram::run(void const* const* inputs, void* const* outputs, void* workspace) {
  const auto address_of = [&](const Binding& binding) -> void* {
    switch (binding.source) {
      case Operand::Source::kInput:
        return const_cast<void*>(inputs[binding.position]);
      case Operand::Source::kOutput:
        return outputs[binding.position];
      case Operand::Source::kConstant:
        return binding.address;
      case Operand::Source::kScratchpad:
        return static_cast<std::byte*>(workspace) + temporaries_;
      default:
        return static_cast<std::byte*>(workspace) + binding.position;
    }
  };
  for (Step& step : steps_) {
    for (Binding& binding : step.bindings) {
      void* address = address_of(binding);
      if (address == binding.address) continue;
      if (binding.memory) dnnl_memory_set_data_handle(binding.memory, address);
      binding.address = address;
    }
    if (!step.primitive) {
      convert_all(step.bindings[0].address, step.from, step.bindings[1].address, step.to,
                  step.elements);
      continue;
    }
    if (step.is_copy && step.bindings.size() >= 2 &&
        step.bindings[0].address == step.bindings[1].address)
      continue;
    const dnnl_status_t status =
        dnnl_primitive_execute(step.primitive.get(), stream_.get(),
                               static_cast<int>(step.arguments.size()), step.arguments.data());
    if (status != dnnl_success)
      fail_with(ErrorCode::kFAILED_EXECUTION, "oneDNN could not run ", description, ": status ",
                static_cast<int>(status), ".");
  }
}

dnnl::primitive_attr workspace_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

void reorder_now(const void* from, const dnnl::memory::desc& from_desc, void* to,
                 const dnnl::memory::desc& to_desc) {
  using dnnl::memory;
  const DataType type = from_dnnl(from_desc.get_data_type());
  if (from_desc.get_data_type() != to_desc.get_data_type() && type != DataType::kFLOAT) {
    // Converts through FP32, which oneDNN reorders on every processor.
    const memory::desc wide = with_type(from_desc, memory::data_type::f32);
    const Blob widened = Blob::make(wide.get_size(), [&](void* bytes) {
      convert_all(from, type, bytes, DataType::kFLOAT, from_desc.get_size() * 8 / bits(type));
    });
    reorder_now(widened.data(), wide, to, to_desc);
    return;
  }
  dnnl::memory source(from_desc, dnnl_engine(), const_cast<void*>(from));
  dnnl::memory target(to_desc, dnnl_engine(), to);
  dnnl::stream stream(dnnl_engine());
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

}  // namespace opwright
