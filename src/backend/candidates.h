#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "network/operator.h"

namespace opwright {

/// The tactic of loops over bytes. They are exact everywhere and slow: no pass makes layers for
/// them.
inline constexpr std::string_view kIntegerLoop = "integer loop";

/// A candidate with the types of the query's ports, all LINEAR.
Candidate linear_candidate(const CandidateQuery& query, std::string tactic_name);
/// LINEAR and the other formats that the device uses for tensors of that rank.
std::vector<TensorFormat> formats_of(const CandidateQuery& query, int rank);
/// Whether `port` has the shape of `other` throughout the profile.
bool has_shape_of(const PortDesc& port, const PortDesc& other);
/// Appends copies of the candidates for each lower precision that the query allows. In a copy, the
/// FP32 ports with the shape of `like` have that precision.
void add_lower_precisions(const CandidateQuery& query, const PortDesc& like,
                          std::vector<Candidate>& candidates);
/// Whether a channel axis of this port fills whole blocks of the format for every shape in the
/// profile, so that there is no padding.
bool fills_blocks(const PortDesc& port, TensorFormat format);
/// Bytes per element of types whose elements are whole bytes. Throws Error for 4-bit types, which
/// only weights have.
int element_size(DataType type);

}  // namespace opwright
