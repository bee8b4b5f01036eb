#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace opwright {

class Layer;
class Network;

/// Under which names a network's constants are found when an engine is refitted, and which of them
/// may be exchanged.
class WeightNames {
 public:
  /// Gives a constant layer's elements a name, which several may share that have the same elements.
  void set_name(const Layer& constant, std::string name);
  /// The name that was given, else that of the layer's output.
  const std::string& name(const Layer& constant) const;
  bool has_name(const Layer& constant) const { return names_.contains(&constant); }
  /// The constants that were given the name.
  std::span<const Layer* const> named(const std::string& name) const;
  /// The elements belong to how an operator is written in layers and are never exchanged.
  void fix(const Layer& constant) { fixed_.insert(&constant); }
  bool is_fixed(const Layer& constant) const { return fixed_.contains(&constant); }

  /// The layer has other elements than before, or is new.
  void add_elements(const Layer& constant);
  /// The elements that the layer has will be others'.
  void forget_elements(const Layer& constant);
  /// The constants whose elements lie at the address.
  std::span<const Layer* const> of_elements(const void* data) const;

  /// The layer is no longer there.
  void forget(const Layer& constant);
  /// What is known of a layer of another network is true of this one's, too.
  void copy(const WeightNames& others, const Layer& from, const Layer& to) {
    if (const auto found = others.names_.find(&from); found != others.names_.end())
      set_name(to, found->second);
    if (others.is_fixed(from)) fix(to);
  }
  void copy_marks(const WeightNames& others) { marked_ = others.marked_; }

  /// Whether the engine may be refitted with weights of this name where each is chosen.
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

/// Whether an engine can be refitted with other elements of the layer: a constant that has some,
/// and is none of those small integer ones that decide shapes.
bool has_refittable_weights(const Layer& layer);
/// The layers of such constants that have the name.
std::vector<const Layer*> constants_named(const Network& network, const std::string& name);
/// Names all constants whose elements lie at one of the addresses. Throws Error where there are
/// none, or other weights have the name.
void set_weights_name(Network& network, std::span<const void* const> elements, std::string name);
/// Marks the weights, or takes that back. False when there are none of that name.
bool mark_weights_refittable(Network& network, const std::string& name, bool refittable);
/// False when there are none of that name.
bool are_weights_marked_refittable(const Network& network, const std::string& name);

}  // namespace opwright
