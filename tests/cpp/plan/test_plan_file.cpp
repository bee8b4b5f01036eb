#include <gtest/gtest.h>
#include <plan_generated.h>
#include <xxhash.h>

#include <random>

#include "base/error.h"
#include "error_of.h"
#include "plan/sample_plan.h"

namespace opwright {
namespace {

Blob whole(const std::vector<std::byte>& bytes) { return Blob::copy(bytes.data(), bytes.size()); }

std::string file_error(const std::vector<std::byte>& bytes,
                       WeightCheck check = WeightCheck::kVerify) {
  return error_of([&] { deserialize(whole(bytes), check); });
}

PlanHeader header_of(const std::vector<std::byte>& file) {
  PlanHeader header;
  std::memcpy(&header, file.data(), sizeof(header));
  return header;
}

void expect_same_port(const PlanPort& a, const PlanPort& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.dims, b.dims);
  EXPECT_EQ(a.dimension_names, b.dimension_names);
  EXPECT_EQ(a.aliased_input, b.aliased_input);
  EXPECT_EQ(a.is_shape_input, b.is_shape_input);
}

void expect_same_step(const PlanStep& a, const PlanStep& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.metadata, b.metadata);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.attributes, b.attributes);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.candidate, b.candidate);
  EXPECT_EQ(a.code, b.code);
  EXPECT_EQ(a.size_symbols, b.size_symbols);
  EXPECT_EQ(a.time_ms, b.time_ms);
  EXPECT_EQ(a.stream, b.stream);
  ASSERT_EQ(a.packed.size(), b.packed.size());
  for (size_t i = 0; i < a.packed.size(); ++i) {
    EXPECT_EQ(a.packed[i].input, b.packed[i].input);
    EXPECT_EQ(a.packed[i].layout, b.packed[i].layout);
    EXPECT_EQ(a.packed[i].data, b.packed[i].data);
  }
  ASSERT_EQ(a.considered.size(), b.considered.size());
  for (size_t i = 0; i < a.considered.size(); ++i) {
    EXPECT_EQ(a.considered[i].types, b.considered[i].types);
    EXPECT_EQ(a.considered[i].tactic, b.considered[i].tactic);
    EXPECT_EQ(a.considered[i].tactic_name, b.considered[i].tactic_name);
    EXPECT_EQ(a.considered[i].time_ms, b.considered[i].time_ms);
    EXPECT_EQ(a.considered[i].reformat_ms, b.considered[i].reformat_ms);
    EXPECT_EQ(a.considered[i].dropped, b.considered[i].dropped);
  }
}

/// Readers before it skip the field, and files before it have none.
TEST(PlanFile, KeepsWhatTheModelSaysOfItself) {
  Plan plan = sample_plan();
  EXPECT_EQ(deserialize(whole(join(serialize(plan)))).metadata, ModelMetadata{});
  plan.metadata = {"torch", "2.3",  "org.example", "what it does",
                   -7,      "main", "the graph",   {{"names", "['cat']"}, {"", "\xff"}}};
  EXPECT_EQ(deserialize(whole(join(serialize(plan)))).metadata, plan.metadata);
}

TEST(PlanFile, EverythingComesBack) {
  const Plan plan = sample_plan();
  const Plan read = deserialize(whole(join(serialize(plan))));
  EXPECT_EQ(read.name, plan.name);
  EXPECT_EQ(read.builder, plan.builder);
  EXPECT_EQ(read.device_type, plan.device_type);
  EXPECT_EQ(read.backend, plan.backend);
  EXPECT_EQ(read.architecture, plan.architecture);
  EXPECT_EQ(read.device_identity, plan.device_identity);
  EXPECT_EQ(read.size_bounds, plan.size_bounds);
  EXPECT_EQ(read.requirements, plan.requirements);
  EXPECT_EQ(read.code, plan.code);
  EXPECT_EQ(read.plugin_libraries, plan.plugin_libraries);
  EXPECT_EQ(read.plugin_sources, plan.plugin_sources);
  ASSERT_EQ(read.refit.weights.size(), plan.refit.weights.size());
  for (size_t i = 0; i < plan.refit.weights.size(); ++i) {
    EXPECT_EQ(read.refit.weights[i].name, plan.refit.weights[i].name);
    EXPECT_EQ(read.refit.weights[i].uses, plan.refit.weights[i].uses);
  }
  for (int32_t i = 0; i < plan.refit.num_values(); ++i) {
    EXPECT_EQ(read.refit.dtype(i), plan.refit.dtype(i));
    EXPECT_EQ(read.refit.shape(i), plan.refit.shape(i));
    EXPECT_EQ(read.refit.data(i), plan.refit.data(i));
  }
  ASSERT_EQ(read.refit.operations.size(), 1U);
  EXPECT_EQ(read.refit.operations[0].kind, "ElementWise");
  EXPECT_EQ(read.refit.operations[0].inputs, plan.refit.operations[0].inputs);
  EXPECT_EQ(read.refit.operations[0].outputs, plan.refit.operations[0].outputs);
  EXPECT_EQ(str(read.refit.operations[0].attributes), str(plan.refit.operations[0].attributes));
  ASSERT_EQ(read.symbols.size(), plan.symbols.size());
  for (size_t i = 0; i < plan.symbols.size(); ++i) {
    EXPECT_EQ(read.symbols[i].kind, plan.symbols[i].kind);
    EXPECT_EQ(read.symbols[i].name, plan.symbols[i].name);
    EXPECT_EQ(read.symbols[i].tensor, plan.symbols[i].tensor);
    EXPECT_EQ(read.symbols[i].index, plan.symbols[i].index);
  }
  ASSERT_EQ(read.expressions.size(), plan.expressions.size());
  for (size_t i = 0; i < plan.expressions.size(); ++i) {
    EXPECT_EQ(read.expressions[i].op, plan.expressions[i].op);
    EXPECT_EQ(read.expressions[i].a, plan.expressions[i].a);
    EXPECT_EQ(read.expressions[i].b, plan.expressions[i].b);
    EXPECT_EQ(read.expressions[i].c, plan.expressions[i].c);
    EXPECT_EQ(read.expressions[i].value, plan.expressions[i].value);
  }
  ASSERT_EQ(read.inputs.size(), plan.inputs.size());
  for (size_t i = 0; i < plan.inputs.size(); ++i) expect_same_port(read.inputs[i], plan.inputs[i]);
  ASSERT_EQ(read.outputs.size(), plan.outputs.size());
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    expect_same_port(read.outputs[i], plan.outputs[i]);
  }
  ASSERT_EQ(read.schedules.size(), plan.schedules.size());
  for (size_t s = 0; s < plan.schedules.size(); ++s) {
    const Schedule &a = read.schedules[s], &b = plan.schedules[s];
    EXPECT_EQ(a.arena_size, b.arena_size);
    EXPECT_EQ(a.workspace_size, b.workspace_size);
    ASSERT_EQ(a.inputs.size(), b.inputs.size());
    for (size_t i = 0; i < b.inputs.size(); ++i) {
      EXPECT_EQ(a.inputs[i].min, b.inputs[i].min);
      EXPECT_EQ(a.inputs[i].opt, b.inputs[i].opt);
      EXPECT_EQ(a.inputs[i].max, b.inputs[i].max);
      EXPECT_EQ(a.inputs[i].values, b.inputs[i].values);
    }
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (size_t i = 0; i < b.tensors.size(); ++i) {
      EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
      EXPECT_EQ(a.tensors[i].type, b.tensors[i].type);
      EXPECT_EQ(a.tensors[i].dims, b.tensors[i].dims);
      EXPECT_EQ(a.tensors[i].location, b.tensors[i].location);
      EXPECT_EQ(a.tensors[i].index, b.tensors[i].index);
      EXPECT_EQ(a.tensors[i].offset, b.tensors[i].offset);
      EXPECT_EQ(a.tensors[i].size, b.tensors[i].size);
      EXPECT_EQ(a.tensors[i].values, b.tensors[i].values);
      EXPECT_EQ(a.tensors[i].source, b.tensors[i].source);
      EXPECT_EQ(a.tensors[i].data, b.tensors[i].data);
    }
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (size_t i = 0; i < b.steps.size(); ++i) expect_same_step(a.steps[i], b.steps[i]);
    ASSERT_EQ(a.copies.size(), b.copies.size());
    for (size_t i = 0; i < b.copies.size(); ++i) {
      EXPECT_EQ(a.copies[i].tensor, b.copies[i].tensor);
      EXPECT_EQ(a.copies[i].output, b.copies[i].output);
    }
    ASSERT_EQ(a.debug.size(), b.debug.size());
    for (size_t i = 0; i < b.debug.size(); ++i) {
      EXPECT_EQ(a.debug[i].name, b.debug[i].name);
      EXPECT_EQ(a.debug[i].tensor, b.debug[i].tensor);
      EXPECT_EQ(a.debug[i].is_marked, b.debug[i].is_marked);
    }
  }
}

TEST(PlanFile, EqualBytesAreStoredOnceAndAligned) {
  const auto file = join(serialize(sample_plan()));
  const PlanHeader header = header_of(file);
  // Two schedules with equal bytes: 8 plain and 16 packed bytes, and 4 that refitting reads, each
  // at a multiple of 64.
  EXPECT_EQ(header.weights.size, 2 * 64 + 4u);
  // Two objects of 100 equal bytes, one of 3 and one of 4, each at a multiple of 16.
  EXPECT_EQ(header.code.size, 112 + 16 + 4u);
  for (const auto& section : {header.plan, header.code, header.weights}) {
    EXPECT_EQ(section.offset % 4096, 0u);
  }
  const Plan plan = deserialize(whole(file));
  const auto& first = plan.schedules[0].tensors[3].data;
  EXPECT_EQ(first.data(), plan.schedules[1].tensors[3].data.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % 64, 0u);
}

TEST(PlanFile, HashesAreThoseOfTheFormat) {
  const auto file = join(serialize(sample_plan()));
  const PlanHeader header = header_of(file);
  const auto hash = [](const void* data, size_t size) { return XXH3_128bits(data, size); };
  const XXH128_hash_t own = hash(file.data(), 120);
  EXPECT_EQ(header.hash[0], own.low64);
  EXPECT_EQ(header.hash[1], own.high64);
  const XXH128_hash_t plan = hash(&file[header.plan.offset], header.plan.size);
  EXPECT_EQ(header.plan.hash[0], plan.low64);
  EXPECT_EQ(header.plan.hash[1], plan.high64);
  const XXH128_hash_t chunk = hash(&file[header.weights.offset], header.weights.size);
  const uint64_t chunks[] = {chunk.low64, chunk.high64};
  const XXH128_hash_t weights = hash(chunks, sizeof(chunks));
  EXPECT_EQ(header.weights.hash[0], weights.low64);
}

TEST(PlanFile, WeightsAreReferredToCodeAndPlanAreCopied) {
  const Blob file = whole(join(serialize(sample_plan())));
  const Plan plan = deserialize(file);
  const auto within = [&](const Blob& blob) {
    return blob.data() >= file.data() && blob.data() < file.data() + file.size();
  };
  EXPECT_TRUE(within(plan.schedules[0].tensors[3].data));
  EXPECT_TRUE(within(plan.schedules[0].steps[0].packed[0].data));
  EXPECT_FALSE(within(plan.code[0].bytes));
}

TEST(PlanFile, WeightsOfUnalignedBytesAreAligned) {
  auto bytes = join(serialize(sample_plan()));
  bytes.insert(bytes.begin(), std::byte{0});
  std::vector<std::byte> room(bytes.size() + 64);
  auto* start = room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) + 1;
  std::copy(bytes.begin() + 1, bytes.end(), start);
  const Plan plan = deserialize(Blob(nullptr, start, bytes.size() - 1));
  const Blob& data = plan.schedules[0].tensors[3].data;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % 64, 0u);
  EXPECT_EQ(data.as<float>()[1], -2.5f);
}

TEST(PlanFile, HashOfSeveralChunksDoesNotDependOnThePieces) {
  std::vector<std::byte> bytes(PlanHeader::kHashChunk * 2 + 12345);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  const Blob one = whole(bytes);
  std::vector<Blob> pieces;
  for (size_t at = 0, size = 1; at < bytes.size(); at += size, size = size * 3 + 7) {
    pieces.push_back(Blob(nullptr, one.data() + at, std::min(size, bytes.size() - at)));
  }
  std::vector<uint64_t> chunks;
  for (size_t at = 0; at < bytes.size(); at += PlanHeader::kHashChunk) {
    const auto hash =
        XXH3_128bits(&bytes[at], std::min<size_t>(PlanHeader::kHashChunk, bytes.size() - at));
    chunks.insert(chunks.end(), {hash.low64, hash.high64});
  }
  const auto expected = XXH3_128bits(chunks.data(), chunks.size() * 8);
  EXPECT_EQ(hash_chunks(pieces), (Hash128{expected.low64, expected.high64}));
  EXPECT_EQ(hash_chunks(std::span(&one, 1)), hash_chunks(pieces));
}

TEST(PlanFile, EveryFlippedBitIsFound) {
  const auto file = join(serialize(sample_plan()));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    auto damaged = file;
    damaged[random() % file.size()] ^= std::byte{1} << (random() % 8);
    EXPECT_NE(file_error(damaged), "no error");
  }
}

TEST(PlanFile, EveryTruncationIsFound) {
  const auto file = join(serialize(sample_plan()));
  for (size_t size = 0; size < file.size(); size += size < 300 ? 1 : 97) {
    auto cut = file;
    cut.resize(size);
    EXPECT_NE(file_error(cut), "no error") << size;
  }
}

TEST(PlanFile, ErrorsSayWhatIsWrong) {
  const auto file = join(serialize(sample_plan()));
  const auto header = header_of(file);
  EXPECT_NE(file_error({}).find("truncated"), std::string::npos);
  auto foreign = file;
  foreign[0] = std::byte{'X'};
  EXPECT_NE(file_error(foreign).find("no Opwright engine"), std::string::npos);
  auto newer = file;
  newer[8] = std::byte{77};
  EXPECT_NE(file_error(newer).find("format version is 77"), std::string::npos);
  auto cut = file;
  cut.pop_back();
  EXPECT_NE(file_error(cut).find("truncated"), std::string::npos);
  auto longer = file;
  longer.push_back(std::byte{0});
  EXPECT_NE(file_error(longer).find("appended"), std::string::npos);
  auto weights = file;
  weights[header.weights.offset] ^= std::byte{1};
  EXPECT_NE(file_error(weights).find("weights section"), std::string::npos);
  EXPECT_EQ(file_error(weights, WeightCheck::kDeferred), "no error");
  auto code = file;
  code[header.code.offset] ^= std::byte{1};
  EXPECT_NE(file_error(code, WeightCheck::kDeferred).find("code section"), std::string::npos);
}

/// Whatever is done to the bytes, reading gives an Error or a plan that passes all checks.
TEST(PlanFile, MutationsBehindTheHashesNeverCrash) {
  const auto file = join(serialize(sample_plan()));
  const PlanHeader header = header_of(file);
  std::mt19937 random(2);
  const uint32_t interesting[] = {0, 1, 0x7f, 0xff, 0x7fffffff, 0x80000000, 0xffffffff, 0x10000};
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    auto damaged = file;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < changes; ++change) {
      const size_t at = header.plan.offset + random() % header.plan.size;
      switch (random() % 4) {
        case 0:
          damaged[at] ^= std::byte{1} << (random() % 8);
          break;
        case 1: {
          const uint32_t value = interesting[random() % std::size(interesting)];
          const size_t place = std::min(at / 4 * 4, damaged.size() - 4);
          std::memcpy(&damaged[place], &value, 4);
          break;
        }
        case 2: {  // splice
          const size_t from = header.plan.offset + random() % header.plan.size;
          const size_t end = header.plan.offset + header.plan.size;
          const size_t size = std::min<size_t>({random() % 64, end - from, end - at});
          std::memmove(&damaged[at], &file[from], size);
          break;
        }
        default: {
          const size_t place = at / 4 * 4;
          int32_t value = 0;
          if (place + 4 > damaged.size()) break;
          std::memcpy(&value, &damaged[place], 4);
          value += static_cast<int>(random() % 33) - 16;
          std::memcpy(&damaged[place], &value, 4);
        }
      }
    }
    repair(damaged);
    try {
      validate(deserialize(whole(damaged)));
      ++accepted;
    } catch (const Error&) {
    }
  }
  // Names, numbers in attributes and the like may change; most changes must be noticed.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 16000);
}

/// An engine file with only that plan section.
std::vector<std::byte> file_of(const flatbuffers::FlatBufferBuilder& section) {
  const auto aligned = [](uint64_t size) {
    return (size + PlanHeader::kAlignment - 1) / PlanHeader::kAlignment * PlanHeader::kAlignment;
  };
  PlanHeader header{};
  header.plan = {PlanHeader::kAlignment, section.GetSize(), {}};
  header.code = {aligned(header.plan.end()), 0, {}};
  header.weights = {aligned(header.code.end()), 0, {}};
  std::vector<std::byte> file(header.weights.end());
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(&file[header.plan.offset], section.GetBufferPointer(), section.GetSize());
  repair(file);
  return file;
}

/// FlatBuffers lets references share a table: 8 bytes of the file each, many more in memory.
TEST(PlanFile, SharedTablesTakeNoMoreMemoryThanTheirFileAllows) {
  constexpr size_t kCount = 200000;
  flatbuffers::FlatBufferBuilder builder;
  builder.CreateString(std::string(kCount * 8, 'x'));  // makes room that nothing refers to
  const auto tensor = fb::CreateTensor(builder);
  const auto tensors =
      builder.CreateVector(std::vector<flatbuffers::Offset<fb::Tensor>>(kCount, tensor));
  const auto steps = builder.CreateVector(std::vector<flatbuffers::Offset<fb::Step>>());
  fb::ScheduleBuilder schedule(builder);
  schedule.add_tensors(tensors);
  schedule.add_steps(steps);
  const auto schedules = builder.CreateVector(std::vector{schedule.Finish()});
  fb::PlanBuilder plan(builder);
  plan.add_schedules(schedules);
  fb::FinishPlanBuffer(builder, plan.Finish());
  const std::string error = file_error(file_of(builder));
  EXPECT_NE(error.find("as much memory"), std::string::npos) << error;
}

TEST(PlanFile, TruncationsBehindTheHashesNeverCrash) {
  const auto file = join(serialize(sample_plan()));
  for (size_t size = sizeof(PlanHeader); size < file.size(); size += 13) {
    auto cut = file;
    cut.resize(size);
    repair(cut);
    EXPECT_NE(file_error(cut), "no error");
  }
}

}  // namespace
}  // namespace opwright
