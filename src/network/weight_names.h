#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace opwright {

class Layer;
class Network;

/// The names by which a refit finds a network's constants, and which constants may be exchanged.
class WeightNames {
 public:
  /// Names a constant layer's elements. Several constants with the same elements may share a name.
  void set_name(const Layer& constant, std::string name);
  /// The name that was given, or the name of the layer's output.
  const std::string& name(const Layer& constant) const;
  bool has_name(const Layer& constant) const { return names_.contains(&constant); }
  /// The constants that were given this name.
  std::span<const Layer* const> named(const std::string& name) const;
  /// Excludes a constant from refits: it is a part of how an operator is written in layers.
  void fix(const Layer& constant) { fixed_.insert(&constant); }
  bool is_fixed(const Layer& constant) const { return fixed_.contains(&constant); }

  /// Notes the elements of a layer that is new or has got other elements.
  void add_elements(const Layer& constant);
  /// Forgets the elements of a layer before it gets others.
  void forget_elements(const Layer& constant);
  /// The constants whose elements lie at the address.
  std::span<const Layer* const> of_elements(const void* data) const;

  /// Forgets a layer that is removed.
  void forget(const Layer& constant);
  /// Copies the facts about a layer of another network to a layer of this one.
  void copy(const WeightNames& others, const Layer& from, const Layer& to) {
    if (const auto found = others.names_.find(&from); found != others.names_.end())
      set_name(to, found->second);
    if (others.is_fixed(from)) fix(to);
  }
  void copy_marks(const WeightNames& others) { marked_ = others.marked_; }

  /// Marks weights that the engine may be refitted with, if refittable weights are chosen one by
  /// one.
  void mark(const std::string& name) { marked_.insert(name); }
  void unmark(const std::string& name) { marked_.erase(name); }
  bool is_marked(const std::string& name) const { return marked_.contains(name); }

 private:
  std::unordered_map<const Layer*, std::string> names_;
  std::unordered_map<std::string, std::vector<const Layer*>> by_name_;
  std::unordered_map<const void*, std::vector<const Layer*>> by_elements_;
  std::unordered_set<const Layer*> fixed_;
  std::unordered_set<std::string> marked_;
};

/// Whether an engine can be refitted with other elements of the layer. True for a constant with
/// elements, unless it is a small integer one, which decides shapes.
bool has_refittable_weights(const Layer& layer);
/// The layers of such constants with this name.
std::vector<const Layer*> constants_named(const Network& network, const std::string& name);
/// Names all constants whose elements lie at one of the addresses. Throws Error if there are none,
/// or if other weights have the name.
void set_weights_name(Network& network, std::span<const void* const> elements, std::string name);
/// Marks the weights, or removes the mark. False if no weights have that name.
bool mark_weights_refittable(Network& network, const std::string& name, bool refittable);
/// False if no weights have that name.
bool are_weights_marked_refittable(const Network& network, const std::string& name);

}  // namespace opwright
