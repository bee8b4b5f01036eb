// Recurrent layers: the common part of their kernels.
//
// A step computes the next state h of kHidden units from the previous state and the step's input x.
// Each gate of a unit is a sum: of x times a row of W, h times a row of R, and two biases. A task
// is kRows sequences in one direction. A block, or a cluster of kBlocks that share the units, runs
// a task through all steps.
//
// Each kernel is a template over a struct that the host writes:
//   Element              the type of all operands and results in memory
//   kCell                RecurrentCell
//   kHidden, kInput      units; elements of x
//   kDirections          2: direction 1 runs from the last step to the first
//   kIsReverse           whether the only direction runs from the last step to the first
//   kRows, kBlocks, kWarps   sequences of a task; blocks that share a task; warps of a block
//   kHasBias, kHasLengths, kHasInitialH, kHasInitialC, kHasPeepholes   which inputs are present
//   f(x, direction), g(...), h(...)   the cell's activations, as ONNX names them
//   kIsClipped, kClip    whether, and to what magnitude, gates are limited before f and g
//   kForgetsRest         LSTM: the forget gate is 1 minus the input gate
//   kResetsProduct       GRU: the reset gate multiplies the state's product, not the state
//   kWritten             bit i: earlier kernels may write input i, in RecurrentArguments' order
// Expects prelude.cuh.
#pragma once

enum class RecurrentCell { kRnn, kGru, kLstm };

// Gates are in ONNX's order. GRU: z, r and the candidate. LSTM: i, o, f and c.
template <class Config>
struct RecurrentArguments {
  typedef typename Config::Element Element;
  const Element* x;                      // [steps, batch, kInput]
  const Element *w, *r;                  // [directions, gates * kHidden, kInput (r: kHidden)]
  const Element* biases;                 // [directions, 2 * gates * kHidden]: W's, then R's
  const int* lengths;                    // [batch]
  const Element *initial_h, *initial_c;  // [directions, batch, kHidden]
  const Element* peepholes;              // [directions, 3 * kHidden]: i, o, f
  Element* y;                            // [steps, directions, batch, kHidden]
  Element *last_h, *last_c;              // [directions, batch, kHidden]
  Index steps, batch, groups, tasks;     // a group has kRows sequences

  __device__ Index length(Index sequence) const {
    if constexpr (!Config::kHasLengths) return steps;
    const int given = lengths[sequence];
    return given < 0 ? 0 : given < steps ? given : steps;
  }
  // The offsets at which a sequence's units begin: in y at a step, and in the states.
  __device__ Index place_in_y(Index step, Index direction, Index sequence) const {
    return ((step * Config::kDirections + direction) * batch + sequence) * Config::kHidden;
  }
  __device__ Index place_in_states(Index direction, Index sequence) const {
    return (direction * batch + sequence) * Config::kHidden;
  }
  // Waits until earlier kernels are done. Inputs that they may write are read only after this.
  __device__ void wait() {
    wait_for_kernels();
    constexpr int kWritten = Config::kWritten;
    read_anew_if_written<kWritten, 0>(x), read_anew_if_written<kWritten, 1>(w);
    read_anew_if_written<kWritten, 2>(r), read_anew_if_written<kWritten, 3>(biases);
    read_anew_if_written<kWritten, 4>(lengths), read_anew_if_written<kWritten, 5>(initial_h);
    read_anew_if_written<kWritten, 6>(initial_c), read_anew_if_written<kWritten, 7>(peepholes);
  }
};

// Constants that follow from the host's struct.
template <class Config>
struct RecurrentConfig : Config {
  typedef RecurrentArguments<Config> Arguments;
  static constexpr bool kIsLstm = Config::kCell == RecurrentCell::kLstm;
  static constexpr bool kIsGru = Config::kCell == RecurrentCell::kGru;
  static constexpr int kGates = kIsLstm ? 4 : kIsGru ? 3 : 1;
  // The reset gate multiplies the state. The candidate's product then needs the reset gates of all
  // units.
  static constexpr bool kResetsFirst = kIsGru && !Config::kResetsProduct;
  static constexpr int kVector = 16 / (int)sizeof(typename Config::Element);

  // A cell takes the sums of its gates in slots. If a GRU resets the product, slot 2 is the part of
  // the candidate's sum from x, and slot 3 the part from h. Gate -1: x, or h, adds nothing.
  static constexpr int kSlots = kGates + (kIsGru && Config::kResetsProduct ? 1 : 0);
  __device__ static constexpr int gate_of_x(int slot) { return slot < kGates ? slot : -1; }
  __device__ static constexpr int gate_of_h(int slot) {
    if constexpr (kSlots == kGates) return gate_of_x(slot);
    return slot < 2 ? slot : slot == 3 ? 2 : -1;
  }

  __device__ static bool is_reverse(Index direction) {
    return Config::kIsReverse || direction == 1;
  }
  // The position in x and y of a sequence's step.
  __device__ static Index place_in_time(Index step, Index length, Index direction) {
    return is_reverse(direction) ? length - 1 - step : step;
  }
};
