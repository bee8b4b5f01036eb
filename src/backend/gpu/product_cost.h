#pragma once

#include <cstdint>

#include "backend/gpu/gpu_rates.h"
#include "backend/gpu/product_tiles.h"
#include "network/operator.h"
#include "operators/activation.h"
#include "operators/fused_program.h"

namespace opwright::gpu {

/// How the elements of an operand get to shared memory.
enum class OperandCopy {
  kVectors,   ///< vectors of a matrix, or boxes of it by TMA
  kWindows,   ///< vectors of channels of windows
  kElements,  ///< elements of windows, or of rows that are not aligned, one by one
};

/// What a product has to do, whatever its tile.
struct ProductWork {
  ProductSize size;
  DataType type = DataType::kFLOAT;
  OperandCopy a = OperandCopy::kVectors, b = OperandCopy::kVectors;
  /// Whether TMA can copy both operands.
  bool has_boxes = false;
  /// Bytes of all tensors, and bytes that the epilogue reads and writes for a result.
  double bytes = 0, bytes_of_result = 4;
  /// Operations of the epilogue for a result, in units of an addition.
  double operations = 0;
};

/// Operations of an epilogue for a result, in units of an addition.
double operations_of(const FusedProgram& program, const FusedActivation& activation);
/// Sets the bytes of the work: those of the candidate's ports at the profile's optimum.
void set_bytes(ProductWork& work, const Candidate& candidate, const CandidateQuery& query);

/// About the milliseconds of a product. It compares the tactics of one product; no other use needs
/// it to be exact.
double product_ms(const ProductTactic& tactic, const ProductWork& work, const GpuRates& rates);

/// About the milliseconds of a kernel that moves so many bytes and computes so many multiply-adds
/// on scalar units.
double simple_ms(double bytes, double products, const GpuRates& rates);

}  // namespace opwright::gpu
