#pragma once

/// \file
/// Loops and conditionals. What runs inside follows from who reads whose results: the layers that
/// depend on what enters, up to what leaves. Whether that is complete is looked at when the network
/// is built.

#include "layer.h"

namespace opwright {

/// What ends a loop.
enum class TripLimit : int32_t {
  kCOUNT = 0,  ///< A number of iterations.
  kWHILE = 1,  ///< A condition that is looked at before each iteration.
};

/// What leaves a loop.
enum class LoopOutput : int32_t {
  kLAST_VALUE = 0,   ///< The value of a recurrence behind the last iteration.
  kCONCATENATE = 1,  ///< What all iterations give, along a new axis.
  kREVERSE = 2,      ///< The same, the last iteration first.
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

/// A value that an iteration hands to the next: the output is input 0 in the first one, and in each
/// other one what input 1, which setInput() gives, was in the one before. Type and shape stay.
class IRecurrenceLayer : public ILoopBoundaryLayer {
 protected:
  ~IRecurrenceLayer() noexcept override = default;
};

/// What leaves a loop. Of kCONCATENATE and kREVERSE input 1, a shape tensor of one element, is the
/// extent of the new axis: iterations beyond it are left out, zeros stand for those that there are
/// not.
class ILoopOutputLayer : public ILoopBoundaryLayer {
 public:
  LoopOutput getLoopOutput() const noexcept { return get<LoopOutput>("kind"); }
  /// Where the new axis is in the output; without meaning for kLAST_VALUE.
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }

 protected:
  ~ILoopOutputLayer() noexcept override = default;
};

/// What ends a loop.
class ITripLimitLayer : public ILoopBoundaryLayer {
 public:
  TripLimit getTripLimit() const noexcept { return get<TripLimit>("kind"); }

 protected:
  ~ITripLimitLayer() noexcept override = default;
};

/// The elements of a tensor at the number of the iteration along an axis, which goes.
class IIteratorLayer : public ILoopBoundaryLayer {
 public:
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }
  /// Whether the first iteration has what belongs to the last one; a trip limit of kCOUNT says how
  /// many there are.
  void setReverse(bool reverse) noexcept { set("reverse", reverse); }
  bool getReverse() const noexcept { return get<bool>("reverse"); }

 protected:
  ~IIteratorLayer() noexcept override = default;
};

/// Layers that run again and again. Owned by the network.
class ILoop : public INoCopy {
 public:
  /// The layer needs a second input before a build: setInput(1, next value).
  virtual IRecurrenceLayer* addRecurrence(ITensor& initialValue) noexcept = 0;
  /// At most one of each kind. With both the loop ends as soon as one says so.
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

/// What decides which branch runs.
class IConditionLayer : public IIfConditionalBoundaryLayer {
 protected:
  ~IConditionLayer() noexcept override = default;
};

/// A tensor that branches read: what depends on it belongs to them.
class IIfConditionalInputLayer : public IIfConditionalBoundaryLayer {
 protected:
  ~IIfConditionalInputLayer() noexcept override = default;
};

/// Input 0 where the condition is true, input 1 where it is not.
class IIfConditionalOutputLayer : public IIfConditionalBoundaryLayer {
 protected:
  ~IIfConditionalOutputLayer() noexcept override = default;
};

/// Layers of which those of one branch or of the other give the result. Owned by the network.
class IIfConditional : public INoCopy {
 public:
  /// Once.
  /// \param condition kBOOL, one element.
  virtual IConditionLayer* setCondition(ITensor& condition) noexcept = 0;
  /// \param trueSubgraphOutput, falseSubgraphOutput of one type and rank. Extents in which they
  ///     differ are known when the conditional has run.
  virtual IIfConditionalOutputLayer* addOutput(ITensor& trueSubgraphOutput,
                                               ITensor& falseSubgraphOutput) noexcept = 0;
  virtual IIfConditionalInputLayer* addInput(ITensor& input) noexcept = 0;
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

 protected:
  ~IIfConditional() noexcept override = default;
};

}  // namespace opwright
