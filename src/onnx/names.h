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

/// What a name stands for: a tensor, a sequence of tensors whose length is known, or an optional
/// that holds nothing. A null tensor is an input that the call of a function leaves out.
class Value {
 public:
  Value(Tensor* tensor = nullptr) : tensor_(tensor) {}  // NOLINT: a tensor is the common value
  explicit Value(Sequence sequence)
      : sequence_(std::make_shared<const Sequence>(std::move(sequence))) {}
  static Value empty_optional() {
    Value value;
    value.is_empty_ = true;
    return value;
  }

  /// Null for what is no tensor.
  Tensor* tensor() const { return tensor_; }
  /// Null for what is no sequence.
  const Sequence* sequence() const { return sequence_.get(); }
  bool is_empty_optional() const { return is_empty_; }
  bool is_absent() const { return tensor_ == nullptr && sequence_ == nullptr && !is_empty_; }

 private:
  Tensor* tensor_ = nullptr;
  std::shared_ptr<const Sequence> sequence_;
  bool is_empty_ = false;
};

/// The names of a graph, a function's call or a body. Those of a body hide equal ones outside.
class Names {
 public:
  /// What a value from outside is in a body that is a network of its own.
  using Capture = std::function<Value(const Value&)>;

  /// `outer` must outlive it.
  explicit Names(Names* outer = nullptr, Capture capture = nullptr)
      : outer_(outer), capture_(std::move(capture)) {}

  /// Null for a name that nothing has, or only what failed.
  const Value* find(const std::string& name) {
    if (const auto found = entries_.find(name); found != entries_.end())
      return found->second.is_broken ? nullptr : &found->second.value;
    const Value* outside = outer_ != nullptr ? outer_->find(name) : nullptr;
    if (outside == nullptr || !capture_) return outside;
    Entry& entry = entries_[name];
    entry.value = capture_(*outside);
    return &entry.value;
  }
  /// Whether the name is that of something that could not be made.
  bool is_broken(const std::string& name) const {
    if (const auto found = entries_.find(name); found != entries_.end())
      return found->second.is_broken;
    return outer_ != nullptr && outer_->is_broken(name);
  }
  void set(const std::string& name, Value value) { entries_[name] = {std::move(value), false}; }
  void set_broken(const std::string& name) { entries_[name] = {Value(), true}; }

 private:
  struct Entry {
    Value value;
    bool is_broken = false;
  };

  Names* outer_;
  Capture capture_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace opwright::onnx
