#include "operators/type_rules.h"

namespace opwright {

bool accepts(ElementWiseOperation op, DataType type) {
  const bool numeric = is_floating(type) || is_integer(type);
  switch (op) {
    case ElementWiseOperation::kSUM:
    case ElementWiseOperation::kPROD:
    case ElementWiseOperation::kMAX:
    case ElementWiseOperation::kMIN:
    case ElementWiseOperation::kSUB:
    case ElementWiseOperation::kDIV:
    case ElementWiseOperation::kPOW:
    case ElementWiseOperation::kFLOOR_DIV:
    case ElementWiseOperation::kGREATER:
    case ElementWiseOperation::kLESS:
      return numeric;
    case ElementWiseOperation::kAND:
    case ElementWiseOperation::kOR:
    case ElementWiseOperation::kXOR:
      return type == DataType::kBOOL || is_integer(type);
    case ElementWiseOperation::kEQUAL:
      return numeric || type == DataType::kBOOL;
  }
  return false;
}

bool accepts(UnaryOperation op, DataType type) {
  switch (op) {
    case UnaryOperation::kNOT:
      return type == DataType::kBOOL;
    case UnaryOperation::kABS:
    case UnaryOperation::kNEG:
    case UnaryOperation::kSIGN:
      return is_floating(type) || is_integer(type);
    case UnaryOperation::kEXP:
    case UnaryOperation::kLOG:
    case UnaryOperation::kSQRT:
    case UnaryOperation::kRECIP:
    case UnaryOperation::kSIN:
    case UnaryOperation::kCOS:
    case UnaryOperation::kTAN:
    case UnaryOperation::kSINH:
    case UnaryOperation::kCOSH:
    case UnaryOperation::kASIN:
    case UnaryOperation::kACOS:
    case UnaryOperation::kATAN:
    case UnaryOperation::kASINH:
    case UnaryOperation::kACOSH:
    case UnaryOperation::kATANH:
    case UnaryOperation::kCEIL:
    case UnaryOperation::kFLOOR:
    case UnaryOperation::kERF:
    case UnaryOperation::kROUND:
    case UnaryOperation::kISINF:
    case UnaryOperation::kISNAN:
      return is_floating(type);
  }
  return false;
}

bool accepts(ActivationType op, DataType type) {
  const int32_t number = static_cast<int32_t>(op);
  if (number < 0 || number > static_cast<int32_t>(ActivationType::kGELU_TANH)) return false;
  const bool for_integers = op == ActivationType::kRELU || op == ActivationType::kCLIP;
  return is_floating(type) || (for_integers && is_integer(type));
}

DataType result_type(ElementWiseOperation op, DataType type) {
  switch (op) {
    case ElementWiseOperation::kEQUAL:
    case ElementWiseOperation::kGREATER:
    case ElementWiseOperation::kLESS:
      return DataType::kBOOL;
    default:
      return type;
  }
}

DataType result_type(UnaryOperation op, DataType type) {
  return op == UnaryOperation::kISINF || op == UnaryOperation::kISNAN ? DataType::kBOOL : type;
}

bool is_valid(const FusedActivation& activation) {
  return !activation.present() ||
         accepts(static_cast<ActivationType>(activation.type), DataType::kFLOAT);
}

}  // namespace opwright
