#include <plan_generated.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "plan/format.h"
#include "plan/hash.h"
#include "plan/plan.h"

namespace opwright {
namespace {

template <class... Parts>
[[noreturn]] void damaged(const Parts&... parts) {
  fail("cannot read engine file: ", parts...);
}

Hash128 stored(const uint64_t (&hash)[2]) { return {hash[0], hash[1]}; }

/// Bytes [offset, offset + size) of `whole`. They keep `whole` alive.
Blob part(const std::shared_ptr<const Blob>& whole, uint64_t offset, uint64_t size) {
  return Blob(whole, whole->data() + offset, size);
}

/// Checks everything that the header says against the file. The sections can be used afterwards.
PlanHeader read_header(const Blob& file) {
  PlanHeader header;
  if (file.size() < sizeof(header)) {
    damaged("it has ", file.size(), " bytes, and a header has ", sizeof(header),
            "; it is truncated or no engine");
  }
  std::memcpy(&header, file.data(), sizeof(header));
  if (std::memcmp(header.magic, PlanHeader::kMagic, sizeof(header.magic)) != 0) {
    damaged("it does not begin with '",
            std::string_view(PlanHeader::kMagic, sizeof(PlanHeader::kMagic)),
            "'; it is no Opwright engine");
  }
  if (header.version != PlanHeader::kVersion) {
    damaged("its format version is ", header.version, ", this library reads version ",
            PlanHeader::kVersion, "; build the engine again");
  }
  const size_t hashed = offsetof(PlanHeader, hash);
  if (hash128(file.bytes().first(hashed)) != stored(header.hash)) {
    damaged("the header's hash is wrong (bytes 0 to ", hashed, "); the file is damaged");
  }
  if (header.file_size != file.size()) {
    damaged("the header says ", header.file_size, " bytes, the file has ", file.size(),
            file.size() < header.file_size ? "; it is truncated" : "; something was appended");
  }
  uint64_t end = sizeof(PlanHeader);
  const std::pair<const char*, const PlanHeader::Section*> sections[] = {
      {"plan", &header.plan}, {"code", &header.code}, {"weights", &header.weights}};
  for (const auto& [name, section] : sections) {
    const uint64_t expected =
        (end + PlanHeader::kAlignment - 1) / PlanHeader::kAlignment * PlanHeader::kAlignment;
    if (section->offset != expected || section->offset > file.size() ||
        section->size > file.size() - section->offset) {
      damaged("the ", name, " section at byte ", section->offset, " with ", section->size,
              " bytes does not fit: it must begin at byte ", expected, " of ", file.size());
    }
    for (uint64_t i = end; i < section->offset; ++i) {
      if (file.data()[i] != std::byte{0}) damaged("byte ", i, " between sections is not zero");
    }
    end = section->end();
  }
  if (end != file.size()) damaged("bytes follow the weights section, which ends at byte ", end);
  if (header.plan.size > PlanHeader::kMaxPlanSize) {
    damaged("the plan section has ", header.plan.size, " bytes, the limit is ",
            PlanHeader::kMaxPlanSize);
  }
  return header;
}

/// Copies a section, so that changes of the file cannot reach it, and verifies its hash.
std::shared_ptr<const Blob> copy_section(const Blob& file, const PlanHeader::Section& section,
                                         const char* name) {
  auto copy = std::make_shared<const Blob>(Blob::copy(file.data() + section.offset, section.size));
  if (hash128(copy->bytes()) != stored(section.hash)) {
    damaged("the hash of the ", name, " section (bytes ", section.offset, " to ", section.end(),
            ") is wrong; the file is damaged");
  }
  return copy;
}

/// The most memory of a plan for each byte of its section, without code and weights. Plans that
/// were built take 2 to 3; tables that only have defaults would take up to 30.
constexpr uint64_t kMemoryPerByte = 8;
/// Memory that any small plan may take.
constexpr uint64_t kMinMemory = 1 << 16;

/// Turns the verified FlatBuffers structure into a Plan. FlatBuffers lets several references share
/// one object and omits defaults, so a small file could stand for a huge plan. The writer shares
/// nothing. So the sum of all objects that are read may not exceed the section's size, and that
/// size limits the memory they take.
class Reader {
 public:
  Reader(const fb::Plan& from, std::shared_ptr<const Blob> code,
         std::shared_ptr<const Blob> weights, uint64_t size)
      : from_(from),
        code_(std::move(code)),
        weights_(std::move(weights)),
        size_(size),
        bytes_left_(size),
        memory_left_(kMinMemory + size * kMemoryPerByte) {}

  Plan read() {
    Plan plan;
    plan.name = text(from_.name());
    plan.builder = text(from_.builder());
    plan.device_type = static_cast<DeviceType>(from_.device_type());
    plan.backend = text(from_.backend());
    plan.architecture = text(from_.architecture());
    plan.device_identity = text(from_.device_identity());
    each(from_.symbols(), plan.symbols, [&](const fb::Symbol& item) {
      Symbol symbol;
      symbol.kind = static_cast<Symbol::Kind>(item.kind());
      symbol.name = text(item.name());
      symbol.tensor = text(item.tensor());
      symbol.index = item.index();
      symbol.assertion = text(item.assertion());
      plan.size_bounds.emplace_back(item.opt(), item.upper_bound());
      return symbol;
    });
    plan.expressions = program(from_.expressions());
    each(from_.inputs(), plan.inputs, [&](const fb::Port& item) { return port(item); });
    each(from_.outputs(), plan.outputs, [&](const fb::Port& item) { return port(item); });
    each(from_.schedules(), plan.schedules,
         [&](const fb::Schedule& item) { return schedule(item); });
    each(from_.requirements(), plan.requirements, [&](const fb::Requirement& item) {
      return PluginRequirement{text(item.kind()), text(item.name()), text(item.version()),
                               text(item.namespace_())};
    });
    each(from_.code(), plan.code, [&](const fb::CodeSection& item) {
      CodeObject object;
      object.name = text(item.name());
      object.target = text(item.target());
      object.bytes = range(code_, item.offset(), item.size(), 1, "code object", object.name);
      object.host = item.host();
      return object;
    });
    plan.plugin_libraries = numbers(from_.plugin_libraries());
    plan.plugin_sources = numbers(from_.plugin_sources());
    plan.debug_plugins = from_.debug_plugins();
    plan.graphs = from_.graphs();
    plan.weight_streaming = from_.weight_streaming();
    if (from_.refit() != nullptr) plan.refit = refit(*from_.refit());
    if (from_.metadata() != nullptr) plan.metadata = metadata(*from_.metadata());
    return plan;
  }

 private:
  /// Counts bytes of the section and of memory. Called before the memory is allocated.
  void spend(uint64_t bytes, uint64_t memory) {
    if (bytes > bytes_left_) damaged("objects in the plan section overlap");
    bytes_left_ -= bytes;
    if (memory > memory_left_) {
      damaged("the plan section of ", size_, " bytes would take more than ", kMemoryPerByte,
              " times as much memory, which no plan that was built does");
    }
    memory_left_ -= memory;
  }
  /// Memory of a list or a text in addition to its content.
  static constexpr uint64_t kAllocation = 16;

  std::string text(const flatbuffers::String* value) {
    if (value == nullptr) return {};
    const bool is_short = value->size() < sizeof(std::string) / 2;
    spend(value->size() + 5,  // length and final zero
          is_short ? 0 : value->size() + 1 + kAllocation);
    return value->str();
  }

  ModelMetadata metadata(const fb::ModelMetadata& from) {
    ModelMetadata made;
    made.producer_name = text(from.producer_name());
    made.producer_version = text(from.producer_version());
    made.domain = text(from.domain());
    made.description = text(from.description());
    made.version = from.version();
    made.graph_name = text(from.graph_name());
    made.graph_description = text(from.graph_description());
    each(from.properties(), made.properties, [&](const fb::Property& item) {
      std::string key = text(item.key());
      return std::pair(std::move(key), text(item.value()));
    });
    return made;
  }

  /// FlatBuffers' verifier does not look at the alignment of a vector's elements.
  template <class T>
  static void check_alignment(const flatbuffers::Vector<T>& values, size_t alignment) {
    if (reinterpret_cast<uintptr_t>(values.Data()) % alignment != 0 && values.size() != 0) {
      damaged("a list in the plan section is not aligned");
    }
  }

  template <class T>
  std::vector<T> numbers(const flatbuffers::Vector<T>* values) {
    if (values == nullptr) return {};
    check_alignment(*values, sizeof(T));
    spend(values->size() * sizeof(T), values->size() * sizeof(T) + kAllocation);
    return {values->begin(), values->end()};
  }

  /// Applies `function` to each struct and returns the results.
  template <class Struct, class Function>
  auto structs(const flatbuffers::Vector<const Struct*>* from, Function&& function) {
    std::vector<decltype(function(std::declval<const Struct&>()))> to;
    if (from == nullptr || from->size() == 0) return to;
    check_alignment(*from, alignof(Struct));
    spend(from->size() * sizeof(Struct), from->size() * sizeof(to[0]) + kAllocation);
    to.reserve(from->size());
    for (const Struct* item : *from) to.push_back(function(*item));
    return to;
  }

  std::vector<ExprInstruction> program(
      const flatbuffers::Vector<const fb::ExprInstruction*>* from) {
    return structs(from, [](const fb::ExprInstruction& item) {
      return ExprInstruction{static_cast<ExprOp>(item.op()), item.a(), item.b(), item.c(),
                             item.value()};
    });
  }

  /// Applies `function` to each table and appends the results.
  template <class Table, class T, class Function>
  void each(const flatbuffers::Vector<flatbuffers::Offset<Table>>* tables, std::vector<T>& list,
            Function&& function) {
    if (tables == nullptr || tables->size() == 0) return;
    constexpr uint64_t kTable = 8;  // the reference to the table, and the table's start
    spend(kTable * tables->size(), sizeof(T) * tables->size() + kAllocation);
    list.reserve(tables->size());
    for (const Table* table : *tables) list.push_back(function(*table));
  }

  Shape shape(const flatbuffers::Vector<int64_t>* extents) {
    if (extents == nullptr) return {};
    check_alignment(*extents, sizeof(int64_t));
    spend(extents->size() * 8, 0);  // a Shape contains its extents
    if (extents->size() > static_cast<uint32_t>(Dims::MAX_DIMS)) {
      damaged("a shape has ", extents->size(), " extents or values, the limit is ", Dims::MAX_DIMS);
    }
    return Shape(numbers_of(*extents));
  }
  static std::span<const int64_t> numbers_of(const flatbuffers::Vector<int64_t>& values) {
    return {values.data(), values.size()};
  }

  static PortType port_type(int32_t code) {
    return {static_cast<DataType>(code / 256), static_cast<TensorFormat>(code % 256)};
  }

  std::vector<PortType> port_types(const flatbuffers::Vector<int32_t>* codes) {
    std::vector<PortType> types;
    if (codes == nullptr) return types;
    spend(0, codes->size() * sizeof(PortType));
    for (const int32_t code : numbers(codes)) types.push_back(port_type(code));
    return types;
  }

  Blob range(const std::shared_ptr<const Blob>& section, uint64_t offset, uint64_t size,
             uint64_t alignment, const char* what, const std::string& name) {
    if (offset > section->size() || size > section->size() - offset || offset % alignment != 0) {
      damaged(what, " '", name, "' lies at offset ", offset, " with ", size,
              " bytes, which is not within its section of ", section->size(),
              " bytes or not aligned to ", alignment);
    }
    return part(section, offset, size);
  }

  Blob bytes(const flatbuffers::Vector<uint8_t>* from) {
    if (from == nullptr || from->size() == 0) return {};
    spend(from->size(), from->size() + 4 * kAllocation);
    return copy_terminated(from->data(), from->size());
  }

  FieldValue field(const fb::PluginField& from) {
    FieldValue to{text(from.name()), static_cast<PluginFieldType>(from.type()), from.length(),
                  bytes(from.bytes())};
    if (to.data.empty()) to.data = copy_terminated(nullptr, 0);  // plugins expect an address
    if (from.extents() != nullptr) to.extents = numbers(from.extents());
    return to;
  }

  KernelLaunch launch(const fb::Launch& from) {
    KernelLaunch to;
    to.symbol = text(from.symbol());
    to.layer_kind = text(from.layer_kind());
    to.program = program(from.program());
    if (from.grid() == nullptr || from.block() == nullptr)
      damaged("the launch of kernel '", to.symbol, "' has no grid or no block");
    to.grid = {from.grid()->x(), from.grid()->y(), from.grid()->z()};
    to.block = {from.block()->x(), from.block()->y(), from.block()->z()};
    to.shared_memory = from.shared_memory();
    to.arguments = structs(from.arguments(), [](const fb::LaunchArgument& item) {
      return KernelLaunch::Argument{static_cast<ArgumentType>(item.type()), item.value(),
                                    item.constant()};
    });
    to.scratch = numbers(from.scratch());
    to.shape_inputs = numbers(from.shape_inputs());
    each(from.checks(), to.checks, [&](const fb::LaunchCheck& item) {
      return KernelLaunch::Check{item.condition(), text(item.message())};
    });
    each(from.maps(), to.maps, [&](const fb::LaunchTensorMap& item) {
      return KernelLaunch::TensorMap{item.input(),
                                     static_cast<DataType>(item.type()),
                                     numbers(item.extents()),
                                     numbers(item.strides()),
                                     numbers(item.box()),
                                     numbers(item.steps()),
                                     numbers(item.lower()),
                                     numbers(item.upper())};
    });
    to.begins_early = from.begins_early();
    to.order = numbers(from.order());
    return to;
  }

  Attribute attribute(const fb::Attribute& from) {
    Attribute to{text(from.name()), int64_t{0}};
    switch (from.type()) {
      case fb::AttributeType::Int:
        to.value = from.int_value();
        return to;
      case fb::AttributeType::Float:
        to.value = from.float_value();
        return to;
      case fb::AttributeType::Text:
        to.value = text(from.text());
        return to;
      case fb::AttributeType::Ints:
        to.value = numbers(from.ints());
        return to;
      case fb::AttributeType::Floats:
        to.value = numbers(from.floats());
        return to;
      case fb::AttributeType::Bytes:
        to.value = bytes(from.bytes());
        return to;
      case fb::AttributeType::Fields: {
        FieldValues fields;
        each(from.fields(), fields, [&](const fb::PluginField& item) { return field(item); });
        to.value = std::move(fields);
        return to;
      }
      case fb::AttributeType::Launch:
        if (from.launch() == nullptr) damaged("attribute '", to.name, "' has no launch");
        to.value = launch(*from.launch());
        return to;
    }
    damaged("attribute '", to.name, "' has the unknown type ", static_cast<int>(from.type()));
  }

  PlanTensor tensor(const fb::Tensor& from) {
    PlanTensor to;
    to.name = text(from.name());
    to.type = {static_cast<DataType>(from.dtype()), static_cast<TensorFormat>(from.format())};
    to.dims = numbers(from.dims());
    to.location = static_cast<PlanTensor::Location>(from.location());
    to.index = from.index();
    to.size = from.size();
    to.values = numbers(from.values());
    to.scale = from.scale();
    to.source = from.source();
    if (to.location != PlanTensor::Location::kWeight) {
      to.offset = from.offset();
    } else if (to.size != 0) {
      to.data =
          range(weights_, from.offset(), to.size, PlanHeader::kWeightAlignment, "weight", to.name);
    }
    return to;
  }

  PlanStep step(const fb::Step& from) {
    PlanStep to;
    to.name = text(from.name());
    to.metadata = text(from.metadata());
    to.capture_obstacle = text(from.capture_obstacle());
    to.kind = text(from.kind());
    each(from.attributes(), to.attributes,
         [&](const fb::Attribute& item) { return attribute(item); });
    to.inputs = numbers(from.inputs());
    to.outputs = numbers(from.outputs());
    to.candidate.inputs = port_types(from.input_types());
    to.candidate.outputs = port_types(from.output_types());
    to.candidate.tactic = from.tactic();
    to.candidate.tactic_name = text(from.tactic_name());
    each(from.packed(), to.packed, [&](const fb::PackedInput& item) {
      PackedInput packed;
      packed.input = item.input();
      packed.layout = text(item.layout());
      packed.data = range(weights_, item.offset(), item.size(), PlanHeader::kWeightAlignment,
                          "packed weight of layer", to.name);
      return packed;
    });
    to.code = numbers(from.code());
    to.size_symbols = numbers(from.size_symbols());
    to.time_ms = from.time_ms();
    to.stream = from.stream();
    each(from.candidates(), to.considered, [&](const fb::TimedCandidate& item) {
      return TimedCandidate{text(item.types()), item.tactic(),      text(item.tactic_name()),
                            item.time_ms(),     item.reformat_ms(), text(item.dropped())};
    });
    return to;
  }

  Schedule schedule(const fb::Schedule& from) {
    Schedule to;
    each(from.inputs(), to.inputs, [&](const fb::InputRange& item) {
      return ProfileInput{shape(item.min()), shape(item.opt()), shape(item.max()), item.values()};
    });
    each(from.tensors(), to.tensors, [&](const fb::Tensor& item) { return tensor(item); });
    each(from.steps(), to.steps, [&](const fb::Step& item) { return step(item); });
    each(from.copies(), to.copies, [&](const fb::OutputCopy& item) {
      return OutputCopy{item.tensor(), item.output()};
    });
    each(from.debug(), to.debug, [&](const fb::DebugTensor& item) {
      return DebugTensor{text(item.name()), item.tensor(), item.is_marked()};
    });
    to.arena_size = from.arena_size();
    to.workspace_size = from.workspace_size();
    return to;
  }

  PlanPort port(const fb::Port& from) {
    PlanPort to;
    to.name = text(from.name());
    to.type = {static_cast<DataType>(from.dtype()), static_cast<TensorFormat>(from.format())};
    to.dims = numbers(from.dims());
    each(from.dimension_names(), to.dimension_names,
         [&](const fb::DimensionName& item) { return text(item.text()); });
    to.aliased_input = from.aliased_input();
    to.is_shape_input = from.is_shape_input();
    to.open_axes = from.open_axes();
    return to;
  }

  RefitPlan refit(const fb::Refit& from) {
    RefitPlan to;
    to.is_stripped = from.is_stripped();
    to.stripped_bytes = from.stripped_bytes();
    to.can_refit = from.can_refit();
    const auto bytes = [&](uint64_t offset, uint64_t size, const std::string& name) {
      if (size == 0) return Blob();
      return range(weights_, offset, size, PlanHeader::kWeightAlignment, "refittable weight", name);
    };
    each(from.weights(), to.weights, [&](const fb::RefitWeight& item) {
      RefitWeight weight;
      weight.name = text(item.name());
      weight.dtype = static_cast<DataType>(item.dtype());
      weight.shape = shape(item.shape());
      each(item.uses(), weight.uses, [&](const fb::WeightUse& use) {
        return WeightUse{text(use.layer()), use.role()};
      });
      weight.data = bytes(item.offset(), item.size(), weight.name);
      return weight;
    });
    each(from.values(), to.values, [&](const fb::RefitValue& item) {
      return RefitValue{static_cast<DataType>(item.dtype()), shape(item.shape()),
                        bytes(item.offset(), item.size(), "a constant")};
    });
    each(from.operations(), to.operations, [&](const fb::RefitOperation& item) {
      RefitOperation operation;
      operation.name = text(item.name());
      operation.kind = text(item.kind());
      each(item.attributes(), operation.attributes,
           [&](const fb::Attribute& one) { return attribute(one); });
      operation.inputs = numbers(item.inputs());
      operation.outputs = numbers(item.outputs());
      return operation;
    });
    return to;
  }

  const fb::Plan& from_;
  std::shared_ptr<const Blob> code_, weights_;
  const uint64_t size_;
  uint64_t bytes_left_, memory_left_;
};

}  // namespace

Plan deserialize(const Blob& file, WeightCheck check) {
  const PlanHeader header = read_header(file);
  const auto structure = copy_section(file, header.plan, "plan");
  const auto code = copy_section(file, header.code, "code");
  const auto mapped = std::make_shared<const Blob>(
      part(std::make_shared<const Blob>(file), header.weights.offset, header.weights.size));
  // Kernels need aligned weights. Weights in a mapped file are aligned.
  const bool aligned =
      reinterpret_cast<uintptr_t>(mapped->data()) % PlanHeader::kWeightAlignment == 0;
  const auto weights =
      aligned ? mapped : std::make_shared<const Blob>(Blob::copy(mapped->data(), mapped->size()));
  if (check == WeightCheck::kVerify &&
      hash_chunks(std::span(weights.get(), 1)) != stored(header.weights.hash)) {
    damaged("the hash of the weights section (bytes ", header.weights.offset, " to ",
            header.weights.end(), ") is wrong; the file is damaged");
  }

  const auto* bytes = structure->as<uint8_t>();
  // A table and the reference to it take at least 8 bytes. A hostile file may share tables.
  constexpr uint32_t kDepth = 64;
  flatbuffers::Verifier verifier(bytes, structure->size(), kDepth,
                                 static_cast<uint32_t>(structure->size() / 8));
  if (structure->size() < 8 || !fb::PlanBufferHasIdentifier(bytes) ||
      !fb::VerifyPlanBuffer(verifier)) {
    damaged("the plan section (bytes ", header.plan.offset, " to ", header.plan.end(),
            ") is not a valid plan structure");
  }
  Plan plan = Reader(*fb::GetPlan(bytes), code, weights, structure->size()).read();
  try {
    validate(plan);
  } catch (const Error& error) {
    damaged("the plan is not consistent: ", error.what());
  }
  return plan;
}

}  // namespace opwright
