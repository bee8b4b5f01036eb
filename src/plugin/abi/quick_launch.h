#pragma once

#include <optional>
#include <string>
#include <vector>

#include "opwright/plugin_quick.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/kernel/compiled_kernel.h"

namespace opwright {

/// A scalar that a plugin set. It is read at once, so that the plugin may reuse or drop the object;
/// getters return the pointer.
struct QuickScalar {
  ISymExpr* object = nullptr;
  KernelArgument value;
};

/// Receives the results of a plugin's getLaunchParams(). Expressions must come from `builder`,
/// which outlives it. Invalid values are refused, as the interface says, and take() throws Error
/// for them.
class QuickLaunchParams final : public IKernelLaunchParams, private IKernelLaunchParamsImpl {
 public:
  explicit QuickLaunchParams(const ExprBuilder& builder) : builder_(builder) { mImpl = this; }
  /// Writes grid, block and shared memory. Throws Error for a value that is missing, refused or
  /// negative.
  void take(KernelCode& code) const;

 private:
  enum Size { kGridX, kGridY, kGridZ, kBlockX, kBlockY, kBlockZ, kSharedMem, kCount };
  ISymExpr* getGridX() noexcept override { return get(kGridX); }
  bool setGridX(ISymExpr* value) noexcept override { return set(kGridX, value); }
  ISymExpr* getGridY() noexcept override { return get(kGridY); }
  bool setGridY(ISymExpr* value) noexcept override { return set(kGridY, value); }
  ISymExpr* getGridZ() noexcept override { return get(kGridZ); }
  bool setGridZ(ISymExpr* value) noexcept override { return set(kGridZ, value); }
  ISymExpr* getBlockX() noexcept override { return get(kBlockX); }
  bool setBlockX(ISymExpr* value) noexcept override { return set(kBlockX, value); }
  ISymExpr* getBlockY() noexcept override { return get(kBlockY); }
  bool setBlockY(ISymExpr* value) noexcept override { return set(kBlockY, value); }
  ISymExpr* getBlockZ() noexcept override { return get(kBlockZ); }
  bool setBlockZ(ISymExpr* value) noexcept override { return set(kBlockZ, value); }
  ISymExpr* getSharedMem() noexcept override { return get(kSharedMem); }
  bool setSharedMem(ISymExpr* value) noexcept override { return set(kSharedMem, value); }

  ISymExpr* get(Size size) const { return sizes_[size] ? sizes_[size]->object : nullptr; }
  bool set(Size size, ISymExpr* value) noexcept;

  const ExprBuilder& builder_;
  std::optional<QuickScalar> sizes_[kCount];
  std::string refused_;
};

/// Receives the extra arguments of a plugin's getLaunchParams() in the same way.
class QuickArguments final : public ISymExprs, private ISymExprsImpl {
 public:
  explicit QuickArguments(const ExprBuilder& builder) : builder_(builder) { mImpl = this; }
  /// Writes the extra arguments. Throws Error for an argument that is missing or refused.
  void take(KernelCode& code) const;

 private:
  ISymExpr* getSymExpr(int32_t index) const noexcept override;
  bool setSymExpr(int32_t index, ISymExpr* value) noexcept override;
  int32_t getNbSymExprs() const noexcept override { return static_cast<int32_t>(entries_.size()); }
  bool setNbSymExprs(int32_t count) noexcept override;

  const ExprBuilder& builder_;
  std::vector<std::optional<QuickScalar>> entries_;
  std::string refused_;
};

}  // namespace opwright
