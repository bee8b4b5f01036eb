#include "operators/fused_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/attention_tiles.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/part_counters.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/source.h"

namespace opwright::gpu::attention {
namespace {

constexpr int kQuery = 0, kKey = 1, kValue = 2, kOutput = 3;
constexpr int kAllowed = FusedAttention::kAllowed, kBias = FusedAttention::kBias;

size_t at(int axis) { return static_cast<size_t>(axis); }

/// Writes the configuration and the arguments that the kernels of device/attention_*.cuh need, and
/// their call.
class AttentionWriter {
 public:
  AttentionWriter(const FusedAttentionParams& params, const KernelArgs& args);
  GeneratedKernel write();

 private:
  bool has(int input) const {
    return args_.inputs.size() > at(input) && args_.inputs[at(input)].present;
  }
  bool is_by_head(int operand) const {
    return params_.layout(operand) == AttentionLayout::kHEADS_FIRST;
  }
  int64_t size_of(int operand) const {
    return operand < kValue ? params_.size : params_.value_size;
  }
  std::string write_config() const;
  std::string write_operand(int operand, std::string_view pointer);
  std::string write_mask(int input);
  std::string write_arguments();
  /// Lets the tensor memory accelerator (TMA) read keys and values where it can.
  void add_maps();
  GeneratedKernel write_tiles();
  GeneratedKernel write_direct();
  GeneratedKernel write_groups();

  const FusedAttentionParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  const Tactic tactic_;
  const AttentionTile& tile_;
  const DataType type_;
  AttentionStrides<Expr> strides_[4];
  Expr batch_, queries_, keys_, heads_, tiles_, parts_, tasks_;
  /// Only for warpgroups.
  bool has_maps_ = false;
  int blocks_at_once_ = 1;
};

AttentionWriter::AttentionWriter(const FusedAttentionParams& params, const KernelArgs& args)
    : params_(params),
      args_(args),
      source_("fused_attention", args),
      tactic_(tactic_of(args.candidate->tactic)),
      tile_(tactic_.tile),
      type_(args.inputs[0].type.dtype) {
  for (int i = 0; i < kOutput; ++i)
    strides_[i] = attention_strides<Expr>(params, i, source_.dims(i));
  const SymShape &query = source_.dims(kQuery), &key = source_.dims(kKey),
                 &value = source_.dims(kValue);
  batch_ = query[at(attention_batch_axis(params.layout(kQuery)))];
  queries_ = query[at(attention_length_axis(params.layout(kQuery)))];
  keys_ = key[at(attention_length_axis(params.layout(kKey)))];
  source_.check_equal(key[at(attention_batch_axis(params.layout(kKey)))], batch_,
                      "queries and keys must have one batch");
  source_.check_equal(value[at(attention_batch_axis(params.layout(kValue)))], batch_,
                      "queries and values must have one batch");
  source_.check_equal(value[at(attention_length_axis(params.layout(kValue)))], keys_,
                      "there must be as many values as keys");
  const Expr row(params.heads * params.value_size);
  const SymShape output =
      is_by_head(kOutput) ? SymShape{batch_, Expr(params.heads), queries_, params.value_size}
      : params.layout(kOutput) == AttentionLayout::kBATCH_FIRST ? SymShape{batch_, queries_, row}
                                                                : SymShape{queries_, batch_, row};
  strides_[kOutput] = attention_strides<Expr>(params, kOutput, output);
  heads_ = batch_ * Expr(params.shared_heads);
  tiles_ = ceil_div(Expr(params.group()) * queries_, Expr(tile_.m));
  parts_ = tile_.is_split() ? split_parts(tile_, keys_, heads_ * tiles_) : Expr(tactic_.parts);
  tasks_ = heads_ * tiles_ * parts_;
}

GeneratedKernel AttentionWriter::write() {
  switch (tile_.kind) {
    case AttentionKind::kWarpgroup:
      return write_groups();
    case AttentionKind::kDirect:
    case AttentionKind::kSplit:
      return write_direct();
    case AttentionKind::kScalar:
    case AttentionKind::kTensor:
      break;
  }
  return write_tiles();
}

std::string AttentionWriter::write_config() const {
  ConfigWriter config;
  config.type("Element", storage_type(type_));
  config.type("Output", storage_type(args_.outputs[0].type.dtype));
  for (const auto& [name, input] : {std::pair("Allowed", kAllowed), std::pair("Bias", kBias)})
    config.type(name, has(input) ? storage_type(args_.inputs[at(input)].type.dtype) : "void");
  config.number("kTileM", tile_.m), config.number("kTileN", tile_.n);
  config.number("kWarpsM", tile_.warps_m), config.number("kWarpsN", tile_.warps_n);
  config.number("kStages", tile_.stages), config.number("kParts", tactic_.parts);
  config.number("kHeadSize", params_.size), config.number("kHeadValueSize", params_.value_size);
  config.number("kSharedHeads", params_.shared_heads), config.number("kGroup", params_.group());
  config.value("CausalMask", "kCausal",
               params_.causal_kind == CausalMaskKind::kNONE          ? "CausalMask::kNone"
               : params_.causal_kind == CausalMaskKind::kLOWER_RIGHT ? "CausalMask::kLowerRight"
                                                                     : "CausalMask::kUpperLeft");
  config.number("kScale", params_.scale), config.number("kCap", params_.cap);
  config.number("kWritten", written_inputs(args_));
  config.flag("kMaskExcludes", std::isinf(params_.masked_score));
  config.flag("kIsTensor", tile_.is_tensor());
  if (tile_.is_direct()) config.flag("kIsSplit", tile_.is_split());
  if (tile_.is_split()) config.number("kCounterBits", kSplitCounterBits);
  if (tile_.kind == AttentionKind::kWarpgroup) {
    config.flag("kTakesTurns", tile_.takes_turns);
    config.flag("kHasMaps", has_maps_);
    config.flag("kKeysByHead", is_by_head(kKey)), config.flag("kValuesByHead", is_by_head(kValue));
    config.flag("kHasEpilogue", params_.fused.present());
    config.number("kBlocksAtOnce", blocks_at_once_);
  }
  // NVRTC does not fold in_powers_of_two() of a constant.
  constexpr float kMost = std::numeric_limits<float>::max();
  const float masked =
      std::isinf(params_.masked_score)
          ? params_.masked_score
          : std::clamp(params_.masked_score * std::numbers::log2e_v<float>, -kMost, kMost);
  config.function("float masked_score()", str("return ", float_literal(masked), ";\n"));
  if (!params_.fused.present()) {
    config.function("Output make_result(float y)", "return store<Output>(y);\n");
    return config.write();
  }
  config.function(
      "Output make_result(float y)",
      str("y = load(store<Element>(y));\n",
          fused_program(params_.fused, args_.outputs[0].type.dtype), "return store<Output>(z);\n"));
  return pointwise_functions(true) + config.write();
}

std::string AttentionWriter::write_operand(int operand, std::string_view pointer) {
  const AttentionStrides<Expr>& s = strides_[operand];
  return str("{", pointer, ", ", source_.value(Expr(s.offset)), ", ", source_.value(s.batch), ", ",
             source_.value(s.head), ", ", source_.value(s.length), "},\n");
}

std::string AttentionWriter::write_mask(int input) {
  if (!has(input)) return "{},\n";
  SymShape dims = source_.dims(input);
  dims.insert(dims.begin(), 4 - dims.size(), Expr(1));
  const SymShape scores = {batch_, Expr(params_.heads), queries_, keys_};
  SymShape strides(4);
  Expr stride = 1;
  for (size_t i = 4; i-- > 0;) {
    source_.check_equal((dims[i] - Expr(1)) * (dims[i] - scores[i]), Expr(0),
                        "a mask must broadcast to the scores");
    strides[i] = Expr::select(Expr::make(ExprOp::kEqual, dims[i], Expr(1)), Expr(0), stride);
    stride = stride * dims[i];
  }
  return str("{in", input, ", ", source_.value(strides[0]), ", ", source_.value(strides[1]), ", ",
             source_.value(strides[2]), ", ", source_.value(strides[3]), "},\n");
}

std::string AttentionWriter::write_arguments() {
  std::string text = "const AttentionArguments<Config> all = {\n";
  for (const int operand : {kQuery, kKey, kValue})
    text += write_operand(operand, str("in", operand));
  text += write_mask(kAllowed) + write_mask(kBias) + write_operand(kOutput, "out0");
  return str(text, source_.value(queries_), ", ", source_.value(keys_), ", ",
             source_.value(Expr(params_.group()) * queries_), ", ", source_.value(tiles_), ", ",
             source_.value(heads_), ", ", source_.value(tasks_), "};\n");
}

GeneratedKernel AttentionWriter::write_tiles() {
  std::string scratch = "nullptr", counters = "nullptr";
  if (tactic_.parts > 1) {
    const int64_t count = (heads_ * tiles_).constant();
    source_.add_scratch("float", count * tactic_.parts * state_size(tile_, params_));
    scratch = "scratch", counters = add_part_counters(source_, count);
  }
  source_.add_declarations(include("attention_tiles.cuh") + write_config());
  const std::string text = str(write_arguments(), "unsigned long long* const counters[] = {",
                               counters, "};\nattend_by_tiles(all, ", scratch, ", counters);\n");
  GeneratedKernel kernel = source_.finish(text, tasks_, tile_.threads());
  kernel.launch.shared_memory = shared_memory(tile_, params_, type_);
  return kernel;
}

GeneratedKernel AttentionWriter::write_direct() {
  source_.leave_waiting();
  source_.add_declarations(include("attention_direct.cuh") + write_config());
  std::string scratch = "nullptr", counters = "nullptr";
  if (tile_.is_split()) {
    const int64_t most = most_tasks(params_, tile_, args_.inputs[0].max);
    source_.add_scratch("float", split_scratch(tile_, params_, most));
    scratch = "scratch", counters = add_part_counters(source_, most, kSplitCounterBits);
  }
  const std::string text =
      str(write_arguments(), "unsigned long long* const counters[] = {", counters,
          "};\nattend_directly(all, ", source_.value(parts_), ", ", scratch, ", counters);\n");
  GeneratedKernel kernel = source_.finish(text, tasks_, tile_.threads(), 0, tactic_.parts);
  kernel.launch.shared_memory = shared_memory(tile_, params_, type_);
  kernel.is_for_one_architecture = tactic_.parts > 1;
  return kernel;
}

void AttentionWriter::add_maps() {
  const int vector = vector_of(type_);
  const auto is_aligned = [&](const Expr& number) {
    return number.is_constant() && number.constant() % vector == 0;
  };
  // A box of one head must contain nothing of the next head, where heads lie side by side.
  const auto fits = [&](int input) {
    const AttentionStrides<Expr>& s = strides_[input];
    return is_by_head(input)
               ? size_of(input) % vector == 0
               : size_of(input) % 64 == 0 && s.offset % vector == 0 && is_aligned(s.head) &&
                     is_aligned(s.length) && is_aligned(s.batch);
  };
  // A tensor without elements cannot have a map.
  const Shape& least = args_.inputs[1].min;
  has_maps_ = fits(kKey) && fits(kValue) && least[attention_length_axis(params_.layout(kKey))] > 0;
  for (const int input : {kKey, kValue}) {
    if (!has_maps_) return;
    const AttentionStrides<Expr>& s = strides_[input];
    KernelTensorMap map;
    map.input = input, map.type = type_;
    // Where heads lie side by side, a row ends with the last head.
    const Expr inner = is_by_head(input) ? Expr(size_of(input))
                                         : Expr(s.offset + size_of(input)) +
                                               Expr(params_.shared_heads - 1) * s.head;
    map.extents = {inner, keys_, is_by_head(input) ? heads_ : batch_};
    map.strides = {s.length, is_by_head(input) ? s.head : s.batch};
    map.box = {64, tile_.n, 1};
    map.steps = {1, 1, 1};
    source_.add_map(input == kKey ? "key_map" : "value_map", std::move(map));
  }
}

GeneratedKernel AttentionWriter::write_groups() {
  // Two blocks of a single warpgroup overlap on a multiprocessor without taking turns explicitly,
  // where both tiles fit.
  constexpr int64_t kShared = 228 << 10, kReserved = 1 << 10;
  constexpr int kCopiers = 128;
  const int64_t memory = shared_memory(tile_, params_, type_);
  blocks_at_once_ = tile_.groups() == 1 && 2 * (memory + kReserved) <= kShared ? 2 : 1;
  source_.leave_waiting();
  source_.add_counters(2);
  add_maps();
  source_.add_declarations(include("attention_group.cuh") + write_config());
  const std::string text =
      str(write_arguments(), "attend_by_groups(all, ",
          has_maps_ ? "&key_map, &value_map" : "nullptr, nullptr", ", counter0, counter1);\n");
  GeneratedKernel kernel = source_.finish(text, min(tasks_, Expr(kFewBlocks * blocks_at_once_)),
                                          tile_.threads() + kCopiers, blocks_at_once_);
  kernel.launch.shared_memory = memory;
  kernel.is_for_one_architecture = true;
  return kernel;
}

std::vector<Candidate> attention_candidates(const Operator& op, const CandidateQuery& query) {
  const FusedAttentionParams& params = static_cast<const FusedAttention&>(op).params();
  const DataType type = query.inputs[0].type.dtype;
  const bool is_known =
      type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
  if (!is_known || params.size > kMaxSize || params.value_size > kMaxSize) return {};
  std::vector<DataType> types = {type};
  if (!query.strongly_typed && type == DataType::kFLOAT) {
    if (query.fp16) types.push_back(DataType::kHALF);
    if (query.bf16) types.push_back(DataType::kBF16);
  }
  std::vector<Candidate> found;
  for (const DataType offered : types)
    for (const int64_t tactic : tactics(params, offered, query)) {
      Candidate candidate = linear_candidate(query, tactic_of(tactic).name());
      for (size_t i = 0; i < 3; ++i) candidate.inputs[i].dtype = offered;
      candidate.outputs[0].dtype = params.fused.present() ? params.fused.result : offered;
      candidate.tactic = tactic;
      found.push_back(std::move(candidate));
    }
  return found;
}

std::optional<GeneratedKernel> generate_attention(const Operator& op, const KernelArgs& args) {
  return AttentionWriter(static_cast<const FusedAttention&>(op).params(), args).write();
}

const RegisteredKernels<FusedAttention> kFusedAttentionKernels({.candidates = attention_candidates,
                                                                .generate = generate_attention,
                                                                .make = nullptr,
                                                                .tactics = tactic_names});

}  // namespace
}  // namespace opwright::gpu::attention
