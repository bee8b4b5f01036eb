#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "network/network.h"

namespace opwright::onnx {

using Sequence = std::vector<Tensor*>;

/// The value of a name: a tensor, a sequence of tensors, or an optional that holds nothing. A null
/// tensor is an input that a function's call omits. A sequence whose length is known only when the
/// engine runs is one tensor that stacks its elements along a first axis. In the body of the loop
/// that makes such a sequence, the value is the tensor that this iteration appends.
class Value {
 public:
  Value(Tensor* tensor = nullptr) : tensor_(tensor) {}  // NOLINT: a tensor is the common value
  explicit Value(Sequence sequence)
      : sequence_(std::make_shared<const Sequence>(std::move(sequence))) {}
  static Value stacked(Tensor* elements) {
    Value value;
    value.stacked_ = elements;
    return value;
  }
  /// A state of a loop to which this iteration has appended nothing yet.
  static Value growing(int state) {
    Value value;
    value.state_ = state;
    return value;
  }
  static Value empty_optional() {
    Value value;
    value.is_empty_ = true;
    return value;
  }

  /// Null for a value that is no tensor.
  Tensor* tensor() const { return tensor_; }
  /// Null for a value that is no sequence.
  const Sequence* sequence() const { return sequence_.get(); }
  /// Null for a value that is no sequence of unknown length.
  Tensor* stacked() const { return stacked_; }
  /// The number of this sequence among the loop's states; -1 for other values.
  int growing_state() const { return state_; }
  /// The tensor that this iteration has appended to the sequence; null: nothing yet.
  Tensor* appended() const { return appended_; }
  Value with_appended(Tensor* tensor) const {
    Value value = *this;
    value.appended_ = tensor;
    return value;
  }
  bool is_sequence() const { return sequence_ != nullptr || stacked_ != nullptr || state_ >= 0; }
  bool is_empty_optional() const { return is_empty_; }
  bool is_absent() const { return tensor_ == nullptr && !is_sequence() && !is_empty_; }

 private:
  Tensor* tensor_ = nullptr;
  std::shared_ptr<const Sequence> sequence_;
  Tensor *stacked_ = nullptr, *appended_ = nullptr;
  int state_ = -1;
  bool is_empty_ = false;
};

/// The names of a graph, a function's call or a body. A body's names hide equal ones outside.
class Names {
 public:
  /// Maps a value from outside to a value in a body that is a network of its own.
  using Capture = std::function<Value(const Value&)>;

  /// `outer` must outlive it.
  explicit Names(Names* outer = nullptr, Capture capture = nullptr)
      : outer_(outer), capture_(std::move(capture)) {}

  /// Null for a name that nothing has, or only a node that failed.
  const Value* find(const std::string& name) {
    if (const auto found = entries_.find(name); found != entries_.end())
      return found->second.is_broken ? nullptr : &found->second.value;
    const Value* outside = outer_ != nullptr ? outer_->find(name) : nullptr;
    if (outside == nullptr || !capture_) return outside;
    Entry& entry = entries_[name];
    entry.is_captured = true;
    entry.value = capture_(*outside);
    return &entry.value;
  }
  /// Whether the name is that of a value that could not be made.
  bool is_broken(const std::string& name) const {
    if (const auto found = entries_.find(name); found != entries_.end())
      return found->second.is_broken;
    return outer_ != nullptr && outer_->is_broken(name);
  }
  /// Whether the name is its own, and not one from outside.
  bool is_own(const std::string& name) const {
    const auto found = entries_.find(name);
    return found != entries_.end() && !found->second.is_broken && !found->second.is_captured;
  }
  void set(const std::string& name, Value value) { entries_[name] = {std::move(value), false}; }
  void set_broken(const std::string& name) { entries_[name] = {Value(), true}; }

 private:
  struct Entry {
    Value value;
    bool is_broken = false, is_captured = false;
  };

  Names* outer_;
  Capture capture_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace opwright::onnx
