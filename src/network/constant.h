#pragma once

#include <vector>

#include "network/operator.h"

namespace opwright {

/// A constant tensor. The compiler turns it into weights of the plan, so it has no kernels.
class Constant final : public Operator {
 public:
  struct Params {
    DataType dtype = DataType::kFLOAT;
    Shape shape;
    Blob data;  ///< dense elements
  };
  explicit Constant(Params params) : params_(std::move(params)) {}
  const Params& params() const { return params_; }
  std::string_view kind() const override { return "Constant"; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
  std::vector<Candidate> candidates(const CandidateQuery& query) const override;
  PlannedOperatorPtr plan(const KernelArgs& args) const override;
  Attributes attributes() const override;

 private:
  Params params_;
};

/// A tensor whose elements are given as expressions. The compiler turns it into a tensor of
/// location kValues, so it has no kernels.
class Values final : public Operator {
 public:
  struct Params {
    std::vector<Expr> values;
    DataType dtype = DataType::kINT64;
    bool scalar = false;  ///< rank 0 with one element, else rank 1
  };
  explicit Values(Params params) : params_(std::move(params)) {}
  const Params& params() const { return params_; }
  std::string_view kind() const override { return "Values"; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
  std::vector<Candidate> candidates(const CandidateQuery& query) const override;
  PlannedOperatorPtr plan(const KernelArgs& args) const override;
  Attributes attributes() const override;

 private:
  Params params_;
};

}  // namespace opwright
