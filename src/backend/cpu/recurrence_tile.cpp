#include "backend/cpu/recurrence_tile.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/simd_targets.h"
#include "operators/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/recurrence_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backend/cpu/pointwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;

#if !HWY_HAVE_SCALABLE
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));
constexpr int kColumns = static_cast<int>(kRecurrentUnits) / kLanes;
/// Elements by which prefetches of the panel into the nearest cache run ahead.
constexpr int64_t kAhead = 32 * kRecurrentUnits;
/// Rows whose sums fit the registers together with a row of the panel.
constexpr int kRows = kLanes >= 16 ? 8 : kLanes >= 8 ? 3 : 1;

template <int rows>
HWY_INLINE void multiply_rows(const PanelProduct& p, int64_t first) {
  const Tag d;
  // Several sums, since additions to one sum would wait for each other.
  constexpr int kChains = std::max(1, 8 / (rows * kColumns));
  Vector sums[kChains][rows][kColumns];
  OPWRIGHT_UNROLLED
  for (int u = 0; u < kChains; ++u) {
    OPWRIGHT_UNROLLED
    for (int r = 0; r < rows; ++r) {
      OPWRIGHT_UNROLLED
      for (int c = 0; c < kColumns; ++c)
        sums[u][r][c] = u == 0 && p.init
                            ? hn::LoadU(d, p.init + (first + r) * p.init_stride + c * kLanes)
                            : hn::Zero(d);
    }
  }
  const float* const a = p.a + first * p.a_stride;
  const float* panel = p.panel;
  int64_t k = 0;
  for (; k + kChains <= p.k; k += kChains) {
    OPWRIGHT_UNROLLED
    for (int u = 0; u < kChains; ++u) {
      Vector b[kColumns];
      OPWRIGHT_UNROLLED
      for (int c = 0; c < kColumns; ++c)
        if (c * kLanes % 16 == 0) hwy::Prefetch(panel + kAhead + c * kLanes);
      OPWRIGHT_UNROLLED
      for (int c = 0; c < kColumns; ++c) b[c] = hn::LoadU(d, panel + c * kLanes);
      OPWRIGHT_UNROLLED
      for (int r = 0; r < rows; ++r) {
        const Vector factor = hn::Set(d, a[r * p.a_stride + k + u]);
        OPWRIGHT_UNROLLED
        for (int c = 0; c < kColumns; ++c) sums[u][r][c] = hn::MulAdd(factor, b[c], sums[u][r][c]);
      }
      panel += kRecurrentUnits;
    }
  }
  for (; k < p.k; ++k, panel += kRecurrentUnits) {
    OPWRIGHT_UNROLLED
    for (int r = 0; r < rows; ++r) {
      const Vector factor = hn::Set(d, a[r * p.a_stride + k]);
      OPWRIGHT_UNROLLED
      for (int c = 0; c < kColumns; ++c)
        sums[0][r][c] = hn::MulAdd(factor, hn::LoadU(d, panel + c * kLanes), sums[0][r][c]);
    }
  }
  OPWRIGHT_UNROLLED
  for (int r = 0; r < rows; ++r) {
    OPWRIGHT_UNROLLED
    for (int c = 0; c < kColumns; ++c) {
      Vector sum = sums[0][r][c];
      OPWRIGHT_UNROLLED
      for (int u = 1; u < kChains; ++u) sum = hn::Add(sum, sums[u][r][c]);
      hn::StoreU(sum, d, p.out + (first + r) * p.out_stride + c * kLanes);
    }
  }
}

template <int rows>
void multiply_rest(const PanelProduct& p, int64_t first) {
  if constexpr (rows > 0) {
    if (p.rows - first == rows)
      multiply_rows<rows>(p, first);
    else
      multiply_rest<rows - 1>(p, first);
  }
}

void multiply(const PanelProduct& p) {
  int64_t first = 0;
  for (; first + kRows <= p.rows; first += kRows) multiply_rows<kRows>(p, first);
  multiply_rest<kRows - 1>(p, first);
}
#else
/// Vectors whose length the compiler does not know cannot be elements of arrays, so this loop has
/// no tiles.
void multiply(const PanelProduct& p) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < kRecurrentUnits; c += lanes) {
      Vector sum = p.init ? hn::LoadU(d, p.init + r * p.init_stride + c) : hn::Zero(d);
      for (int64_t k = 0; k < p.k; ++k)
        sum = hn::MulAdd(hn::Set(d, p.a[r * p.a_stride + k]),
                         hn::LoadU(d, p.panel + k * kRecurrentUnits + c), sum);
      hn::StoreU(sum, d, p.out + r * p.out_stride + c);
    }
}
#endif

Vector rarer_activation(const CellActivation& f, Vector x) {
  const Tag d;
  const Vector alpha = hn::Set(d, f.alpha), beta = hn::Set(d, f.beta), zero = hn::Zero(d);
  switch (static_cast<RecurrentActivation>(f.kind)) {
    case RecurrentActivation::kRELU:
      return hn::IfThenElse(hn::Lt(x, zero), zero, x);
    case RecurrentActivation::kAFFINE:
      return hn::MulAdd(alpha, x, beta);
    case RecurrentActivation::kLEAKY_RELU:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, x), x);
    case RecurrentActivation::kTHRESHOLDED_RELU:
      return hn::IfThenElse(hn::Lt(x, alpha), zero, x);
    case RecurrentActivation::kSCALED_TANH:
      return hn::Mul(alpha, tanh(d, hn::Mul(beta, x)));
    case RecurrentActivation::kHARD_SIGMOID:
      return clip(d, hn::MulAdd(alpha, x, beta), zero, hn::Set(d, 1.0f));
    case RecurrentActivation::kELU:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, expm1(d, x)), x);
    case RecurrentActivation::kSOFTSIGN:
      return hn::Div(x, hn::Add(hn::Set(d, 1.0f), hn::Abs(x)));
    case RecurrentActivation::kSOFTPLUS:
      return softplus(d, x);
    default:
      return x;
  }
}

HWY_INLINE Vector activation(const CellActivation& f, float limit, Vector x) {
  const Tag d;
  if (limit < std::numeric_limits<float>::infinity())
    x = clip(d, x, hn::Set(d, -limit), hn::Set(d, limit));
  if (f.kind == static_cast<int32_t>(RecurrentActivation::kSIGMOID)) return sigmoid(d, x);
  if (f.kind == static_cast<int32_t>(RecurrentActivation::kTANH)) return tanh(d, x);
  return rarer_activation(f, x);
}

/// Calls body(i) for the first element of each vector.
template <class Body>
HWY_INLINE void each_vector(const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  for (int64_t i = 0; i < kRecurrentUnits; i += lanes) body(i);
}

HWY_INLINE Vector gate_sum(const CellStep& s, int64_t gate, int64_t i) {
  const Tag d;
  const int64_t at = gate * kRecurrentUnits + i;
  return hn::Add(hn::LoadU(d, s.projected + at), hn::LoadU(d, s.recurrent + at));
}

void rnn(const CellStep& s) {
  each_vector([&](int64_t i) HWY_ATTR {
    hn::StoreU(activation(s.activations[0], s.clip, gate_sum(s, 0, i)), Tag(), s.h_next + i);
  });
}

void lstm(const CellStep& s) {
  each_vector([&](int64_t i) HWY_ATTR {
    const Tag d;
    const CellActivation &f = s.activations[0], &g = s.activations[1], &h = s.activations[2];
    const auto peephole = [&](int64_t gate, Vector cell, Vector sum) HWY_ATTR {
      if (s.peephole == nullptr) return sum;
      return hn::MulAdd(hn::LoadU(d, s.peephole + gate * s.peephole_stride + i), cell, sum);
    };
    const Vector before = hn::LoadU(d, s.c + i);
    const Vector in = activation(f, s.clip, peephole(0, before, gate_sum(s, 0, i)));
    const Vector forget = s.input_forget
                              ? hn::Sub(hn::Set(d, 1.0f), in)
                              : activation(f, s.clip, peephole(2, before, gate_sum(s, 2, i)));
    const Vector candidate = activation(g, s.clip, gate_sum(s, 3, i));
    const Vector cell = hn::MulAdd(forget, before, hn::Mul(in, candidate));
    const Vector out = activation(f, s.clip, peephole(1, cell, gate_sum(s, 1, i)));
    hn::StoreU(cell, d, s.c + i);
    // The cell is not a sum of a gate: ONNX Runtime does not clip it.
    constexpr float kUnclipped = std::numeric_limits<float>::infinity();
    hn::StoreU(hn::Mul(out, activation(h, kUnclipped, cell)), d, s.h_next + i);
  });
}

/// (1 - z) candidate + z h
HWY_INLINE Vector gru_blend(Vector z, Vector candidate, Vector h) {
  return hn::MulAdd(z, hn::Sub(h, candidate), candidate);
}

void gru_before(const CellStep& s) {
  each_vector([&](int64_t i) HWY_ATTR {
    const Tag d;
    const Vector z = activation(s.activations[0], s.clip, gate_sum(s, 0, i));
    const Vector r = activation(s.activations[0], s.clip, gate_sum(s, 1, i));
    hn::StoreU(z, d, s.recurrent + i);
    hn::StoreU(hn::Mul(r, hn::LoadU(d, s.h + i)), d, s.reset + i);
  });
}

void gru_behind(const CellStep& s) {
  each_vector([&](int64_t i) HWY_ATTR {
    const Tag d;
    const Vector candidate = activation(s.activations[1], s.clip, gate_sum(s, 2, i));
    hn::StoreU(gru_blend(hn::LoadU(d, s.recurrent + i), candidate, hn::LoadU(d, s.h + i)), d,
               s.h_next + i);
  });
}

void gru_whole(const CellStep& s) {
  each_vector([&](int64_t i) HWY_ATTR {
    const Tag d;
    const Vector z = activation(s.activations[0], s.clip, gate_sum(s, 0, i));
    const Vector r = activation(s.activations[0], s.clip, gate_sum(s, 1, i));
    const int64_t at = 2 * kRecurrentUnits + i;
    const Vector product =
        hn::Add(hn::LoadU(d, s.recurrent + at), hn::LoadU(d, s.recurrent_bias + i));
    const Vector candidate = activation(s.activations[1], s.clip,
                                        hn::MulAdd(r, product, hn::LoadU(d, s.projected + at)));
    hn::StoreU(gru_blend(z, candidate, hn::LoadU(d, s.h + i)), d, s.h_next + i);
  });
}

}  // namespace

void run_panel(const PanelProduct& product) { multiply(product); }
void run_rnn(const CellStep& step) { rnn(step); }
void run_lstm(const CellStep& step) { lstm(step); }
void run_gru_gates(const CellStep& step) { gru_before(step); }
void run_gru_finish(const CellStep& step) { gru_behind(step); }
void run_gru(const CellStep& step) { gru_whole(step); }

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(run_panel);
HWY_EXPORT(run_rnn);
HWY_EXPORT(run_lstm);
HWY_EXPORT(run_gru_gates);
HWY_EXPORT(run_gru_finish);
HWY_EXPORT(run_gru);

void multiply_panel(const PanelProduct& product) { HWY_DYNAMIC_DISPATCH(run_panel)(product); }
void rnn_step(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_rnn)(step); }
void lstm_step(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_lstm)(step); }
void gru_gates(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_gru_gates)(step); }
void gru_finish(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_gru_finish)(step); }
void gru_step(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_gru)(step); }

}  // namespace opwright
#endif
