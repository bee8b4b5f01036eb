#include "plugin/abi/quick_launch.h"

#include <utility>

#include "base/error.h"

namespace opwright {

namespace {

constexpr const char* kSizeNames[] = {"gridX",  "gridY",  "gridZ",    "blockX",
                                      "blockY", "blockZ", "sharedMem"};

/// Reads a scalar. On failure, returns nothing and puts the reason into `refused`, which keeps the
/// first reason.
std::optional<QuickScalar> read(ISymExpr* object, const ExprBuilder& builder,
                                const std::string& what, std::string& refused) {
  const auto refuse = [&](const std::string& why) {
    if (refused.empty()) refused = what + " " + why;
    return std::nullopt;
  };
  if (object == nullptr) return refuse("was set to null");
  if (object->getType() != PluginArgType::kINT)
    return refuse(str("has the unknown argument type ", static_cast<int>(object->getType())));
  ArgumentType type;
  switch (object->getDataType()) {
    case PluginArgDataType::kINT8:
      type = ArgumentType::kINT8;
      break;
    case PluginArgDataType::kINT16:
      type = ArgumentType::kINT16;
      break;
    case PluginArgDataType::kINT32:
      type = ArgumentType::kINT32;
      break;
    default:
      return refuse(str("has the unknown data type ", static_cast<int>(object->getDataType())));
  }
  const Expr* expr = builder.unwrap(static_cast<const IDimensionExpr*>(object->getExpr()));
  if (expr == nullptr) return refuse("is no expression of this call's expression builder");
  return QuickScalar{object, {type, *expr, 0}};
}

}  // namespace

bool QuickLaunchParams::set(Size size, ISymExpr* value) noexcept {
  sizes_[size] = read(value, builder_, kSizeNames[size], refused_);
  return sizes_[size].has_value();
}

void QuickLaunchParams::take(KernelCode& code) const {
  require(refused_.empty(), refused_);
  Expr* const to[] = {&code.grid[0],  &code.grid[1],  &code.grid[2],      &code.block[0],
                      &code.block[1], &code.block[2], &code.shared_memory};
  for (int size = 0; size < kCount; ++size) {
    if (size == kSharedMem && !sizes_[size]) continue;  // most kernels need no shared memory
    require(sizes_[size].has_value(), kSizeNames[size], " was not set");
    const Expr& value = sizes_[size]->value.value;
    const int64_t least = size >= kBlockX && size <= kBlockZ ? 1 : 0;
    require(!value.is_constant() || value.constant() >= least, kSizeNames[size], " is ",
            value.str(), "; it must be at least ", least);
    *to[size] = value;
  }
}

ISymExpr* QuickArguments::getSymExpr(int32_t index) const noexcept {
  if (index < 0 || std::cmp_greater_equal(index, entries_.size())) return nullptr;
  const auto& entry = entries_[static_cast<size_t>(index)];
  return entry ? entry->object : nullptr;
}

bool QuickArguments::setSymExpr(int32_t index, ISymExpr* value) noexcept {
  if (index < 0 || std::cmp_greater_equal(index, entries_.size())) return false;
  auto& entry = entries_[static_cast<size_t>(index)];
  entry = read(value, builder_, str("extra argument ", index), refused_);
  return entry.has_value();
}

bool QuickArguments::setNbSymExprs(int32_t count) noexcept {
  constexpr int32_t kMaxArguments = 1024;  // a kernel's parameters take 4 KiB at most
  if (count < 0 || count > kMaxArguments) {
    if (refused_.empty()) refused_ = str("the number of extra arguments was set to ", count);
    return false;
  }
  entries_.resize(static_cast<size_t>(count));
  return true;
}

void QuickArguments::take(KernelCode& code) const {
  require(refused_.empty(), refused_);
  for (size_t i = 0; i < entries_.size(); ++i) {
    require(entries_[i].has_value(), "extra argument ", i, " of ", entries_.size(), " was not set");
    code.arguments.push_back(entries_[i]->value);
  }
}

}  // namespace opwright
