#pragma once

/// \file
/// Loops and conditionals. A layer runs inside if it depends on a tensor that enters and a tensor
/// that leaves depends on it. The build checks whether loops and conditionals are complete.

#include "layer.h"

namespace opwright {

/// The limit that ends a loop.
enum class TripLimit : int32_t {
  kCOUNT = 0,  ///< A number of iterations.
  kWHILE = 1,  ///< A condition that is checked before each iteration.
};

/// The tensor that leaves a loop.
enum class LoopOutput : int32_t {
  kLAST_VALUE = 0,   ///< The value of a recurrence behind the last iteration.
  kCONCATENATE = 1,  ///< The values of all iterations, along a new axis.
  kREVERSE = 2,      ///< As kCONCATENATE, with the last iteration first.
};

namespace impl {
template <>
struct EnumMaxImpl<TripLimit> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<LoopOutput> {
  static constexpr int32_t kVALUE = 3;
};
}  // namespace impl

class ILoop;
class IIfConditional;

/// A layer at the border of a loop.
class ILoopBoundaryLayer : public ILayer {
 public:
  virtual ILoop* getLoop() const noexcept = 0;

 protected:
  ~ILoopBoundaryLayer() noexcept override = default;
};

/// A value that an iteration hands to the next. The output is input 0 in the first iteration. In
/// each later iteration the output is the value that input 1, which setInput() sets, had in the
/// iteration before. Type and shape stay.
class IRecurrenceLayer : public ILoopBoundaryLayer {
 protected:
  ~IRecurrenceLayer() noexcept override = default;
};

/// A tensor that leaves a loop. For kCONCATENATE and kREVERSE input 1, a shape tensor of one
/// element, is the extent of the new axis. Iterations beyond this extent are left out, and zeros
/// stand for missing iterations.
class ILoopOutputLayer : public ILoopBoundaryLayer {
 public:
  LoopOutput getLoopOutput() const noexcept { return get<LoopOutput>("kind"); }
  /// The place of the new axis in the output; without meaning for kLAST_VALUE.
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }

 protected:
  ~ILoopOutputLayer() noexcept override = default;
};

/// Ends a loop.
class ITripLimitLayer : public ILoopBoundaryLayer {
 public:
  TripLimit getTripLimit() const noexcept { return get<TripLimit>("kind"); }

 protected:
  ~ITripLimitLayer() noexcept override = default;
};

/// The slice of a tensor at the number of the iteration along an axis, which is removed.
class IIteratorLayer : public ILoopBoundaryLayer {
 public:
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }
  /// Whether the first iteration gets the slice of the last one. A trip limit of kCOUNT gives the
  /// number of iterations.
  void setReverse(bool reverse) noexcept { set("reverse", reverse); }
  bool getReverse() const noexcept { return get<bool>("reverse"); }

 protected:
  ~IIteratorLayer() noexcept override = default;
};

/// Layers that run repeatedly. Owned by the network.
class ILoop : public INoCopy {
 public:
  /// The layer needs a second input before a build: setInput(1, next value).
  virtual IRecurrenceLayer* addRecurrence(ITensor& initialValue) noexcept = 0;
  /// Adds a limit, at most one of each kind. With both, the loop ends as soon as one limit is
  /// reached.
  /// \param tensor kCOUNT: kINT32 or kINT64, from outside of the loop; kWHILE: kBOOL, from inside.
  virtual ITripLimitLayer* addTripLimit(ITensor& tensor, TripLimit limit) noexcept = 0;
  virtual IIteratorLayer* addIterator(ITensor& tensor, int32_t axis = 0,
                                      bool reverse = false) noexcept = 0;
  /// \param tensor from inside of the loop; for kLAST_VALUE the output of one of its recurrences.
  virtual ILoopOutputLayer* addLoopOutput(ITensor& tensor, LoopOutput outputKind,
                                          int32_t axis = 0) noexcept = 0;
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

 protected:
  ~ILoop() noexcept override = default;
};

/// A layer at the border of a conditional.
class IIfConditionalBoundaryLayer : public ILayer {
 public:
  virtual IIfConditional* getConditional() const noexcept = 0;

 protected:
  ~IIfConditionalBoundaryLayer() noexcept override = default;
};

/// Decides which branch runs.
class IConditionLayer : public IIfConditionalBoundaryLayer {
 protected:
  ~IConditionLayer() noexcept override = default;
};

/// A tensor that branches read. Layers that depend on it belong to the branches.
class IIfConditionalInputLayer : public IIfConditionalBoundaryLayer {
 protected:
  ~IIfConditionalInputLayer() noexcept override = default;
};

/// Input 0 if the condition is true, else input 1.
class IIfConditionalOutputLayer : public IIfConditionalBoundaryLayer {
 protected:
  ~IIfConditionalOutputLayer() noexcept override = default;
};

/// Layers in two branches. One branch gives the result. Owned by the network.
class IIfConditional : public INoCopy {
 public:
  /// Sets the condition, once.
  /// \param condition kBOOL, one element.
  virtual IConditionLayer* setCondition(ITensor& condition) noexcept = 0;
  /// \param trueSubgraphOutput, falseSubgraphOutput of one type and rank. If their extents differ,
  ///     the output's are known once the conditional has run.
  virtual IIfConditionalOutputLayer* addOutput(ITensor& trueSubgraphOutput,
                                               ITensor& falseSubgraphOutput) noexcept = 0;
  virtual IIfConditionalInputLayer* addInput(ITensor& input) noexcept = 0;
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

 protected:
  ~IIfConditional() noexcept override = default;
};

}  // namespace opwright
