#include "compile/candidate_run.h"

#include <algorithm>
#include <unordered_set>

#include "base/types.h"
#include "compile/memory_plan.h"
#include "compile/tuning_report.h"
#include "operators/movement.h"

namespace opwright {
namespace {

// Reading a constant of fewer bytes takes no time.
constexpr uint64_t kCopiedBytes = 64 << 10;

}  // namespace

bool reads_values(const GraphNode& node, size_t input) {
  const GraphValue* value = node.inputs[input];
  return value != nullptr && !value->is_constant() && value->info.values != nullptr &&
         (value->is_values() || node.op->is_shape_input(static_cast<int>(input)));
}

std::vector<std::optional<Block>> places_in_result(const GraphNode& node, const NodePorts& ports,
                                                   const Device& device) {
  const auto* op = node.as<Concatenation>();
  if (op == nullptr || !device.is_host()) return {};
  std::vector<Shape> shapes;
  for (const PortDesc& port : ports.inputs) {
    if (port.min != port.max) return {};
    shapes.push_back(port.max);
  }
  const std::vector<Block> blocks =
      concatenated_blocks(op->params().axis, shapes, ports.outputs[0].type);
  std::vector<std::optional<Block>> places(blocks.size());
  std::unordered_set<const GraphValue*> seen;
  for (size_t i = 0; i < blocks.size(); ++i)
    if (seen.insert(node.inputs[i]).second && node.inputs[i]->producer != nullptr &&
        blocks[i].offset % kArenaAlignment == 0)
      places[i] = blocks[i];
  return places;
}

CandidateRun::CandidateRun(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
                           Kernel& kernel, const TimingPlace& place, bool may_leave_elements)
    : node_(node),
      op_(op),
      ports_(ports),
      kernel_(kernel),
      place_(place),
      packed_(kernel.packed()),
      scene_{place.caches, {}, {}, {}},
      check_(place.device, who_computes(node), node.op->plugin() != nullptr, may_leave_elements) {
  const int inputs = static_cast<int>(ports.inputs.size());
  const int outputs = static_cast<int>(ports.outputs.size());
  for (const PackedInput& each : packed_) scene_.constants.push_back(each.data.bytes());
  for (int i = 0; i < inputs; ++i) add_input(i);
  for (int i = 0; i < outputs; ++i) add_output(i);
  place_inputs_in_result();
  workspace_ = place_.memory.workspace(kernel_.workspace_size());
  for (int i = 0; i < outputs; ++i) watch(i);
  check_.add_workspace(workspace_, kernel_.workspace_size());
  timed_ = &stand_in();
  kernel_.on_shape_change(in_shapes_, out_shapes_);
  place_.device.synchronize(nullptr);
}

double CandidateRun::time(int iterations) {
  if (!is_checked_) check_.fill();
  const double time =
      place_.device.time(*timed_, in_.data(), out_.data(), workspace_, iterations, scene_);
  if (!is_checked_) is_checked_ = !check_.look();
  return time;
}

void CandidateRun::add_input(int number) {
  const auto index = static_cast<size_t>(number);
  const PortDesc& port = ports_.inputs[index];
  TimingMemory& memory = place_.memory;
  const bool is_plugin = node_.op->plugin() != nullptr;
  const TimingNumbers numbers = is_plugin ? TimingNumbers::kFractions : TimingNumbers::kNormal;
  in_shapes_.push_back(port.opt);
  if (!port.present) {
    in_.push_back(nullptr);
  } else if (is_aliased(number)) {
    in_.push_back(memory.changed_input(number, port.type.dtype, most_bytes(port), numbers));
  } else if (port.is_constant) {
    in_.push_back(constant(number));
  } else if (reads_values(node_, index)) {
    std::vector<int64_t> elements;
    for (const Expr& element : *node_.inputs[index]->info.values)
      elements.push_back(place_.ranges.opt(element));
    tell(number, elements);
    in_.push_back(memory.input(number, dense_values(elements, port.type.dtype)));
  } else {
    const int64_t limit = node_.op->index_limit(number, ports_.inputs, ports_.outputs);
    const DataType type = port.type.dtype;
    void* const operand = limit > 0 ? memory.indices(number, type, most_bytes(port), limit)
                                    : memory.input(number, type, most_bytes(port), numbers);
    scene_.operands.push_back({static_cast<std::byte*>(operand), opt_bytes(port)});
    in_.push_back(operand);
  }
}

const void* CandidateRun::constant(int number) {
  const auto index = static_cast<size_t>(number);
  const GraphValue& value = *node_.inputs[index];
  const Blob& stored =
      known_.emplace_back(place_.constants.stored(value, ports_.inputs[index].type));
  if (value.info.values != nullptr) {
    std::vector<int64_t> elements;
    for (const Expr& element : *value.info.values) elements.push_back(element.constant());
    tell(number, elements);
  }
  scene_.constants.push_back(stored.bytes());
  if (stored.size() >= kCopiedBytes) large_.emplace_back(index, stored);
  return place_.memory.constant(stored);
}

void CandidateRun::add_output(int number) {
  const auto index = static_cast<size_t>(number);
  const PortDesc& port = ports_.outputs[index];
  out_shapes_.push_back(
      node_.defines_sizes()
          ? place_.ranges.unwritten(node_.outputs[index]->info.dims, node_.size_symbols)
          : port.opt);
  const int aliased = node_.aliased_input(number);
  out_.push_back(aliased >= 0 ? const_cast<void*>(in_[static_cast<size_t>(aliased)])
                              : place_.memory.output(number, most_bytes(port)));
  scene_.results.push_back({static_cast<const std::byte*>(out_.back()), opt_bytes(port)});
}

void CandidateRun::place_inputs_in_result() {
  const auto places = places_in_result(node_, ports_, place_.device);
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) continue;
    in_[i] = static_cast<const std::byte*>(out_[0]) + places[i]->offset;
    has_inputs_in_result_ = true;
  }
}

void CandidateRun::watch(int output) {
  const auto index = static_cast<size_t>(output);
  const PortDesc& port = ports_.outputs[index];
  const bool is_written = node_.aliased_input(output) < 0 && !port.is_data_dependent &&
                          node_.size_symbol(output) < 0 && !has_inputs_in_result_;
  check_.add_output(index, node_.outputs[index]->name,
                    {static_cast<const std::byte*>(out_[index]), port.type,
                     port.is_data_dependent ? port.max : port.opt},
                    is_written);
}

Kernel& CandidateRun::stand_in() {
  Kernel* kernel = &kernel_;
  if (node_.defines_sizes()) {
    with_sizes_.emplace(kernel_, place_.device, place_.memory.zero());
    for (size_t i = 0; i < ports_.outputs.size(); ++i)
      if (node_.size_symbol(static_cast<int>(i)) >= 0)
        with_sizes_->add(i, ports_.outputs[i].type.dtype);
    kernel = &*with_sizes_;
  }
  if (place_.device.is_host() || place_.caches.constants != CacheLevel::kMemory || large_.empty())
    return *kernel;
  with_copies_.emplace(*kernel, in_);
  place_.memory.keep_copies(known_);
  uint64_t bytes = 0;
  for (const auto& [input, elements] : large_) bytes += elements.size();
  const size_t count = count_copies(place_.device, bytes);
  for (const auto& [input, elements] : large_)
    with_copies_->add(input, place_.memory.copies(elements, count));
  return *with_copies_;
}

bool CandidateRun::is_aliased(int input) const {
  for (size_t i = 0; i < ports_.outputs.size(); ++i)
    if (node_.aliased_input(static_cast<int>(i)) == input) return true;
  return false;
}

void CandidateRun::tell(int input, std::span<const int64_t> elements) {
  if (op_.is_shape_input(input)) kernel_.on_values_change(input, elements);
}

}  // namespace opwright
