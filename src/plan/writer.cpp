#include <plan_generated.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "plan/format.h"
#include "plan/hash.h"
#include "plan/plan.h"

namespace opwright {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

/// An upper estimate of a value's size in the file.
template <class T>
uint64_t stored_size(const std::vector<T>& values) {
  return 8 * values.size();
}
uint64_t stored_size(const std::string& text) { return text.size(); }
uint64_t stored_size(const Blob& bytes) { return bytes.size(); }
uint64_t stored_size(int64_t) { return 8; }
uint64_t stored_size(double) { return 8; }
uint64_t stored_size(const FieldValues& fields) {
  uint64_t size = 0;
  for (const FieldValue& field : fields)
    size += 96 + field.name.size() + field.data.size() +
            (field.extents ? stored_size(*field.extents) : 0);
  return size;
}
uint64_t stored_size(const KernelLaunch& launch) {
  uint64_t size = 256 + launch.symbol.size() + 24 * launch.program.size() +
                  16 * launch.arguments.size() + stored_size(launch.scratch) +
                  stored_size(launch.order);
  for (const KernelLaunch::TensorMap& map : launch.maps)
    size += 64 + stored_size(map.extents) + stored_size(map.strides) + stored_size(map.box) +
            stored_size(map.steps) + stored_size(map.lower) + stored_size(map.upper);
  for (const KernelLaunch::Check& check : launch.checks) size += 48 + check.message.size();
  return size;
}
uint64_t stored_size(const Attributes& attributes) {
  uint64_t size = 0;
  for (const Attribute& attribute : attributes)
    size += 64 + attribute.name.size() +
            std::visit([](const auto& value) { return stored_size(value); }, attribute.value);
  return size;
}

uint64_t align(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

Blob zeros(uint64_t size) {
  return Blob::make(size, [&](void* memory) { std::memset(memory, 0, size); });
}

/// A growing section of aligned pieces. Equal bytes are stored once.
class Section {
 public:
  explicit Section(uint64_t alignment) : alignment_(alignment) {}

  uint64_t add(const Blob& blob) {
    if (blob.size() == 0) return 0;
    const auto known = by_address_.find(blob.data());
    if (known != by_address_.end() && known->second.first == blob.size()) {
      return known->second.second;
    }
    const uint64_t hash = hash128(blob.bytes())[0];
    auto [first, last] = by_hash_.equal_range(hash);
    for (; first != last; ++first) {
      if (first->second.first == blob) return remember(blob, first->second.second);
    }
    if (const uint64_t start = align(size_, alignment_); start != size_) {
      pieces_.push_back(zeros(start - size_));
      size_ = start;
    }
    const uint64_t offset = size_;
    pieces_.push_back(blob);
    size_ += blob.size();
    by_hash_.emplace(hash, std::pair(blob, offset));
    return remember(blob, offset);
  }
  const std::vector<Blob>& pieces() const { return pieces_; }
  uint64_t size() const { return size_; }

 private:
  uint64_t remember(const Blob& blob, uint64_t offset) {
    by_address_[blob.data()] = {blob.size(), offset};
    return offset;
  }
  uint64_t alignment_;
  uint64_t size_ = 0;
  std::vector<Blob> pieces_;
  std::unordered_map<const std::byte*, std::pair<uint64_t, uint64_t>> by_address_;
  std::unordered_multimap<uint64_t, std::pair<Blob, uint64_t>> by_hash_;
};

class Writer {
 public:
  explicit Writer(const Plan& plan) : plan_(plan) {}

  std::vector<Blob> write() {
    const Blob structure = write_structure();
    PlanHeader header{};
    std::memcpy(header.magic, PlanHeader::kMagic, sizeof(header.magic));
    header.version = PlanHeader::kVersion;
    header.api_level = NV_TENSORRT_MAJOR * 100 + NV_TENSORRT_MINOR;

    std::vector<Blob> file(1);  // the header is written last
    uint64_t end = sizeof(PlanHeader);
    const auto append = [&](PlanHeader::Section& section, std::span<const Blob> pieces,
                            uint64_t size) {
      section.offset = align(end, PlanHeader::kAlignment);
      section.size = size;
      if (section.offset != end) file.push_back(zeros(section.offset - end));
      file.insert(file.end(), pieces.begin(), pieces.end());
      end = section.end();
    };
    const auto set_hash = [](uint64_t(&to)[2], Hash128 hash) {
      std::copy(hash.begin(), hash.end(), to);
    };
    append(header.plan, std::span(&structure, 1), structure.size());
    set_hash(header.plan.hash, hash128(structure.bytes()));
    append(header.code, code_.pieces(), code_.size());
    const Blob code = Blob::make(code_.size(), [&](void* memory) {
      auto* to = static_cast<std::byte*>(memory);
      for (const Blob& piece : code_.pieces()) to = std::copy_n(piece.data(), piece.size(), to);
    });
    set_hash(header.code.hash, hash128(code.bytes()));
    append(header.weights, weights_.pieces(), weights_.size());
    set_hash(header.weights.hash, hash_chunks(weights_.pieces()));
    header.file_size = end;
    set_hash(header.hash,
             hash128(std::as_bytes(std::span(&header, 1)).first(offsetof(PlanHeader, hash))));
    file[0] = Blob::copy(&header, sizeof(header));
    return file;
  }

 private:
  using Text = flatbuffers::Offset<flatbuffers::String>;

  /// FlatBuffers aborts beyond 2^31 bytes, so the sizes of all large parts are summed first.
  void check_size() const {
    uint64_t size = 0;
    for (const Schedule& schedule : plan_.schedules) {
      for (const PlanStep& step : schedule.steps) {
        size += 1024 + stored_size(step.attributes);
        for (const TimedCandidate& item : step.considered) size += 64 + item.dropped.size();
      }
      for (const PlanTensor& tensor : schedule.tensors) size += 256 + 4 * tensor.values.size();
    }
    size += plan_.metadata.description.size() + plan_.metadata.graph_description.size();
    for (const auto& [key, value] : plan_.metadata.properties)
      size += 64 + key.size() + value.size();
    size += 512 * (plan_.refit.weights.size() + plan_.refit.values.size());
    for (const RefitOperation& operation : plan_.refit.operations)
      size += 256 + stored_size(operation.attributes);
    require(size < PlanHeader::kMaxPlanSize, "cannot store plan '", plan_.name,
            "': the attributes of its layers and its metadata take about ", size,
            " bytes, the limit is ", PlanHeader::kMaxPlanSize,
            "; pass large data as constant inputs, not as attributes");
  }

  Text text(const std::string& value) { return builder_.CreateString(value); }

  template <class Item, class Convert>
  auto list(const std::vector<Item>& items, Convert&& convert) {
    std::vector<decltype(convert(items[0]))> converted;
    converted.reserve(items.size());
    for (const Item& item : items) converted.push_back(convert(item));
    return builder_.CreateVector(converted);
  }

  static int32_t code_of(PortType type) {
    return static_cast<int32_t>(type.dtype) * 256 + static_cast<int32_t>(type.format);
  }

  auto shape(const Shape& shape) { return builder_.CreateVector(shape.begin(), shape.rank()); }

  auto program(std::span<const ExprInstruction> from) {
    std::vector<fb::ExprInstruction> to;
    to.reserve(from.size());
    for (const ExprInstruction& item : from)
      to.emplace_back(static_cast<uint8_t>(item.op), item.a, item.b, item.c, item.value);
    return builder_.CreateVectorOfStructs(to);
  }

  auto field(const FieldValue& from) {
    const Text name = text(from.name);
    const auto bytes = builder_.CreateVector(from.data.as<uint8_t>(), from.data.size());
    flatbuffers::Offset<flatbuffers::Vector<int64_t>> extents;
    if (from.extents) extents = builder_.CreateVector(*from.extents);
    return fb::CreatePluginField(builder_, name, static_cast<int32_t>(from.type), from.length,
                                 bytes, extents);
  }

  auto launch(const KernelLaunch& from) {
    const Text symbol = text(from.symbol), layer_kind = text(from.layer_kind);
    const auto instructions = program(from.program);
    const fb::LaunchExtents grid(from.grid[0], from.grid[1], from.grid[2]);
    const fb::LaunchExtents block(from.block[0], from.block[1], from.block[2]);
    std::vector<fb::LaunchArgument> arguments;
    for (const KernelLaunch::Argument& item : from.arguments)
      arguments.emplace_back(static_cast<int32_t>(item.type), item.value, item.constant);
    const auto argument_list = builder_.CreateVectorOfStructs(arguments);
    const auto scratch = builder_.CreateVector(from.scratch);
    const auto shape_inputs = builder_.CreateVector(from.shape_inputs);
    const auto checks = list(from.checks, [&](const KernelLaunch::Check& item) {
      return fb::CreateLaunchCheck(builder_, item.condition, text(item.message));
    });
    const auto maps = list(from.maps, [&](const KernelLaunch::TensorMap& item) {
      const auto extents = builder_.CreateVector(item.extents);
      const auto strides = builder_.CreateVector(item.strides);
      const auto box = builder_.CreateVector(item.box), steps = builder_.CreateVector(item.steps);
      const auto lower = builder_.CreateVector(item.lower);
      const auto upper = builder_.CreateVector(item.upper);
      return fb::CreateLaunchTensorMap(builder_, item.input, static_cast<int32_t>(item.type),
                                       extents, strides, box, steps, lower, upper);
    });
    const auto order = builder_.CreateVector(from.order);
    return fb::CreateLaunch(builder_, symbol, layer_kind, instructions, &grid, &block,
                            from.shared_memory, argument_list, scratch, shape_inputs, checks,
                            from.begins_early, order, maps);
  }

  auto attribute(const Attribute& from) {
    const Text name = text(from.name);
    Text string;
    flatbuffers::Offset<flatbuffers::Vector<int64_t>> ints;
    flatbuffers::Offset<flatbuffers::Vector<double>> floats;
    flatbuffers::Offset<flatbuffers::Vector<uint8_t>> bytes;
    flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::PluginField>>> fields;
    flatbuffers::Offset<fb::Launch> kernel_launch;
    if (const auto* value = std::get_if<std::string>(&from.value)) string = text(*value);
    if (const auto* value = std::get_if<Ints>(&from.value)) ints = builder_.CreateVector(*value);
    if (const auto* value = std::get_if<Floats>(&from.value)) {
      floats = builder_.CreateVector(*value);
    }
    if (const auto* value = std::get_if<Blob>(&from.value)) {
      bytes = builder_.CreateVector(value->as<uint8_t>(), value->size());
    }
    if (const auto* value = std::get_if<FieldValues>(&from.value))
      fields = list(*value, [&](const FieldValue& item) { return field(item); });
    if (const auto* value = std::get_if<KernelLaunch>(&from.value)) kernel_launch = launch(*value);
    fb::AttributeBuilder to(builder_);
    to.add_name(name);
    to.add_type(static_cast<fb::AttributeType>(from.value.index()));
    if (const auto* value = std::get_if<int64_t>(&from.value)) to.add_int_value(*value);
    if (const auto* value = std::get_if<double>(&from.value)) to.add_float_value(*value);
    if (!string.IsNull()) to.add_text(string);
    if (!ints.IsNull()) to.add_ints(ints);
    if (!floats.IsNull()) to.add_floats(floats);
    if (!bytes.IsNull()) to.add_bytes(bytes);
    if (!fields.IsNull()) to.add_fields(fields);
    if (!kernel_launch.IsNull()) to.add_launch(kernel_launch);
    return to.Finish();
  }

  auto tensor(const PlanTensor& from) {
    const Text name = text(from.name);
    const auto dims = builder_.CreateVector(from.dims);
    const auto values = builder_.CreateVector(from.values);
    const bool is_weight = from.location == PlanTensor::Location::kWeight;
    return fb::CreateTensor(
        builder_, name, static_cast<int32_t>(from.type.dtype),
        static_cast<int32_t>(from.type.format), dims, static_cast<fb::Location>(from.location),
        from.index, is_weight ? weights_.add(from.data) : from.offset,
        is_weight ? from.data.size() : from.size, values, from.scale, from.source);
  }

  auto step(const PlanStep& from) {
    const Text name = text(from.name), metadata = text(from.metadata), kind = text(from.kind);
    const auto attributes =
        list(from.attributes, [&](const Attribute& item) { return attribute(item); });
    const auto inputs = builder_.CreateVector(from.inputs);
    const auto outputs = builder_.CreateVector(from.outputs);
    const auto input_types = list(from.candidate.inputs, code_of);
    const auto output_types = list(from.candidate.outputs, code_of);
    const Text tactic_name = text(from.candidate.tactic_name);
    const auto packed = list(from.packed, [&](const PackedInput& item) {
      return fb::CreatePackedInput(builder_, item.input, text(item.layout), weights_.add(item.data),
                                   item.data.size());
    });
    const auto code = builder_.CreateVector(from.code);
    const auto size_symbols = builder_.CreateVector(from.size_symbols);
    const auto considered = list(from.considered, [&](const TimedCandidate& item) {
      const Text types = text(item.types);
      const Text tactic = text(item.tactic_name);
      const Text dropped = item.dropped.empty() ? Text() : text(item.dropped);
      return fb::CreateTimedCandidate(builder_, types, item.tactic, tactic, item.time_ms,
                                      item.reformat_ms, dropped);
    });
    const Text obstacle = from.capture_obstacle.empty() ? Text() : text(from.capture_obstacle);
    return fb::CreateStep(builder_, name, metadata, kind, attributes, inputs, outputs, input_types,
                          output_types, from.candidate.tactic, tactic_name, packed, code,
                          size_symbols, from.time_ms, considered, obstacle, from.stream);
  }

  auto schedule(const Schedule& from) {
    const auto inputs = list(from.inputs, [&](const ProfileInput& item) {
      const auto min = shape(item.min), opt = shape(item.opt), max = shape(item.max);
      return fb::CreateInputRange(builder_, min, opt, max, item.values);
    });
    const auto tensors = list(from.tensors, [&](const PlanTensor& item) { return tensor(item); });
    const auto steps = list(from.steps, [&](const PlanStep& item) { return step(item); });
    const auto copies = list(from.copies, [&](const OutputCopy& item) {
      return fb::CreateOutputCopy(builder_, item.tensor, item.output);
    });
    const auto debug = list(from.debug, [&](const DebugTensor& item) {
      return fb::CreateDebugTensor(builder_, text(item.name), item.tensor, item.is_marked);
    });
    return fb::CreateSchedule(builder_, inputs, tensors, steps, copies, from.arena_size,
                              from.workspace_size, debug);
  }

  auto port(const PlanPort& from) {
    const Text name = text(from.name);
    const auto dims = builder_.CreateVector(from.dims);
    const auto names = list(from.dimension_names, [&](const std::string& item) {
      return fb::CreateDimensionName(builder_, text(item));
    });
    return fb::CreatePort(builder_, name, static_cast<int32_t>(from.type.dtype),
                          static_cast<int32_t>(from.type.format), dims, names, from.aliased_input,
                          from.is_shape_input, from.open_axes);
  }

  auto refit(const RefitPlan& from) {
    const auto weights = list(from.weights, [&](const RefitWeight& item) {
      const Text name = text(item.name);
      const auto extents = shape(item.shape);
      const auto uses = list(item.uses, [&](const WeightUse& use) {
        return fb::CreateWeightUse(builder_, text(use.layer), use.role);
      });
      return fb::CreateRefitWeight(builder_, name, static_cast<int32_t>(item.dtype), extents, uses,
                                   weights_.add(item.data), item.data.size());
    });
    const auto values = list(from.values, [&](const RefitValue& item) {
      return fb::CreateRefitValue(builder_, static_cast<int32_t>(item.dtype), shape(item.shape),
                                  weights_.add(item.data), item.data.size());
    });
    const auto operations = list(from.operations, [&](const RefitOperation& item) {
      const Text name = text(item.name), kind = text(item.kind);
      const auto attributes =
          list(item.attributes, [&](const Attribute& one) { return attribute(one); });
      const auto inputs = builder_.CreateVector(item.inputs);
      const auto outputs = builder_.CreateVector(item.outputs);
      return fb::CreateRefitOperation(builder_, name, kind, attributes, inputs, outputs);
    });
    return fb::CreateRefit(builder_, weights, values, operations, from.is_stripped,
                           from.stripped_bytes, from.can_refit);
  }

  auto metadata(const ModelMetadata& from) {
    const Text producer = text(from.producer_name), producer_version = text(from.producer_version),
               domain = text(from.domain), description = text(from.description),
               graph_name = text(from.graph_name), graph_description = text(from.graph_description);
    const auto properties = list(from.properties, [&](const auto& item) {
      const Text key = text(item.first), value = text(item.second);
      return fb::CreateProperty(builder_, key, value);
    });
    return fb::CreateModelMetadata(builder_, producer, producer_version, domain, description,
                                   from.version, graph_name, graph_description, properties);
  }

 public:
  Blob write_structure() {
    check_size();
    const Text name = text(plan_.name), made_by = text(plan_.builder),
               backend = text(plan_.backend), architecture = text(plan_.architecture),
               identity = text(plan_.device_identity);
    std::vector<flatbuffers::Offset<fb::Symbol>> symbols;
    for (size_t i = 0; i < plan_.symbols.size(); ++i) {
      const Symbol& symbol = plan_.symbols[i];
      const Text symbol_name = text(symbol.name), tensor_name = text(symbol.tensor),
                 assertion = text(symbol.assertion);
      symbols.push_back(fb::CreateSymbol(
          builder_, static_cast<fb::SymbolKind>(symbol.kind), symbol_name, tensor_name,
          symbol.index, plan_.size_bounds[i].first, plan_.size_bounds[i].second, assertion));
    }
    const auto symbol_list = builder_.CreateVector(symbols);
    const auto expressions = program(plan_.expressions);
    const auto inputs = list(plan_.inputs, [&](const PlanPort& item) { return port(item); });
    const auto outputs = list(plan_.outputs, [&](const PlanPort& item) { return port(item); });
    const auto schedules =
        list(plan_.schedules, [&](const Schedule& item) { return schedule(item); });
    const auto requirements = list(plan_.requirements, [&](const PluginRequirement& item) {
      const Text kind = text(item.kind), plugin = text(item.name), version = text(item.version),
                 plugin_namespace = text(item.plugin_namespace);
      return fb::CreateRequirement(builder_, kind, plugin, version, plugin_namespace);
    });
    const auto code = list(plan_.code, [&](const CodeObject& item) {
      const Text object_name = text(item.name), target = text(item.target);
      return fb::CreateCodeSection(builder_, object_name, target, code_.add(item.bytes),
                                   item.bytes.size(), item.host);
    });
    const auto libraries = builder_.CreateVector(plan_.plugin_libraries);
    const auto sources = builder_.CreateVector(plan_.plugin_sources);
    flatbuffers::Offset<fb::Refit> refit_plan;
    if (plan_.refit.is_possible()) refit_plan = refit(plan_.refit);
    flatbuffers::Offset<fb::ModelMetadata> about;
    if (plan_.metadata != ModelMetadata{}) about = metadata(plan_.metadata);
    fb::FinishPlanBuffer(
        builder_,
        fb::CreatePlan(builder_, name, made_by, static_cast<int32_t>(plan_.device_type), backend,
                       architecture, identity, symbol_list, expressions, inputs, outputs, schedules,
                       requirements, code, libraries, sources, plan_.debug_plugins, plan_.graphs,
                       refit_plan, plan_.weight_streaming, about));
    const auto buffer = std::make_shared<flatbuffers::DetachedBuffer>(builder_.Release());
    return Blob(buffer, buffer->data(), buffer->size());
  }

 private:
  const Plan& plan_;
  flatbuffers::FlatBufferBuilder builder_;
  Section code_{PlanHeader::kCodeAlignment};
  Section weights_{PlanHeader::kWeightAlignment};
};

}  // namespace

Blob serialize_structure(const Plan& plan) { return Writer(plan).write_structure(); }

std::vector<Blob> serialize(const Plan& plan) {
  validate(plan);
  return Writer(plan).write();
}

}  // namespace opwright
