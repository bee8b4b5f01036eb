#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include "plan/format.h"
#include "plan/hash.h"
#include "plan/plan.h"

namespace opwright {

inline Blob floats(const std::vector<float>& values) {
  return Blob::copy(values.data(), values.size() * sizeof(float));
}

/// A consistent plan that uses every part of the format:
///     x [n, 3] FP32, n in 1..8; y [n, 3]; shape input k, INT64 scalar in 1..4
///     h = Scale(x, w)            w packed, in the arena
///     count, kept = Filter(h)    count is a size tensor, kept [count, 3]
///     out = Pad(kept, values(k)) [count, 3], data-dependent
///     same: copy of y; constant: copy of a weight [2]
///     x, constant and kept are debug tensors
/// The weights are refittable: w is made of "weights" (3) and a constant, "constant" (2) stays as
/// it is and is kept.
inline Plan sample_plan() {
  ExprProgramBuilder program;
  const Expr n = Expr::symbol(0), k = Expr::symbol(1), count = Expr::symbol(2);
  const int32_t dim_n = program.add(n), dim_3 = program.add(3), dim_k = program.add(k),
                half = program.add(ceil_div(n, 2)), dim_count = program.add(count),
                dim_2 = program.add(2), doubled = program.add(k * 2 + n);
  const PortType fp32{DataType::kFLOAT, TensorFormat::kLINEAR};
  const PortType int64{DataType::kINT64, TensorFormat::kLINEAR};
  const PortType int32{DataType::kINT32, TensorFormat::kLINEAR};

  Plan plan;
  plan.name = "sample";
  plan.builder = "opwright 0.1.0";
  plan.device_type = DeviceType::kCPU;
  plan.backend = "cuda";
  plan.architecture = "x86-64";
  plan.device_identity = "a test";
  const auto symbol = [](Symbol::Kind kind, const char* name, const char* tensor) {
    Symbol made;
    made.kind = kind;
    made.name = name;
    made.tensor = tensor;
    return made;
  };
  plan.symbols = {symbol(Symbol::Kind::kInputExtent, "n", "x"),
                  symbol(Symbol::Kind::kInputValue, "k", "k"),
                  symbol(Symbol::Kind::kSizeTensor, "count", "count")};
  plan.size_bounds = {{-1, -1}, {-1, -1}, {half, dim_n}};
  plan.inputs = {
      {.name = "x", .type = fp32, .dims = {dim_n, dim_3}, .dimension_names = {"n", ""}},
      {.name = "y", .type = fp32, .dims = {dim_n, dim_3}, .dimension_names = {}},
      {.name = "k", .type = int64, .dims = {}, .dimension_names = {}, .is_shape_input = true}};
  plan.outputs = {{.name = "out", .type = fp32, .dims = {dim_count, dim_3}, .dimension_names = {}},
                  {.name = "same",
                   .type = fp32,
                   .dims = {dim_n, dim_3},
                   .dimension_names = {},
                   .aliased_input = 1},
                  {.name = "constant", .type = fp32, .dims = {dim_2}, .dimension_names = {}}};
  plan.requirements = {{"plugin", "filter", "1", "test"}};
  const std::vector<char> code(100, 'c');
  plan.code = {{"filter.so", "x86-64", Blob::copy(code.data(), code.size()), true},
               {"filter.ptx", "sm_90", Blob::copy("ptx", 3), false},
               {"again.so", "x86-64", Blob::copy(code.data(), code.size()), true},
               {"filter.py", "python", Blob::copy("pass", 4), true}};
  plan.plugin_libraries = {2};
  plan.plugin_sources = {3};
  plan.refit.weights = {{"weights", DataType::kFLOAT, {3}, {{"scale", 3}}, Blob()},
                        {"constant", DataType::kFLOAT, {2}, {{"c", 4}}, floats({1.5f, -2.5f})}};
  plan.refit.values = {{DataType::kFLOAT, {1}, floats({2})}, {DataType::kFLOAT, {3}, Blob()}};
  plan.refit.operations = {{"folded", "ElementWise", {{"op", int64_t{1}}}, {0, 2}, {3}}};
  plan.expressions.assign(program.instructions().begin(), program.instructions().end());

  using Location = PlanTensor::Location;
  const auto tensor = [](const char* name, PortType type, std::vector<int32_t> dims,
                         Location location) {
    PlanTensor made;
    made.name = name;
    made.type = type;
    made.dims = std::move(dims);
    made.location = location;
    return made;
  };
  for (const int64_t most : {8, 5}) {
    Schedule& schedule = plan.schedules.emplace_back();
    schedule.inputs = {{{1, 3}, {4, 3}, {most, 3}, false},
                       {{1, 3}, {4, 3}, {most, 3}, false},
                       {{1}, {2}, {4}, true}};
    auto& tensors = schedule.tensors;
    tensors.push_back(tensor("x", fp32, {dim_n, dim_3}, Location::kInput));
    tensors.back().index = 0;
    tensors.push_back(tensor("y", fp32, {dim_n, dim_3}, Location::kInput));
    tensors.back().index = 1;
    tensors.push_back(tensor("w", fp32, {dim_3}, Location::kWeight));  // packed
    tensors.back().source = 3;
    tensors.push_back(tensor("c", fp32, {dim_2}, Location::kWeight));
    tensors.back().data = floats({1.5f, -2.5f});
    tensors.back().source = 1;
    tensors.back().size = 8;
    tensors.push_back(tensor("h", fp32, {dim_n, dim_3}, Location::kArena));
    tensors.back().size = static_cast<uint64_t>(most) * 12;
    tensors.push_back(tensor("count", int32, {}, Location::kArena));
    tensors.back().offset = 128;
    tensors.back().size = 4;
    tensors.push_back(tensor("kept", fp32, {dim_count, dim_3}, Location::kArena));
    tensors.back().offset = 192;
    tensors.back().size = static_cast<uint64_t>(most) * 12;
    tensors.push_back(tensor("pads", int64, {dim_2}, Location::kValues));
    tensors.back().values = {dim_k, doubled};
    tensors.push_back(tensor("out", fp32, {dim_count, dim_3}, Location::kOutput));
    tensors.back().index = 0;
    schedule.arena_size = 320;
    schedule.workspace_size = 64;
    schedule.copies = {{1, 1}, {3, 2}};
    schedule.debug = {{"x", 0, true}, {"c", 3, true}, {"the kept ones", 6, false}};

    PlanStep scale;
    scale.name = "scale";
    scale.metadata = "from node 1";
    scale.kind = "TestScale";
    scale.attributes = {{"factor", 2.5},
                        {"mode", int64_t{-7}},
                        {"text", std::string("caf\xc3\xa9")},
                        {"ints", Ints{1, -2, 3}},
                        {"floats", Floats{0.1, -1e300}},
                        {"bytes", Blob::copy("\0\1\2", 3)}};
    scale.inputs = {0, 2, -1};
    scale.outputs = {4};
    scale.candidate = {{fp32, fp32, fp32}, {fp32}, 3, "vector"};
    scale.packed = {{1, floats({1.0f, 2.0f, 3.0f, 0.0f}), "padded to 4"}};
    scale.time_ms = 0.25f;
    scale.stream = 3;
    scale.considered = {{"FP32, FP32, FP32 -> FP32", 3, "vector", 0.25f, 0, ""},
                        {"FP16, FP16 -> FP16", 4, "scalar", 0.125f, 0.5f, ""},
                        {"FP8, FP8 -> FP8", 4, "scalar", 0, 0, "FP8 is not allowed"}};
    PlanStep filter;
    filter.name = "filter";
    filter.kind = "TestFilter";
    filter.inputs = {4};
    filter.outputs = {5, 6};
    filter.candidate = {{fp32}, {int32, fp32}, 0, ""};
    filter.code = {0, 1, 2};
    const int64_t axes[] = {0, -1};
    const float nan = std::numeric_limits<float>::signaling_NaN();
    filter.attributes = {
        {"fields", FieldValues{{"axes", PluginFieldType::kINT64, 2, Blob::copy(axes, 16)},
                               {"limit", PluginFieldType::kFLOAT32, 1, Blob::copy(&nan, 4),
                                std::vector<int64_t>{1, 1}},
                               {"modes", PluginFieldType::kCHAR, 5, Blob::copy("abcde", 5),
                                std::vector<int64_t>{0, 3, 2}},
                               {"none", PluginFieldType::kINT4, 0, Blob()}}},
        {"empty", FieldValues{}}};
    filter.size_symbols = {2, -1};
    PlanStep pad;
    pad.name = "pad";
    pad.kind = "TestPad";
    pad.inputs = {6, 7};
    pad.outputs = {8};
    pad.candidate = {{fp32, int64}, {fp32}, 0, ""};
    KernelLaunch launch;
    launch.symbol = "pad_kernel";
    launch.layer_kind = "Padding";
    launch.program = {
        {ExprOp::kConstant, 0, 0, 0, 64}, {ExprOp::kSymbol, 0, 0, 0, 1}, {ExprOp::kProd, 0, 1}};
    launch.grid = {2, 0, 1};
    launch.block = {0, 0, 0};
    launch.shared_memory = 1;
    launch.arguments = {{ArgumentType::kINT64, 2}, {ArgumentType::kFLOAT32, 0, -0.5}};
    launch.scratch = {2, 1};
    launch.maps = {
        {0, DataType::kHALF, {2, 1, 1}, {2, 2}, {64, 8, 1}, {1, 1, 1}, {}, {}},
        {1, DataType::kBF16, {2, 1, 1, 1}, {2, 2, 2}, {64, 128}, {1, 2, 2, 1}, {1, 1}, {0, 0}}};
    launch.shape_inputs = {1};
    launch.checks = {{2, "there is nothing\nto pad"}};
    pad.attributes = {{"launch", launch}};
    schedule.steps = {scale, filter, pad};
  }
  return plan;
}

inline std::vector<std::byte> join(const std::vector<Blob>& pieces) {
  std::vector<std::byte> bytes;
  for (const Blob& piece : pieces) {
    bytes.insert(bytes.end(), piece.data(), piece.data() + piece.size());
  }
  return bytes;
}

/// Makes header and hashes right for the bytes, where the sections still lie within the file, so
/// that what comes after the hashes is tested.
inline void repair(std::vector<std::byte>& file) {
  PlanHeader header;
  if (file.size() < sizeof(header)) return;
  std::memcpy(&header, file.data(), sizeof(header));
  std::memcpy(header.magic, PlanHeader::kMagic, sizeof(header.magic));
  header.version = PlanHeader::kVersion;
  header.file_size = file.size();
  const auto set = [](uint64_t(&hash)[2], Hash128 value) {
    hash[0] = value[0];
    hash[1] = value[1];
  };
  const auto section = [&](const PlanHeader::Section& s) -> std::span<const std::byte> {
    if (s.offset > file.size() || s.size > file.size() - s.offset) return {};
    return std::span(file).subspan(s.offset, s.size);
  };
  set(header.plan.hash, hash128(section(header.plan)));
  set(header.code.hash, hash128(section(header.code)));
  const auto weights = section(header.weights);
  const Blob view(nullptr, weights.data(), weights.size());
  set(header.weights.hash, hash_chunks(std::span(&view, 1)));
  set(header.hash, hash128(std::as_bytes(std::span(&header, 1)).first(offsetof(PlanHeader, hash))));
  std::memcpy(file.data(), &header, sizeof(header));
}

}  // namespace opwright
