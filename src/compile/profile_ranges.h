#pragma once

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "compile/optimization_profile.h"
#include "network/network.h"
#include "network/shape_source.h"
#include "plan/plan.h"

namespace opwright {

/// The values that the symbols of a network take over an optimization profile, and so the extents
/// of every tensor. Not thread safe.
class ProfileRanges {
 public:
  /// `profile` may be null for a network whose inputs have constant shapes. Throws Error naming an
  /// input that the profile lacks, or whose rank or constant extents it contradicts, in the words
  /// of `source`.
  ProfileRanges(const Network& network, const OptimizationProfile* profile,
                ShapeSource source = ShapeSource::kProfile);

  /// Whether two extents of inputs may be equal in a run.
  bool may_agree(int a, int b) const;
  /// Declares them equal in all runs: both get the range that they have in common.
  void agree(const SymbolTable& symbols, int a, int b);
  /// Declares the extent of an input equal to `extent` in all runs.
  void fix(const SymbolTable& symbols, int id, int64_t extent);
  /// Takes over these symbols. Those of inputs stay.
  void follow(const SymbolTable& symbols);

  /// The profile per network input, as the plan stores it.
  const std::vector<ProfileInput>& inputs() const { return inputs_; }

  Shape min(std::span<const Expr> dims) const;
  Shape opt(std::span<const Expr> dims) const;
  /// Bounds that no shape within the profile exceeds.
  Shape max(std::span<const Expr> dims) const;
  /// The shape of an output for the opt shapes, before its operator has written the size tensors
  /// with these symbols (-1: none). These size tensors are at their upper bounds.
  Shape unwritten(std::span<const Expr> dims, std::span<const int> size_symbols) const;
  int64_t opt(const Expr& expr) const { return expr.evaluate(opt_); }
  /// Plans for another value of a size tensor, within the tensor's bounds.
  void set_opt(int symbol, int64_t value);
  /// Whether no symbol in the extents takes several values.
  bool is_fixed(std::span<const Expr> dims) const;

  static constexpr int kNoSymbol = -1, kSeveralSymbols = -2;
  struct Bounds {
    int64_t low, high;
    int symbol = kNoSymbol;  ///< the only symbol in the expression
    int depth = 1;           ///< of the expression
  };
  /// Bounds of an expression over the profile: exact for expressions that grow with every symbol
  /// and for those of one symbol with a small range, otherwise by interval arithmetic.
  Bounds bounds(const Expr& expr) const;

 private:
  struct Hash {
    size_t operator()(const Expr& expr) const { return expr.hash(); }
  };
  Bounds interval(const Expr& expr) const;
  /// The interval from the operands' known intervals.
  Bounds interval_of_operation(const Expr& expr) const;
  Bounds compute_bounds(const Expr& expr) const;

  /// Narrows the range of extents of inputs that are equal.
  void narrow(const SymbolTable& symbols, std::span<const int> ids, int64_t least, int64_t opt,
              int64_t most);
  /// The number of the input that the symbol is an extent or an element of.
  size_t input_of(const Symbol& symbol) const;

  struct Place {
    size_t input;
    int axis;
    friend bool operator==(const Place&, const Place&) = default;
    friend bool operator<(const Place& a, const Place& b) {
      return std::tie(a.input, a.axis) < std::tie(b.input, b.axis);
    }
  };

  std::vector<ProfileInput> inputs_;
  /// By the place of a symbol, its further places.
  std::multimap<Place, Place> shared_;
  std::unordered_map<std::string, size_t> input_numbers_;
  std::vector<int64_t> min_, opt_, max_;  // per symbol
  std::vector<int64_t> unwritten_;        // as opt_, but size tensors at their upper bounds
  std::vector<bool> varies_;              // per symbol
  bool has_sizes_ = false;                // whether some symbols are size tensors
  mutable std::unordered_map<Expr, Bounds, Hash> known_bounds_, intervals_;
};

}  // namespace opwright
