#include "backend/cpu/dnnl_kernel.h"

#include <algorithm>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"

namespace opwright {
namespace {

constexpr size_t kRecentShapes = 8;

std::vector<Shape> max_shapes(std::span<const PortDesc> ports) {
  std::vector<Shape> shapes;
  for (const PortDesc& port : ports) shapes.push_back(port.max);
  return shapes;
}

}  // namespace

std::vector<Shape> opt_shapes(std::span<const PortDesc> ports) {
  std::vector<Shape> shapes;
  for (const PortDesc& port : ports) shapes.push_back(port.opt);
  return shapes;
}

DnnlKernel::DnnlKernel(const KernelArgs& args) : layer_(args.layer), candidate_(*args.candidate) {}

DnnlKernel::~DnnlKernel() { cpu_device().free(own_workspace_); }

void DnnlKernel::prepare(const KernelArgs& args) {
  const auto plan = [&](const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
    const DnnlProgram* program = find_or_build(inputs, outputs);
    if (!program) return;
    planned_workspace_ = std::max(planned_workspace_, program->workspace_size());
    if (description_.empty()) description_ = program->description;
  };
  plan(opt_shapes(args.inputs), opt_shapes(args.outputs));
  plan(max_shapes(args.inputs), max_shapes(args.outputs));
}

DnnlProgram* DnnlKernel::find_or_build(std::span<const Shape> inputs,
                                       std::span<const Shape> outputs) {
  const auto matches = [&](const std::unique_ptr<Entry>& entry) {
    const std::vector<Shape>& shapes = entry->shapes;
    return std::equal(inputs.begin(), inputs.end(), shapes.begin()) &&
           std::equal(outputs.begin(), outputs.end(), shapes.begin() + inputs.size());
  };
  const auto found = std::find_if(recent_.begin(), recent_.end(), matches);
  if (found != recent_.end()) {
    std::rotate(recent_.begin(), found, found + 1);
    return recent_.front()->program.get();
  }

  require_countable(inputs), require_countable(outputs);
  auto entry = std::make_unique<Entry>();
  entry->shapes.assign(inputs.begin(), inputs.end());
  entry->shapes.insert(entry->shapes.end(), outputs.begin(), outputs.end());
  const bool empty = std::any_of(outputs.begin(), outputs.end(),
                                 [](const Shape& shape) { return shape.numel() == 0; });
  if (!empty) {
    entry->program = std::make_unique<DnnlProgram>();
    with_dnnl_errors(layer_, [&] { build(*entry->program, inputs, outputs); });
  }
  if (recent_.size() == kRecentShapes) recent_.pop_back();
  recent_.insert(recent_.begin(), std::move(entry));
  return recent_.front()->program.get();
}

void DnnlKernel::on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) {
  current_ = nullptr;
  DnnlProgram* program = find_or_build(inputs, outputs);
  if (program) {
    const size_t needed = program->workspace_size();
    if (needed > planned_workspace_ && needed > own_workspace_size_) {
      void* larger = cpu_device().allocate(needed);
      cpu_device().free(own_workspace_);
      own_workspace_ = larger;
      own_workspace_size_ = needed;
    }
    description_ = program->description;
  }
  current_ = program;
}

void DnnlKernel::enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) {
  if (!current_) return;
  const bool planned = current_->workspace_size() <= planned_workspace_;
  current_->run(inputs, outputs, planned ? workspace : own_workspace_);
}

}  // namespace opwright
