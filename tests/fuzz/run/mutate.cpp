#include "run/mutate.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/types.h"
#include "run/seeds.h"

namespace opwright::fuzz {
namespace {

template <class T>
std::string text_of(const std::vector<T>& list) {
  std::string text = "[";
  for (const T& item : list) text += (text.size() > 1 ? ", " : "") + str(item);
  return text + "]";
}
std::string text_of(const AttributeValue& value) {
  // Their bytes need not be as many as they say.
  if (const auto* fields = std::get_if<FieldValues>(&value))
    return str("=", fields->size(), " fields");
  Attributes one = {{"", value}};
  return str(one);
}
std::string text_of(PortType type) {
  return str(static_cast<int>(type.dtype), ":", static_cast<int>(type.format));
}

class Mutation {
 public:
  Mutation(Plan& plan, Script& script, std::string* log) : plan_(plan), s_(script), log_(log) {}

  void run() {
    if (plan_.schedules.empty()) return;
    schedule_number_ = s_.below(plan_.schedules.size());
    schedule_ = &plan_.schedules[schedule_number_];
    // Most mutations keep a structure that checks accept.
    switch (s_.below(56)) {
      default:
        return change_attribute();
      case 48:
      case 49:
      case 50:
        return change_data();
      case 51:
      case 52:
        return change_type();
      case 53:
        return change_profile();
      case 54:
      case 55:
        return change_dims();
      case 8:
        return change_kind();
      case 9:
      case 10:
        return change_candidate();
      case 11:
      case 12:
      case 13:
        return change_ports();
      case 14:
      case 15:
        return change_type();
      case 16:
      case 17:
        return change_dims();
      case 18:
        return change_place();
      case 19:
        return change_values();
      case 20:
        return change_expression();
      case 21:
        return change_symbol();
      case 22:
        return change_size_symbols();
      case 23:
        return change_profile();
      case 24:
        return change_memory();
      case 25:
        return change_copies_or_debug();
      case 26:
        return change_refit();
      case 27:
        return change_packed();
      case 28:
        return change_order();
      case 29:
        return change_network_port();
      case 30:
        return change_data();
      case 31:
        return change_rest();
    }
  }

  void change_attributes(Attributes& attributes, const std::string& owner) {
    Attribute* attribute = pick(attributes);
    if (attribute == nullptr) return;
    if (s_.chance(40)) {
      if (s_.chance(2)) {
        note(owner, " gets the attribute ", attribute->name, " twice");
        attributes.push_back(Attribute(*attribute));
      } else {
        note(owner, " loses the attribute ", attribute->name);
        attributes.erase(attributes.begin() + (attribute - attributes.data()));
      }
      return;
    }
    const std::string before = text_of(attribute->value);
    if (s_.chance(60)) {
      attribute->value = s_.chance(2) ? AttributeValue(s_.number(1)) : AttributeValue(Ints{1, 2});
    } else if (auto* number = std::get_if<int64_t>(&attribute->value)) {
      // Enums, bits and axes, or any number.
      *number =
          s_.chance(3)
              ? s_.number(*number)
              : static_cast<int64_t>(static_cast<int8_t>(s_.byte()) % (s_.chance(2) ? 40 : 6));
    } else if (auto* fraction = std::get_if<double>(&attribute->value)) {
      *fraction = s_.fraction(*fraction);
    } else if (auto* text = std::get_if<std::string>(&attribute->value)) {
      if (s_.chance(2) || text->empty())
        text->push_back(static_cast<char>(s_.byte()));
      else
        (*text)[s_.below(text->size())] = static_cast<char>(s_.byte());
    } else if (auto* list = std::get_if<Ints>(&attribute->value)) {
      if (attribute->name == "code" && list->size() >= 5 && !s_.chance(8)) {
        change_program(*list, attributes);
      } else {
        change_list(*list,
                    [&](int64_t near) { return s_.chance(2) ? s_.number(near) : s_.small(near); });
      }
    } else if (auto* floats = std::get_if<Floats>(&attribute->value)) {
      change_list(*floats, [&](double near) { return s_.fraction(near); });
    } else if (auto* blob = std::get_if<Blob>(&attribute->value)) {
      *blob = changed(*blob);
    } else if (auto* fields = std::get_if<FieldValues>(&attribute->value)) {
      if (FieldValue* field = pick(*fields)) change_field(*field);
    } else if (auto* launch = std::get_if<KernelLaunch>(&attribute->value)) {
      change_launch(*launch);
    }
    note(owner, ": ", attribute->name, before, " -> ", text_of(attribute->value));
  }

 private:
  template <class... Parts>
  void note(const Parts&... parts) {
    if (log_ != nullptr) *log_ += str("profile ", schedule_number_, ": ", parts..., "\n");
  }
  /// Replaces a number and says so.
  template <class T, class... Parts>
  void set(T& place, T value, const Parts&... parts) {
    note(parts..., ": ", +place, " -> ", +value);
    place = value;
  }

  template <class T>
  T* pick(std::vector<T>& list) {
    return list.empty() ? nullptr : &list[s_.below(list.size())];
  }
  PlanStep* pick_step() { return pick(schedule_->steps); }
  std::string name(const PlanStep& step) const {
    return str("step ", &step - schedule_->steps.data(), " (", step.kind, ")");
  }
  std::string name(const PlanTensor& tensor) const {
    return str("tensor ", &tensor - schedule_->tensors.data(), " '", tensor.name, "'");
  }

  int32_t any_tensor() {
    if (s_.chance(16)) return static_cast<int32_t>(s_.number(-1));
    if (s_.chance(12)) return -1;
    return static_cast<int32_t>(s_.below(schedule_->tensors.size()));
  }
  int32_t any_expression() {
    if (s_.chance(4)) {
      // A constant of its own.
      plan_.expressions.push_back({.value = s_.chance(2) ? s_.number(2) : s_.small(3)});
      return static_cast<int32_t>(plan_.expressions.size()) - 1;
    }
    if (s_.chance(24)) return static_cast<int32_t>(s_.number(0));
    return static_cast<int32_t>(s_.below(plan_.expressions.size()));
  }
  PortType any_type() {
    PortType type{static_cast<DataType>(s_.below(EnumMax<DataType>())),
                  static_cast<TensorFormat>(s_.below(EnumMax<TensorFormat>()))};
    if (s_.chance(24)) type.dtype = static_cast<DataType>(s_.number(0));
    if (s_.chance(24)) type.format = static_cast<TensorFormat>(s_.number(0));
    return type;
  }

  /// Some change of a list: other elements, more, fewer, others' order.
  template <class T, class Make>
  void change_list(std::vector<T>& list, Make&& make) {
    switch (s_.below(8)) {
      case 0:
        list.push_back(make(list.empty() ? T{} : list.back()));
        return;
      case 1:
        if (!list.empty()) list.pop_back();
        return;
      case 2:
        if (list.size() > 1) std::swap(list[s_.below(list.size())], list[s_.below(list.size())]);
        return;
      case 3:
        if (s_.chance(3)) {
          list.clear();
        } else if (!list.empty()) {
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(s_.below(list.size())));
        }
        return;
      case 4:
        if (!list.empty()) {
          const T copy = list[s_.below(list.size())];
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(s_.below(list.size())), copy);
        }
        return;
      default:
        if (!list.empty()) {
          T& place = list[s_.below(list.size())];
          place = make(place);
        }
    }
  }

  void change_attribute() {
    PlanStep* step = pick_step();
    if (step == nullptr) return;
    change_attributes(step->attributes, name(*step));
    // Mostly in all profiles, which share the network's outputs.
    if (s_.chance(4)) return;
    const auto number = static_cast<size_t>(step - schedule_->steps.data());
    for (Schedule& schedule : plan_.schedules)
      if (number < schedule.steps.size() && schedule.steps[number].kind == step->kind)
        schedule.steps[number].attributes = Attributes(step->attributes);
  }

  void change_field(FieldValue& field) {
    switch (s_.below(6)) {
      case 0:
        field.type = static_cast<PluginFieldType>(s_.below(EnumMax<PluginFieldType>() + 1));
        return;
      case 1:
        field.length = static_cast<int32_t>(s_.number(field.length));
        return;
      case 2:
        if (!field.extents)
          field.extents.emplace();
        else if (s_.chance(4))
          field.extents.reset();
        if (field.extents)
          change_list(*field.extents, [&](int64_t near) { return s_.number(near); });
        return;
      case 3:
        field.name.push_back(static_cast<char>(s_.byte()));
        return;
      default:
        field.data = changed(field.data);
    }
  }

  void change_launch(KernelLaunch& launch) {
    const auto near_index = [&](int32_t near) {
      return s_.chance(3) ? static_cast<int32_t>(s_.number(near))
                          : static_cast<int32_t>(s_.below(launch.program.size() + 1));
    };
    switch (s_.below(10)) {
      case 0:
        launch.grid[s_.below(3)] = near_index(0);
        return;
      case 1:
        launch.block[s_.below(3)] = near_index(0);
        return;
      case 2:
        launch.shared_memory = near_index(0);
        return;
      case 3:
        if (KernelLaunch::Argument* argument = pick(launch.arguments)) {
          if (s_.chance(2))
            argument->value = near_index(argument->value);
          else if (s_.chance(2))
            argument->type = static_cast<ArgumentType>(s_.below(9));
          else
            argument->constant = s_.fraction(argument->constant);
        }
        return;
      case 4:
        change_list(launch.scratch, near_index);
        return;
      case 5:
        change_list(launch.shape_inputs,
                    [&](int32_t near) { return static_cast<int32_t>(s_.number(near)); });
        return;
      case 6:
        if (KernelLaunch::Check* check = pick(launch.checks))
          check->condition = near_index(check->condition);
        return;
      case 7:
        if (KernelLaunch::TensorMap* map = pick(launch.maps)) {
          const auto near = [&](int32_t value) { return static_cast<int32_t>(s_.number(value)); };
          switch (s_.below(7)) {
            case 0:
              map->input = near(map->input);
              return;
            case 1:
              map->type = static_cast<DataType>(s_.below(16));
              return;
            case 2:
              change_list(map->extents, near_index);
              return;
            case 3:
              change_list(map->strides, near_index);
              return;
            case 4:
              change_list(map->box, near);
              return;
            case 5:
              change_list(map->steps, near);
              return;
            default:
              change_list(s_.chance(2) ? map->lower : map->upper, near_index);
          }
        }
        return;
      default: {
        ExprInstruction* instruction = pick(launch.program);
        if (instruction == nullptr) return;
        switch (s_.below(5)) {
          case 0:
            instruction->op = static_cast<ExprOp>(s_.below(32));
            return;
          case 1:
            instruction->a = near_index(instruction->a);
            return;
          case 2:
            instruction->b = near_index(instruction->b);
            return;
          case 3:
            instruction->c = near_index(instruction->c);
            return;
          default:
            instruction->value = s_.number(instruction->value);
        }
      }
    }
  }

  /// One of the five numbers of an instruction, or an instruction more or less.
  void change_program(Ints& code, Attributes& attributes) {
    const size_t count = code.size() / 5, at = s_.below(count) * 5;
    switch (s_.below(8)) {
      case 0: {  // the operation, of any kind
        static constexpr int64_t kBases[] = {0, 100, 200, 300};
        code[at] = kBases[s_.below(4)] + static_cast<int64_t>(s_.below(26));
        return;
      }
      case 1:
        code[at + 1] = static_cast<int64_t>(s_.below(EnumMax<DataType>()));
        return;
      case 2:
        code[at + s_.below(5)] = s_.number(0);
        return;
      case 3: {
        const Ints copy(code.begin() + static_cast<std::ptrdiff_t>(at),
                        code.begin() + static_cast<std::ptrdiff_t>(at) + 5);
        code.insert(code.end(), copy.begin(), copy.end());
        for (Attribute& attribute : attributes)
          if (auto* floats = std::get_if<Floats>(&attribute.value))
            floats->insert(floats->end(), {0, 1});
        for (Attribute& attribute : attributes)
          if (auto* results = std::get_if<Ints>(&attribute.value);
              results != nullptr && attribute.name == "results" && !results->empty() &&
              s_.chance(2))
            results->back() = static_cast<int64_t>(count);
        return;
      }
      case 4:
        code.resize(code.size() - 5);
        return;
      default:
        code[at + 2 + s_.below(3)] = static_cast<int64_t>(s_.below(count + 1)) - 1;
    }
  }

  Blob changed(const Blob& blob) {
    size_t size = blob.size();
    if (s_.chance(2))
      size = static_cast<size_t>(s_.chance(2) ? s_.below(size + 1) : size + s_.below(80));
    const uint8_t fill = s_.byte();
    Blob copy = Blob::make(size, [&](void* memory) {
      auto* to = static_cast<uint8_t*>(memory);
      for (size_t i = 0; i < size; ++i)
        to[i] = i < blob.size() ? static_cast<uint8_t>(blob.data()[i]) : fill;
      for (int i = 0; i < 4 && size > 0; ++i) to[s_.below(size)] = s_.byte();
    });
    return copy;
  }

  void change_kind() {
    PlanStep* step = pick_step();
    if (step == nullptr) return;
    // A step of any seed gives its kind, its attributes, or both.
    const std::vector<Seed>& all = seeds();
    const Plan& other = all[s_.below(all.size())].plan;
    const auto& steps = other.schedules[0].steps;
    if (steps.empty()) return;
    const PlanStep& model = steps[s_.below(steps.size())];
    const size_t what = s_.below(4);
    note(name(*step), " gets ", what == 0 ? "the kind" : "kind and attributes", " of ", model.kind,
         " in '", other.name, "'", what == 3 ? ", and its packed weights" : "");
    step->kind = model.kind;
    if (what == 0) return;
    step->attributes = model.attributes;
    step->candidate.tactic = model.candidate.tactic;
    if (what == 3) step->packed = model.packed;
  }

  void change_candidate() {
    PlanStep* step = pick_step();
    if (step == nullptr) return;
    Candidate& candidate = step->candidate;
    switch (s_.below(4)) {
      case 0:
        return set(candidate.tactic,
                   s_.chance(2) ? s_.small(candidate.tactic) : s_.number(candidate.tactic),
                   name(*step), " tactic");
      case 1: {
        const std::vector<Seed>& all = seeds();
        const auto& steps = all[s_.below(all.size())].plan.schedules[0].steps;
        if (steps.empty()) return;
        const Candidate& model = steps[s_.below(steps.size())].candidate;
        note(name(*step), " gets tactic ", model.tactic, " '", model.tactic_name, "'");
        candidate.tactic = model.tactic;
        candidate.tactic_name = model.tactic_name;
        return;
      }
      default: {
        auto& types = s_.chance(2) ? candidate.outputs : candidate.inputs;
        if (s_.chance(8)) {
          note(name(*step), " has one type less or more");
          return change_list(types, [&](PortType) { return any_type(); });
        }
        PortType* type = pick(types);
        if (type == nullptr) return;
        const PortType to = any_type();
        note(name(*step), " candidate: ", text_of(*type), " -> ", text_of(to));
        *type = to;
      }
    }
  }

  void change_ports() {
    PlanStep* step = pick_step();
    if (step == nullptr) return;
    const bool is_output = s_.chance(3);
    auto& ports = is_output ? step->outputs : step->inputs;
    const std::string before = text_of(ports);
    change_list(ports, [&](int32_t) { return any_tensor(); });
    note(name(*step), is_output ? " outputs " : " inputs ", before, " -> ", text_of(ports));
  }

  void change_type() {
    PlanTensor* tensor = pick(schedule_->tensors);
    if (tensor == nullptr) return;
    PortType to = any_type();
    if (s_.chance(2)) to.format = tensor->type.format;
    if (s_.chance(3)) to.dtype = tensor->type.dtype;
    note(name(*tensor), " type: ", text_of(tensor->type), " -> ", text_of(to));
    // In all schedules, where it may be a network's input or output.
    const std::string wanted = tensor->name;
    for (Schedule& schedule : plan_.schedules)
      for (PlanTensor& each : schedule.tensors)
        if (each.name == wanted) each.type = to;
  }

  void change_dims() {
    PlanTensor* tensor = pick(schedule_->tensors);
    if (tensor == nullptr) return;
    std::vector<int32_t> dims = tensor->dims;
    change_list(dims, [&](int32_t) { return any_expression(); });
    note(name(*tensor), " dims: ", text_of(tensor->dims), " -> ", text_of(dims));
    const std::string wanted = tensor->name;
    const bool everywhere = s_.chance(2);
    for (Schedule& schedule : plan_.schedules)
      for (PlanTensor& each : schedule.tensors)
        if (&each == tensor || (everywhere && each.name == wanted)) each.dims = dims;
  }

  void change_place() {
    PlanTensor* tensor = pick(schedule_->tensors);
    if (tensor == nullptr) return;
    const auto at_end = static_cast<int64_t>(schedule_->arena_size);
    switch (s_.below(6)) {
      case 0:
        note(name(*tensor), " location ", static_cast<int>(tensor->location));
        tensor->location = static_cast<PlanTensor::Location>(
            s_.chance(20) ? s_.byte() : static_cast<uint8_t>(s_.below(5)));
        if (s_.chance(2)) tensor->index = static_cast<int32_t>(s_.below(3));
        note("  becomes ", static_cast<int>(tensor->location), ", index ", tensor->index);
        return;
      case 1:
        return set(tensor->index, static_cast<int32_t>(s_.small(tensor->index)), name(*tensor),
                   " index");
      case 2: {
        const PlanTensor* other = pick(schedule_->tensors);
        if (other->location == PlanTensor::Location::kInput ||
            other->location == PlanTensor::Location::kOutput) {
          tensor->location = other->location, tensor->index = other->index;
          return note(name(*tensor), " lies in the memory of ", name(*other));
        }
        return set(tensor->offset, other->offset, name(*tensor), " offset of ", name(*other));
      }
      case 3:
        return set(tensor->offset,
                   static_cast<uint64_t>(s_.number(s_.chance(2) ? at_end : 0)) & ~uint64_t{63},
                   name(*tensor), " offset");
      case 4:
        return set(tensor->size,
                   static_cast<uint64_t>(s_.number(static_cast<int64_t>(tensor->size))),
                   name(*tensor), " size");
      default:
        tensor->scale = static_cast<float>(s_.fraction(tensor->scale));
        tensor->source = static_cast<int32_t>(s_.small(tensor->source));
        note(name(*tensor), " scale ", tensor->scale, ", source ", tensor->source);
    }
  }

  void change_values() {
    std::vector<PlanTensor*> with;
    for (PlanTensor& tensor : schedule_->tensors)
      if (tensor.location == PlanTensor::Location::kValues) with.push_back(&tensor);
    PlanTensor** found = pick(with);
    PlanTensor* tensor = found == nullptr ? pick(schedule_->tensors) : *found;
    if (tensor == nullptr) return;
    const std::string before = text_of(tensor->values);
    change_list(tensor->values, [&](int32_t) { return any_expression(); });
    note(name(*tensor), " values: ", before, " -> ", text_of(tensor->values));
  }

  void change_expression() {
    ExprInstruction* e = pick(plan_.expressions);
    if (e == nullptr) return;
    const auto number = e - plan_.expressions.data();
    const auto line = [&] {
      return str(static_cast<int>(e->op), "(", e->a, ", ", e->b, ", ", e->c, ", ", e->value, ")");
    };
    const std::string before = line();
    switch (s_.below(4)) {
      case 0:
        e->op = static_cast<ExprOp>(s_.chance(16) ? s_.byte() : s_.below(12));
        break;
      case 1:
        e->value = s_.number(e->value);
        break;
      case 2:
        e->value = s_.small(e->value);
        break;
      default: {
        int32_t* const operands[] = {&e->a, &e->b, &e->c};
        *operands[s_.below(3)] = static_cast<int32_t>(
            s_.chance(12) ? s_.number(0) : static_cast<int64_t>(s_.below(number + 1)));
      }
    }
    note("expression ", number, ": ", before, " -> ", line());
  }

  void change_symbol() {
    Symbol* symbol = pick(plan_.symbols);
    if (symbol == nullptr) {
      plan_.symbols.emplace_back();
      plan_.size_bounds.emplace_back(0, 0);
      plan_.symbols.back().kind = Symbol::Kind::kSizeTensor;
      return note("a new symbol");
    }
    const auto number = static_cast<size_t>(symbol - plan_.symbols.data());
    switch (s_.below(4)) {
      case 0:
        symbol->kind = static_cast<Symbol::Kind>(s_.chance(8) ? s_.byte() : s_.below(3));
        return note("symbol ", number, " kind ", static_cast<int>(symbol->kind));
      case 1:
        return set(symbol->index, static_cast<int>(s_.small(symbol->index)), "symbol ", number,
                   " index");
      case 2:
        if (!plan_.inputs.empty())
          symbol->tensor = plan_.inputs[s_.below(plan_.inputs.size())].name;
        return note("symbol ", number, " of '", symbol->tensor, "'");
      default: {
        if (number >= plan_.size_bounds.size()) return;
        auto& bounds = plan_.size_bounds[number];
        int32_t& bound = s_.chance(2) ? bounds.first : bounds.second;
        set(bound, any_expression(), "bound of symbol ", number);
      }
    }
  }

  void change_size_symbols() {
    PlanStep* step = pick_step();
    if (step == nullptr) return;
    if (step->size_symbols.empty()) step->size_symbols.resize(step->outputs.size(), -1);
    const std::string before = text_of(step->size_symbols);
    change_list(step->size_symbols, [&](int32_t) {
      return s_.chance(8) ? static_cast<int32_t>(s_.number(0))
                          : static_cast<int32_t>(s_.below(plan_.symbols.size() + 1)) - 1;
    });
    note(name(*step), " size symbols ", before, " -> ", text_of(step->size_symbols));
  }

  void change_profile() {
    ProfileInput* input = pick(schedule_->inputs);
    if (input == nullptr) return;
    const auto number = input - schedule_->inputs.data();
    if (s_.chance(24)) {
      input->values = !input->values;
      return note("input ", number, " of the profile: values ", input->values);
    }
    if (s_.chance(24)) {
      input->min.push_back(1), input->opt.push_back(1), input->max.push_back(1);
      return note("input ", number, " of the profile has one extent more");
    }
    if (input->max.rank() == 0) return;
    const int axis = static_cast<int>(s_.below(input->max.rank()));
    const int64_t to = s_.chance(2) ? s_.number(input->max[axis]) : s_.small(input->max[axis]);
    const std::string before = str(input->min, " ", input->opt, " ", input->max);
    switch (s_.below(4)) {
      case 0:
        input->min[axis] = to;
        break;
      case 1:
        input->opt[axis] = to;
        break;
      case 2:
        input->min[axis] = input->opt[axis] = input->max[axis] = to;
        break;
      default:
        input->max[axis] = to;
    }
    note("input ", number, " of the profile: ", before, " -> ", input->min, " ", input->opt, " ",
         input->max);
  }

  void change_memory() {
    uint64_t& place = s_.chance(3) ? schedule_->workspace_size : schedule_->arena_size;
    const char* what = &place == &schedule_->arena_size ? "arena size" : "workspace size";
    const uint64_t to = s_.chance(4)
                            ? uint64_t{0} - 64 * (1 + s_.below(4))
                            : static_cast<uint64_t>(s_.number(static_cast<int64_t>(place)));
    set(place, to, what);
  }

  void change_copies_or_debug() {
    if (s_.chance(2)) {
      change_list(schedule_->copies, [&](OutputCopy copy) {
        if (s_.chance(2)) copy.tensor = any_tensor();
        if (s_.chance(2)) copy.output = static_cast<int32_t>(s_.small(copy.output));
        return copy;
      });
      for (const OutputCopy& copy : schedule_->copies)
        note("copy of tensor ", copy.tensor, " to output ", copy.output);
      return;
    }
    for (Schedule& schedule : plan_.schedules) {
      if (s_.chance(3) || schedule.debug.empty())
        schedule.debug.push_back({.name = "shown", .is_marked = true});
      DebugTensor& debug = schedule.debug[s_.below(schedule.debug.size())];
      debug.tensor = any_tensor();
      note("debug tensor '", debug.name, "' is tensor ", debug.tensor);
    }
  }

  void change_refit() {
    RefitPlan& refit = plan_.refit;
    switch (s_.below(7)) {
      case 0:
        if (RefitWeight* weight = pick(refit.weights)) {
          change_shape(weight->shape, "a refittable weight");
          if (s_.chance(3)) weight->data = changed(weight->data);
        }
        return;
      case 1:
        if (RefitValue* value = pick(refit.values)) {
          change_shape(value->shape, "a refit value");
          if (s_.chance(3)) value->data = changed(value->data);
          if (s_.chance(3)) value->dtype = any_type().dtype;
        }
        return;
      case 2:
        if (RefitOperation* op = pick(refit.operations))
          change_attributes(op->attributes, op->kind);
        return;
      case 3:
        if (RefitOperation* op = pick(refit.operations)) {
          auto& ports = s_.chance(2) ? op->inputs : op->outputs;
          change_list(ports, [&](int32_t near) { return static_cast<int32_t>(s_.small(near)); });
          note("refit operation ", op->kind, " -> ", text_of(ports));
        }
        return;
      case 4:
        if (RefitOperation* op = pick(refit.operations)) {
          if (PlanStep* step = pick_step()) op->kind = step->kind;
          note("a refit operation becomes ", op->kind);
        }
        return;
      case 5:
        refit.is_stripped = !refit.is_stripped;
        refit.stripped_bytes = static_cast<uint64_t>(s_.number(0));
        return note("stripped: ", refit.is_stripped);
      default:
        if (PlanTensor* tensor = pick(schedule_->tensors))
          set(tensor->source, static_cast<int32_t>(s_.small(tensor->source)), name(*tensor),
              " source");
    }
  }

  void change_shape(Shape& shape, std::string_view what) {
    const std::string before = shape.str();
    if (shape.rank() > 0 && !s_.chance(4))
      shape[static_cast<int>(s_.below(shape.rank()))] = s_.chance(2) ? s_.number(2) : s_.small(2);
    else if (shape.rank() < Dims::MAX_DIMS)
      shape.push_back(s_.small(1));
    note(what, ": ", before, " -> ", shape);
  }

  void change_packed() {
    std::vector<PlanStep*> with;
    for (PlanStep& step : schedule_->steps)
      if (!step.packed.empty()) with.push_back(&step);
    PlanStep** found = pick(with);
    PlanStep* step = found == nullptr ? pick_step() : *found;
    if (step == nullptr) return;
    if (step->packed.empty() || s_.chance(12)) {
      PackedInput packed;
      packed.input = static_cast<int>(s_.below(step->inputs.size() + 1));
      packed.layout = "plain";
      packed.data = Blob::copy("0123456789abcdef", 16);
      step->packed.push_back(packed);
      return note(name(*step), " packs input ", packed.input);
    }
    PackedInput& packed = step->packed[s_.below(step->packed.size())];
    switch (s_.below(5)) {
      case 0:
        return set(packed.input, static_cast<int>(s_.small(packed.input)), name(*step),
                   " packed input");
      case 1: {
        const std::string before = packed.layout;
        if (packed.layout.empty() || s_.chance(3))
          packed.layout.push_back('1');
        else
          packed.layout[s_.below(packed.layout.size())] = static_cast<char>('0' + s_.below(75));
        return note(name(*step), " packed layout '", before, "' -> '", packed.layout, "'");
      }
      case 2:
        note(name(*step), " forgets what is packed");
        step->packed.erase(step->packed.begin() + (&packed - step->packed.data()));
        return;
      case 3: {  // another kernel's
        const std::vector<Seed>& all = seeds();
        for (const PlanStep& other : all[s_.below(all.size())].plan.schedules[0].steps)
          if (!other.packed.empty()) {
            packed.data = other.packed[0].data;
            packed.layout = other.packed[0].layout;
            return note(name(*step), " gets packed weights of another step");
          }
        return;
      }
      default:
        note(name(*step), " has other packed bytes");
        packed.data = changed(packed.data);
        note("  ", packed.data.size(), " bytes");
    }
  }

  void change_order() {
    auto& steps = schedule_->steps;
    if (steps.empty()) return;
    const size_t at = s_.below(steps.size());
    switch (s_.below(3)) {
      case 0:
        note("without ", name(steps[at]));
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case 1: {
        note(name(steps[at]), " twice");
        const PlanStep copy = steps[at];
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(s_.below(steps.size())), copy);
        return;
      }
      default: {
        const size_t other = s_.below(steps.size());
        note(name(steps[at]), " and ", name(steps[other]), " change places");
        std::swap(steps[at], steps[other]);
      }
    }
  }

  void change_network_port() {
    auto& ports = s_.chance(2) ? plan_.outputs : plan_.inputs;
    PlanPort* port = pick(ports);
    if (port == nullptr) return;
    switch (s_.below(6)) {
      case 0:
        port->type = any_type();
        return note("port '", port->name, "' has the type ", text_of(port->type));
      case 1:
        change_list(port->dims, [&](int32_t) { return any_expression(); });
        return note("port '", port->name, "' has the dims ", text_of(port->dims));
      case 2:
        port->is_shape_input = !port->is_shape_input;
        return note("port '", port->name, "' shape input: ", port->is_shape_input);
      case 3: {
        const PlanPort* other = pick(ports);
        note("port '", port->name, "' is called '", other->name, "'");
        port->name = std::string(other->name);
        return;
      }
      default:
        if (PlanPort* output = pick(plan_.outputs))
          set(output->aliased_input, static_cast<int32_t>(s_.small(output->aliased_input)),
              "output '", output->name, "' aliased input");
    }
  }

  void change_data() {
    std::vector<PlanTensor*> with;
    for (PlanTensor& tensor : schedule_->tensors)
      if (tensor.data.size() != 0) with.push_back(&tensor);
    PlanTensor** found = pick(with);
    if (found == nullptr) return;
    Blob& data = (*found)->data;
    if (s_.chance(6)) {
      data = changed(data);
      return note(name(**found), " has ", data.size(), " bytes of data");
    }
    const uint64_t value = s_.chance(2) ? s_.word() : static_cast<uint64_t>(s_.number(0));
    const size_t at = s_.below(data.size() / 8 + 1) * 8;
    data = Blob::make(data.size(), [&](void* memory) {
      std::copy_n((*found)->data.data(), data.size(), static_cast<std::byte*>(memory));
      for (size_t i = 0; i < 8 && at + i < data.size(); ++i)
        static_cast<uint8_t*>(memory)[at + i] = static_cast<uint8_t>(value >> (8 * i));
    });
    note(name(**found), " has other data at ", at);
  }

  void change_rest() {
    switch (s_.below(8)) {
      case 0:
        plan_.code.push_back(
            {"x", s_.chance(2) ? "sm_90" : "x86-64", Blob::copy("\177ELF", 5), s_.chance(2)});
        return note("a new code object");
      case 1:
        if (PlanStep* step = pick_step()) {
          step->code.push_back(static_cast<int32_t>(s_.below(plan_.code.size() + 1)));
          note(name(*step), " has code ", step->code.back());
        }
        return;
      case 2:
        (s_.chance(2) ? plan_.plugin_libraries : plan_.plugin_sources)
            .push_back(static_cast<int32_t>(s_.below(plan_.code.size() + 1)));
        return note("a plugin library or source");
      case 3:
        plan_.device_type = static_cast<DeviceType>(s_.below(4));
        if (plan_.device_type == DeviceType::kGPU) plan_.backend = "cuda";
        return note("device type ", static_cast<int>(plan_.device_type));
      case 4:
        plan_.debug_plugins = !plan_.debug_plugins;
        return note("debug_plugins ", plan_.debug_plugins);
      case 5:
        if (!plan_.requirements.empty()) plan_.requirements.pop_back();
        return note("a requirement less");
      case 6:
        // What one profile's schedule has becomes the other's.
        if (plan_.schedules.size() > 1) {
          std::swap(plan_.schedules[0].inputs, plan_.schedules[1].inputs);
          note("the profiles' ranges change places");
        }
        return;
      default:
        if (schedule_number_ > 0 || plan_.schedules.size() > 1) {
          note("the schedule is there twice");
          plan_.schedules[s_.below(plan_.schedules.size())] = Schedule(*schedule_);
        }
    }
  }

  Plan& plan_;
  Script& s_;
  std::string* log_;
  size_t schedule_number_ = 0;
  Schedule* schedule_ = nullptr;
};

}  // namespace

void mutate(Plan& plan, Script& script, std::string* log) { Mutation(plan, script, log).run(); }

void mutate(Attributes& attributes, Script& script) {
  Plan none;
  Mutation(none, script, nullptr).change_attributes(attributes, {});
}

}  // namespace opwright::fuzz
