#pragma once

#include "operators/builtin.h"

namespace opwright {

template <>
inline constexpr auto kEnumeration<KVCacheMode> = enumeration<KVCacheMode>(
    "KVCacheMode", "Where a cache's new tokens go.",
    {{"LINEAR", KVCacheMode::kLINEAR, "One behind the other, from an index on."}});

struct KvCacheUpdateParams {
  KVCacheMode mode = KVCacheMode::kLINEAR;
  AttentionIOForm update_form = AttentionIOForm::kPADDED_BHND;
  template <class V>
  void visit(V& v) {
    v("cache_mode", mode), v("update_form", update_form);
  }
};
/// Writes new tokens into a cache. The output is in the cache's memory. Inputs: the cache [batch,
/// heads, room, size], the update [batch, heads, tokens, size] of the same type, and for each
/// batch, INT32 or INT64, the place of its first token. In the form PACKED_NHD the update is
/// [tokens of all batches, heads, size], and input 3, [batch + 1], says where the tokens of each
/// batch begin. Tokens for which there is no room are left out.
class KvCacheUpdate final : public BuiltinOperator<KvCacheUpdate, KvCacheUpdateParams> {
 public:
  static constexpr std::string_view kKind = "KVCacheUpdate";
  static constexpr LayerClass<class IKVCacheUpdateLayer> kLayer{
      LayerType::kKVCACHE_UPDATE, "IKVCacheUpdateLayer",
      "Writes new tokens into a cache, whose memory the output is."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool may_overwrite(int input, int) const override { return input == 0; }
};
/// The same, but the output is a tensor of its own and the cache stays as it is. A run copies the
/// old tokens, unless its caller has put both tensors in one place. Updates are padded. Input 3,
/// one integer that decides shapes, may be the room of the output, if it differs from that of the
/// cache. Elements that the cache lacks are 0.
class KvCacheWrite final : public BuiltinOperator<KvCacheWrite, KvCacheUpdateParams> {
 public:
  static constexpr std::string_view kKind = "KVCacheWrite";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool may_overwrite(int input, int) const override { return input == 0; }
  bool is_shape_input(int input) const override { return input == 3; }
};

}  // namespace opwright
