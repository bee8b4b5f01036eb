#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "network/operator.h"

namespace opwright {

/// Types, formats and tactics in which a plugin can run, as text. Entries of `io_types` and
/// `layouts` are separated by commas: one for each input, then one for each output. Within an
/// entry, `|` separates alternatives that move together across all entries with `|`. `*` separates
/// alternatives that are independent of other entries. One layout stands for all ports. Without
/// types, the ports have the network's.
///
/// All methods throw Error quoting the text when it does not follow this grammar.
class AutoTuneCombination {
 public:
  AutoTuneCombination() = default;
  /// Empty text: not given. expand() checks text against the number of ports.
  AutoTuneCombination(const std::string& io_types, const std::string& layouts,
                      std::vector<int64_t> tactics = {});

  /// Sets the entries of these ports. Throws Error for a port that was set already.
  void pos(std::span<const int> ports, const std::string& types,
           const std::string& layouts = "LINEAR");
  /// Sets tactics: positive integers without repetition. `names` (for logs) is empty or has one for
  /// each.
  void tactics(std::vector<int64_t> tactics, std::vector<std::string> names = {});
  const std::vector<int64_t>& tactics() const { return tactics_; }
  /// The text of the constructor, or of pos(). An entry is empty if pos() was not called for it
  /// yet.
  std::string io_types() const { return join(types_); }
  std::string layouts() const { return join(formats_); }

  /// Every combination of types and formats with every tactic (0 if there is none). `|` lists vary
  /// before `*` lists, and the rightmost alternatives vary fastest. Types and formats are not
  /// checked.
  std::vector<Candidate> expand(std::span<const PortDesc> inputs,
                                std::span<const PortDesc> outputs) const;

 private:
  enum class Kind : uint8_t { kUnset, kTied, kFree };
  /// The alternatives of one port. A single alternative is kTied with a list of one.
  template <class T>
  struct Entry {
    Kind kind = Kind::kUnset;
    std::vector<T> alternatives;
    std::string text;
  };
  template <class T>
  using Entries = std::vector<Entry<T>>;

  template <class T>
  static Entry<T> parse_entry(std::string_view text, std::string_view all);
  template <class T>
  static Entries<T> parse_entries(const std::string& text);
  template <class T>
  static std::string join(const Entries<T>& entries);
  template <class T>
  static std::vector<std::vector<T>> choices(const Entries<T>& entries);

  Entries<DataType> types_;
  Entries<TensorFormat> formats_;
  bool one_layout_ = false;  ///< formats_ has one entry that stands for all ports
  bool by_position_ = false;
  std::vector<int64_t> tactics_;
  std::vector<std::string> tactic_names_;
};

/// The types that a port may have. The network's type comes first. Unless the network is strongly
/// typed, FP32 and the lower precisions that the query allows follow, with INT8 only if the tensor
/// has a scale. Types that are not floating stay.
std::vector<DataType> allowed_types(const CandidateQuery& query, const PortDesc& port);
/// The network's types, for messages: "FP32, INT32 -> FP32".
std::string describe_types(const CandidateQuery& query);
/// Why a combination is not possible: the first port whose type is not allowed or whose rank cannot
/// have the format. Empty if it is possible.
std::string obstacle(const Candidate& candidate, const CandidateQuery& query);

/// Expands all combinations. Drops repetitions, and combinations that are not possible, which it
/// reports to the query. Throws Error naming `plugin` and the layer, with the reasons, when none is
/// left.
std::vector<Candidate> expand(std::span<const AutoTuneCombination> combinations,
                              const CandidateQuery& query, std::string_view plugin);

}  // namespace opwright
