#include "plugin/model/autotune.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/types.h"

namespace opwright {

namespace {

// Nobody would wait for the timing of more combinations.
constexpr size_t kMaxCombinations = 10000;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

DataType parse(std::string_view text, DataType) { return parse_data_type(text); }
TensorFormat parse(std::string_view text, TensorFormat) { return parse_tensor_format(text); }

/// The reason why a port cannot have the type, after "input 0 is FP32 in the network, ".
std::string why_not(const CandidateQuery& query, const PortDesc& port, DataType type) {
  if (query.strongly_typed) return "which is strongly typed";
  if (!is_floating(port.type.dtype)) return "and only floating types are cast";
  const bool is_lower = type == DataType::kHALF || type == DataType::kBF16 ||
                        type == DataType::kFP8 || type == DataType::kINT8;
  if (!is_lower) return str("which is not cast to ", name(type));
  if (type == DataType::kINT8 && query.int8)
    return "and INT8 needs a scale: give the tensor a dynamic range (ITensor.set_dynamic_range)";
  return str("and ", name(type), " needs BuilderFlag.", name(type), " in the builder config");
}

constexpr const char* what(DataType) { return "types"; }
constexpr const char* what(TensorFormat) { return "layouts"; }

}  // namespace

template <class T>
AutoTuneCombination::Entry<T> AutoTuneCombination::parse_entry(std::string_view text,
                                                               std::string_view all) {
  const bool tied = text.find('|') != std::string_view::npos;
  const bool free = text.find('*') != std::string_view::npos;
  require(!(tied && free), "AutoTuneCombination: ", what(T{}), " \"", all, "\": entry \"", text,
          "\" mixes '|' (alternatives that move together) and '*' (free alternatives)");
  Entry<T> entry{free ? Kind::kFree : Kind::kTied, {}, std::string(trim(text))};
  for (const std::string_view part : split(text, free ? '*' : '|')) {
    require(!part.empty(), "AutoTuneCombination: ", what(T{}), " \"", all,
            "\": an entry or alternative is empty");
    try {
      entry.alternatives.push_back(parse(part, T{}));
    } catch (const Error& error) {
      fail("AutoTuneCombination: ", what(T{}), " \"", all, "\": ", error.what());
    }
  }
  return entry;
}

template <class T>
AutoTuneCombination::Entries<T> AutoTuneCombination::parse_entries(const std::string& text) {
  Entries<T> entries;
  if (trim(text).empty()) return entries;
  for (const std::string_view entry : split(text, ','))
    entries.push_back(parse_entry<T>(entry, text));
  return entries;
}

AutoTuneCombination::AutoTuneCombination(const std::string& io_types, const std::string& layouts,
                                         std::vector<int64_t> tactics)
    : types_(parse_entries<DataType>(io_types)), formats_(parse_entries<TensorFormat>(layouts)) {
  one_layout_ = formats_.size() == 1;
  if (!tactics.empty()) this->tactics(std::move(tactics));
}

void AutoTuneCombination::pos(std::span<const int> ports, const std::string& types,
                              const std::string& layouts) {
  require(by_position_ || (types_.empty() && formats_.empty()),
          "AutoTuneCombination: pos() cannot be used after types or layouts were given as lists");
  by_position_ = true;
  const Entry<DataType> type = parse_entry<DataType>(types, types);
  const Entry<TensorFormat> format = parse_entry<TensorFormat>(layouts, layouts);
  for (const int port : ports) {
    require(port >= 0, "AutoTuneCombination: pos() with \"", types, "\": position ", port,
            " is negative");
    const auto index = static_cast<size_t>(port);
    if (index >= types_.size()) {
      types_.resize(index + 1);
      formats_.resize(index + 1);
    }
    require(types_[index].kind == Kind::kUnset, "AutoTuneCombination: pos() with \"", types,
            "\": position ", port, " was set to \"", types_[index].text, "\" already");
    types_[index] = type;
    formats_[index] = format;
  }
}

void AutoTuneCombination::tactics(std::vector<int64_t> tactics, std::vector<std::string> names) {
  require(names.empty() || names.size() == tactics.size(), "AutoTuneCombination: there are ",
          tactics.size(), " tactics but ", names.size(), " names of tactics");
  std::set<int64_t> distinct;
  for (const int64_t tactic : tactics) {
    require(tactic > 0, "AutoTuneCombination: tactics must be positive, but one is ", tactic);
    require(distinct.insert(tactic).second, "AutoTuneCombination: tactic ", tactic,
            " is there twice");
  }
  tactics_ = std::move(tactics);
  tactic_names_ = std::move(names);
}

template <class T>
std::string AutoTuneCombination::join(const Entries<T>& entries) {
  std::string text;
  for (size_t e = 0; e < entries.size(); ++e) text += (e > 0 ? ", " : "") + entries[e].text;
  return text;
}

/// The values of all entries for every choice of alternatives.
template <class T>
std::vector<std::vector<T>> AutoTuneCombination::choices(const Entries<T>& entries) {
  // All tied lists share one index; each free list has its own.
  size_t tied = 1;
  const Entry<T>* first_tied = nullptr;
  for (const Entry<T>& entry : entries) {
    if (entry.kind != Kind::kTied || entry.alternatives.size() == 1) continue;
    if (first_tied == nullptr) {
      first_tied = &entry;
      tied = entry.alternatives.size();
    }
    require(entry.alternatives.size() == tied, "AutoTuneCombination: ", what(T{}), " \"",
            first_tied->text, "\" and \"", entry.text,
            "\" move together, so they must have the same number of alternatives");
  }
  size_t total = tied;
  for (const Entry<T>& entry : entries) {
    if (entry.kind == Kind::kFree) total *= entry.alternatives.size();
    require(total <= kMaxCombinations, "AutoTuneCombination: the ", what(T{}), " have more than ",
            kMaxCombinations, " combinations");
  }
  std::vector<std::vector<T>> result;
  result.reserve(total);
  for (size_t number = 0; number < total; ++number) {
    std::vector<T> values(entries.size());
    size_t rest = number;
    for (size_t e = entries.size(); e-- > 0;) {
      const std::vector<T>& list = entries[e].alternatives;
      if (entries[e].kind != Kind::kFree) continue;
      values[e] = list[rest % list.size()];
      rest /= list.size();
    }
    for (size_t e = 0; e < entries.size(); ++e) {
      const std::vector<T>& list = entries[e].alternatives;
      if (entries[e].kind == Kind::kTied) values[e] = list.size() == 1 ? list[0] : list[rest];
    }
    result.push_back(std::move(values));
  }
  return result;
}

std::vector<Candidate> AutoTuneCombination::expand(std::span<const PortDesc> inputs,
                                                   std::span<const PortDesc> outputs) const {
  const size_t ports = inputs.size() + outputs.size();
  const auto check_count = [&](const auto& entries, const char* what) {
    require(entries.size() == ports, "AutoTuneCombination: ", what, " \"", join(entries),
            "\" have ", entries.size(), " entries, but there are ", inputs.size(), " inputs and ",
            outputs.size(), " outputs");
  };
  if (by_position_) {
    for (size_t p = 0; p < ports; ++p)
      require(p < types_.size() && types_[p].kind != Kind::kUnset,
              "AutoTuneCombination: pos() was not called for position ", p, " (there are ",
              inputs.size(), " inputs and ", outputs.size(), " outputs)");
    require(types_.size() == ports, "AutoTuneCombination: pos() was called for position ",
            types_.size() - 1, ", but there are ", inputs.size(), " inputs and ", outputs.size(),
            " outputs");
  } else {
    if (!types_.empty()) check_count(types_, "types");
    if (!formats_.empty() && !one_layout_) check_count(formats_, "layouts");
  }

  std::vector<std::vector<DataType>> types = choices(types_);
  if (types_.empty()) {
    types[0].clear();
    for (const PortDesc& input : inputs) types[0].push_back(input.type.dtype);
    for (const PortDesc& output : outputs) types[0].push_back(output.type.dtype);
  }
  // A single layout stands for all ports, so its alternatives move together.
  Entries<TensorFormat> layouts = formats_;
  if (one_layout_ && !by_position_) layouts.assign(ports, formats_[0]);
  if (layouts.empty()) {
    const Entry<TensorFormat> linear{Kind::kTied, {TensorFormat::kLINEAR}, "LINEAR"};
    layouts.assign(ports, linear);
  }
  const std::vector<std::vector<TensorFormat>> formats = choices(layouts);
  const size_t tactics = std::max<size_t>(tactics_.size(), 1);
  require(types.size() * formats.size() * tactics <= kMaxCombinations,
          "AutoTuneCombination: types \"", join(types_), "\", layouts \"", join(formats_),
          "\" and ", tactics_.size(), " tactics make more than ", kMaxCombinations,
          " combinations");

  std::vector<Candidate> candidates;
  for (const auto& type : types) {
    for (const auto& format : formats) {
      Candidate candidate;
      for (size_t p = 0; p < ports; ++p)
        (p < inputs.size() ? candidate.inputs : candidate.outputs).push_back({type[p], format[p]});
      for (size_t t = 0; t < tactics; ++t) {
        candidate.tactic = tactics_.empty() ? 0 : tactics_[t];
        candidate.tactic_name = tactic_names_.empty() ? "" : tactic_names_[t];
        candidates.push_back(candidate);
      }
    }
  }
  return candidates;
}

std::vector<DataType> allowed_types(const CandidateQuery& query, const PortDesc& port) {
  const DataType dtype = port.type.dtype;
  std::vector<DataType> types{dtype};
  if (query.strongly_typed || !is_floating(dtype)) return types;
  const auto add = [&](bool allowed, DataType type) {
    if (allowed && type != dtype) types.push_back(type);
  };
  add(true, DataType::kFLOAT);
  add(query.fp16, DataType::kHALF);
  add(query.bf16, DataType::kBF16);
  add(query.fp8, DataType::kFP8);
  add(query.int8 && port.scale > 0, DataType::kINT8);
  return types;
}

std::string describe_types(const CandidateQuery& query) {
  std::string text;
  for (size_t i = 0; i < query.inputs.size(); ++i)
    text += str(i == 0 ? "" : ", ", name(query.inputs[i].type.dtype));
  for (size_t o = 0; o < query.outputs.size(); ++o)
    text += str(o == 0 ? " -> " : ", ", name(query.outputs[o].type.dtype));
  return text;
}

std::string obstacle(const Candidate& candidate, const CandidateQuery& query) {
  const auto check = [&](const char* kind, size_t number, const PortDesc& port,
                         const PortType& type) -> std::string {
    if (!port.present) return {};
    const std::vector<DataType> allowed = allowed_types(query, port);
    if (std::find(allowed.begin(), allowed.end(), type.dtype) == allowed.end())
      return str(kind, " ", number, " is ", name(port.type.dtype), " in the network, ",
                 why_not(query, port, type.dtype));
    if (!is_valid(type.format, port.opt.rank()))
      return str(kind, " ", number, " has rank ", port.opt.rank(), ", which the format ",
                 name(type.format), " cannot have");
    return {};
  };
  for (size_t i = 0; i < query.inputs.size(); ++i)
    if (std::string text = check("input", i, query.inputs[i], candidate.inputs[i]); !text.empty())
      return text;
  for (size_t o = 0; o < query.outputs.size(); ++o)
    if (std::string text = check("output", o, query.outputs[o], candidate.outputs[o]);
        !text.empty())
      return text;
  return {};
}

std::vector<Candidate> expand(std::span<const AutoTuneCombination> combinations,
                              const CandidateQuery& query, std::string_view plugin) {
  require(!combinations.empty(), "layer '", query.layer, "': autotune of plugin '", plugin,
          "' gives an empty list; it must list one AutoTuneCombination at least, or be left out "
          "for a plugin that runs in the network's types");
  std::vector<Candidate> candidates;
  std::string reasons;
  for (const AutoTuneCombination& combination : combinations) {
    std::vector<Candidate> expanded;
    try {
      expanded = combination.expand(query.inputs, query.outputs);
    } catch (const Error& error) {
      fail("layer '", query.layer, "': autotune of plugin '", plugin, "': ", error.what());
    }
    for (Candidate& candidate : expanded) {
      // Types and formats of absent inputs do not matter.
      for (size_t i = 0; i < query.inputs.size(); ++i)
        if (!query.inputs[i].present) candidate.inputs[i] = query.inputs[i].type;
      if (std::string reason = obstacle(candidate, query); !reason.empty()) {
        if (reasons.find(reason) == std::string::npos)
          reasons += str("\n  ", str(candidate), ": ", reason);
        if (query.dropped != nullptr)
          query.dropped->push_back({std::move(candidate), std::move(reason)});
        continue;
      }
      const bool is_known =
          std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& other) {
            return other.tactic == candidate.tactic && other.inputs == candidate.inputs &&
                   other.outputs == candidate.outputs;
          });
      if (!is_known) candidates.push_back(std::move(candidate));
    }
  }
  require(!candidates.empty(), "layer '", query.layer, "': autotune of plugin '", plugin,
          "' gives no combination of types and layouts that is possible; the network's types are ",
          describe_types(query), reasons);
  return candidates;
}

}  // namespace opwright
